/* Cores, memory and the tree of PCI devices, from hwloc. */
#include "srun-plugin/node_impl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hwloc.h>

#include "srun-plugin/sysfs.h"

struct node_tree {
    hwloc_topology_t topology;
};

/*
 * Only what we ask for: without caches and OS devices hwloc opens far fewer files, and none of its plugins (NVML, CUDA,
 * OpenCL) is loaded, which could take seconds and start GPUs. Groups are what PCI devices hang at where a socket has
 * several NUMA nodes.
 */
static int choose(hwloc_topology_t topology)
{
    static const hwloc_obj_type_t wanted[] = {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_CORE, HWLOC_OBJ_BRIDGE,
                                              HWLOC_OBJ_PCI_DEVICE};

    if (hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE) < 0)
        return -1;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (hwloc_topology_set_type_filter(topology, wanted[i],
                                           i < 2 ? HWLOC_TYPE_FILTER_KEEP_ALL : HWLOC_TYPE_FILTER_KEEP_IMPORTANT) < 0)
            return -1;
    if (hwloc_topology_set_type_filter(topology, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE) < 0)
        return -1;
    return hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
}

/*
 * hwloc's own component for x86 binds this thread to each CPU in turn to ask it for its identity, which only tells what
 * Linux has told already.
 */
static int start(struct node_tree **tree)
{
    if (!(*tree = calloc(1, sizeof **tree)))
        return -1;
    if (hwloc_topology_init(&(*tree)->topology) < 0) {
        free(*tree);
        *tree = NULL;
        return -1;
    }
    hwloc_topology_set_components((*tree)->topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    return choose((*tree)->topology);
}

/*
 * Reading the configuration space of a PCI device is what costs most of a look, in a virtual machine a millisecond
 * each. With one NUMA node and no GPU there is nothing that the tree could tell.
 */
static bool needs_pci(void)
{
    char nodes[64] = "", class[16] = "", **devices = sysfs_list("/", "sys/bus/pci/devices");
    bool found = !sysfs_line("/", nodes, sizeof nodes, "sys/devices/system/node/online") || strcmp(nodes, "0") != 0;

    for (char **device = devices; device && *device && !found; device++)
        found = sysfs_line("/", class, sizeof class, "sys/bus/pci/devices/%s/class", *device) &&
                (strncmp(class, "0x03", 4) == 0 || strncmp(class, "0x12", 4) == 0);
    sysfs_list_free(devices);
    return found;
}

static int finish(struct node *node, struct node_tree **tree, int status)
{
    if (status == 0 && (status = hwloc_topology_load((*tree)->topology)) == 0) {
        node->has_hwloc = true;
        return 0;
    }
    node_tree_close(*tree);
    *tree = NULL;
    return -1;
}

int node_tree_parse(struct node *node, struct node_tree **tree, const char *text)
{
    int status = start(tree);

    if (status == 0)
        status = hwloc_topology_set_xmlbuffer((*tree)->topology, text, (int)strlen(text) + 1);
    return finish(node, tree, status);
}

int node_tree_open(struct node *node, struct node_tree **tree, const char *root, const char *xml, struct error *err)
{
    char beneath[PATH_MAX];
    int status;

    *tree = NULL;
    if (!xml && !sysfs_is_live(root)) {
        if (!sysfs_exists(root, "machine.xml")) {
            node_problem(node, "the snapshot has no machine.xml: nothing is known of cores, memory and GPUs");
            return 0;
        }
        snprintf(beneath, sizeof beneath, "%s/machine.xml", root);
        xml = beneath;
    }
    if (xml && access(xml, R_OK) < 0)
        return error_errno(err, CODE_IO, "%s", xml);
    status = start(tree);
    if (status == 0 && xml)
        status = hwloc_topology_set_xml((*tree)->topology, xml);
    else if (status == 0 && !needs_pci())
        hwloc_topology_set_components((*tree)->topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "linux:pci");
    if (finish(node, tree, status) == 0)
        return 0;
    if (xml)
        return error_set(err, CODE_DATA, "%s: no topology that hwloc can read; lstopo --of xml writes one", xml);
    return error_errno(err, CODE_IO, "hwloc cannot look at this machine");
}

void node_tree_close(struct node_tree *tree)
{
    if (tree)
        hwloc_topology_destroy(tree->topology);
    free(tree);
}

int node_tree_save(const struct node_tree *tree, const char *path, struct error *err)
{
    if (hwloc_topology_export_xml(tree->topology, path, 0) < 0)
        return error_errno(err, CODE_IO, "%s cannot be written", path);
    return 0;
}

char *node_tree_text(struct node_tree *tree, size_t *size)
{
    hwloc_obj_t machine = hwloc_get_root_obj(tree->topology);
    char *text, *own;
    int length;

    for (unsigned i = 0; i < machine->infos_count; i++)
        if (strncmp(machine->infos[i].name, "DMI", 3) == 0)
            machine->infos[i].value[0] = '\0';
    if (hwloc_topology_export_xmlbuffer(tree->topology, &text, &length, 0) < 0)
        return NULL;
    own = strdup(text);
    *size = strlen(text);
    hwloc_free_xmlbuffer(tree->topology, text);
    return own;
}

static void copy(struct cpus *set, hwloc_const_bitmap_t from)
{
    for (int cpu = from ? hwloc_bitmap_first(from) : -1; cpu >= 0 && cpu < CPUS_MAX; cpu = hwloc_bitmap_next(from, cpu))
        cpus_add(set, (unsigned)cpu);
}

static hwloc_obj_t object(const struct node_tree *tree, hwloc_obj_type_t type, int index)
{
    return hwloc_get_obj_by_type(tree->topology, type, (unsigned)index);
}

static int package_of(struct node_tree *tree, hwloc_obj_t numa)
{
    hwloc_obj_t package = NULL;

    while ((package = hwloc_get_next_obj_by_type(tree->topology, HWLOC_OBJ_PACKAGE, package)))
        if (hwloc_bitmap_intersects(package->nodeset, numa->nodeset))
            return (int)package->logical_index;
    return -1;
}

/* The memory of a GPU that the kernel shows as a NUMA node (Grace Hopper) is no place for a rank. */
static bool is_gpu_memory(hwloc_obj_t numa)
{
    return numa->subtype && strcmp(numa->subtype, "GPUMemory") == 0;
}

static int read_numas(struct node *node, struct node_tree *tree)
{
    int count = hwloc_get_nbobjs_by_type(tree->topology, HWLOC_OBJ_NUMANODE);

    for (int i = 0; i < count; i++) {
        hwloc_obj_t found = object(tree, HWLOC_OBJ_NUMANODE, i);
        struct node_numa *numa;

        if (is_gpu_memory(found))
            continue;
        if (!(numa = node_grow(&node->numas, &node->numa_count, sizeof *numa)))
            return -1;
        numa->os_index = found->os_index;
        numa->package = package_of(tree, found);
        numa->memory = found->attr->numanode.local_memory;
        copy(&numa->cpus, found->cpuset);
    }
    return 0;
}

static int numa_of_cpus(const struct node *node, const struct cpus *cpus)
{
    for (size_t i = 0; i < node->numa_count; i++)
        if (cpus_intersect(&node->numas[i].cpus, cpus))
            return (int)i;
    return -1;
}

int node_read_cores(struct node *node, struct node_tree *tree)
{
    hwloc_obj_type_t type =
        hwloc_get_nbobjs_by_type(tree->topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    int count = hwloc_get_nbobjs_by_type(tree->topology, type);

    if (read_numas(node, tree) < 0)
        return -1;
    copy(&node->cpus, hwloc_topology_get_topology_cpuset(tree->topology));
    copy(&node->allowed, hwloc_topology_get_allowed_cpuset(tree->topology));
    for (int i = 0; i < count; i++) {
        struct node_core *core = node_grow(&node->cores, &node->core_count, sizeof *core);

        if (!core)
            return -1;
        copy(&core->cpus, object(tree, type, i)->cpuset);
        core->numa = numa_of_cpus(node, &core->cpus);
    }
    return 0;
}

/* The one NUMA node that a device hangs at; none where it hangs at a whole package or machine of several. */
static int numa_of_device(const struct node *node, struct node_tree *tree, hwloc_obj_t device)
{
    hwloc_obj_t holder = hwloc_get_non_io_ancestor_obj(tree->topology, device);
    struct cpus cpus = {0};
    int numa;

    copy(&cpus, holder->cpuset);
    numa = numa_of_cpus(node, &cpus);
    for (int cpu = cpus_next(&cpus, 0); numa >= 0 && cpu >= 0; cpu = cpus_next(&cpus, (unsigned)cpu + 1))
        if (!cpus_has(&node->numas[numa].cpus, (unsigned)cpu))
            return -1;
    return numa;
}

/* Class codes are of the PCI Code and ID Assignment Specification: 0300 VGA, 0302 3D, 0380 other display, 12xx
 * accelerator. */
static bool computes(const struct hwloc_pcidev_attr_s *pci)
{
    bool display = pci->class_id >> 8 == 0x03, accelerator = pci->class_id >> 8 == 0x12;

    if (pci->vendor_id == 0x10de)
        return display || accelerator;
    if (pci->vendor_id == 0x1002 || pci->vendor_id == 0x8086)
        return accelerator || pci->class_id == 0x0302 || pci->class_id == 0x0380;
    return false;
}

static int by_address(const void *a, const void *b)
{
    return strcmp(((const struct node_gpu *)a)->address, ((const struct node_gpu *)b)->address);
}

int node_read_gpus(struct node *node, struct node_tree *tree)
{
    hwloc_obj_t device = NULL;

    while ((device = hwloc_get_next_pcidev(tree->topology, device))) {
        const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;
        struct node_gpu *gpu;

        if (!computes(pci))
            continue;
        if (!(gpu = node_grow(&node->gpus, &node->gpu_count, sizeof *gpu)))
            return -1;
        snprintf(gpu->address, sizeof gpu->address, "%04x:%02x:%02x.%x", (unsigned)pci->domain & 0xffff, pci->bus,
                 pci->dev, (unsigned)pci->func & 7);
        gpu->vendor = pci->vendor_id;
        gpu->device = pci->device_id;
        gpu->numa = numa_of_device(node, tree, device);
    }
    if (node->gpu_count)
        qsort(node->gpus, node->gpu_count, sizeof *node->gpus, by_address);
    return 0;
}

static hwloc_obj_t find_device(struct node_tree *tree, const char *pci)
{
    return pci[0] ? hwloc_get_pcidev_by_busidstring(tree->topology, pci) : NULL;
}

int node_find_numa(const struct node *node, struct node_tree *tree, const char *pci)
{
    hwloc_obj_t device = find_device(tree, pci);

    if (node->numa_count == 1) /* a device that is on no PCI bus has a place, too */
        return 0;
    return device ? numa_of_device(node, tree, device) : -1;
}

/* Not hwloc_get_common_ancestor_obj, which compares depths, and those of bridges say nothing. */
static hwloc_obj_t common_ancestor(hwloc_obj_t a, hwloc_obj_t b)
{
    for (; a; a = a->parent)
        for (hwloc_obj_t above = b; above; above = above->parent)
            if (a == above)
                return a;
    return NULL;
}

enum node_path node_find_path(const struct node *node, struct node_tree *tree, size_t gpu, size_t nic)
{
    hwloc_obj_t a = find_device(tree, node->gpus[gpu].address), b = find_device(tree, node->nics[nic].pci), common;
    int near = node->gpus[gpu].numa, far = node->nics[nic].numa;

    if (a && b) {
        common = common_ancestor(a, b); /* the machine at least */
        if (common->type == HWLOC_OBJ_BRIDGE)
            return common->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI ? PATH_SWITCH : PATH_HOST;
        if (common->type == HWLOC_OBJ_PCI_DEVICE)
            return PATH_SWITCH;
    }
    if (near < 0 || far < 0)
        return PATH_SYSTEM;
    if (near == far)
        return PATH_NUMA;
    return node->numas[near].package == node->numas[far].package ? PATH_PACKAGE : PATH_SYSTEM;
}

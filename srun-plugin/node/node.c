#include "srun-plugin/node/node.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/text.h"
#include "srun-plugin/node/machine.h"
#include "srun-plugin/node/node_impl.h"
#include "srun-plugin/node/sysfs.h"

/* The default size of /dev/shm in a container. */
#define SHM_OF_CONTAINERS (UINT64_C(64) << 20)

void *node_grow(void *array_pointer, size_t *count, size_t size)
{
    void **array = array_pointer, *grown = reallocarray(*array, *count + 1, size);

    if (!grown)
        return NULL;
    *array = grown;
    return memset((char *)grown + (*count)++ * size, 0, size);
}

static void read_title(struct node *node, const char *root)
{
    char vendor[64] = "", product[64] = "";

    if (sysfs_line(root, product, sizeof product, "sys/class/dmi/id/product_name"))
        sysfs_line(root, vendor, sizeof vendor, "sys/class/dmi/id/sys_vendor");
    else
        sysfs_line(root, product, sizeof product, "sys/firmware/devicetree/base/model");
    if (strncmp(product, vendor, strlen(vendor)) == 0) /* "HPE" "HPE Cray EX235a" */
        vendor[0] = '\0';
    snprintf(node->title, sizeof node->title, "%s%s%s", vendor, vendor[0] ? " " : "", product);
}

static uint64_t read_kilobytes(const char *root, const char *key)
{
    char value[32];

    return sysfs_field(root, key, value, sizeof value, "proc/meminfo") ? strtoull(value, NULL, 10) << 10 : 0;
}

static void read_memory(struct node *node, const char *root)
{
    unsigned long long size, available;
    char *shm = sysfs_text(root, "shm");

    if (shm && sscanf(shm, "%llu %llu", &size, &available) == 2) {
        node->shm_size = size;
        node->shm_free = available;
        if (size <= SHM_OF_CONTAINERS)
            node_problem(node,
                         "/dev/shm holds %llu MiB: too little for NCCL and for staging checkpoints; give the "
                         "container more (--shm-size, --ipc=host)",
                         size >> 20);
    }
    free(shm);
    node->memory_total = read_kilobytes(root, "MemTotal:");
    node->memory_free = read_kilobytes(root, "MemAvailable:");
}

/* From proc/self/status; for this machine the kernel tells without a file. */
static bool find_allowed(struct cpus *allowed, const char *root)
{
    char list[1024];

    if (sysfs_is_live(root))
        return affinity_get(allowed) == 0;
    return sysfs_field(root, "Cpus_allowed_list:", list, sizeof list, "proc/self/status") &&
           cpus_parse(allowed, list, NULL) == 0;
}

/* The text of machine.h has the CPUs of the process that wrote it: slurmd may be bound to cores of its own. */
static void read_allowed(struct node *node, const char *root)
{
    struct cpus allowed;

    if (find_allowed(&allowed, root) && cpus_count(&allowed) > 0) {
        if (node->core_count)
            cpus_and(&allowed, &node->cpus);
        node->allowed = allowed;
    }
}

/* A bond is at the NUMA node of its ports, if they share one. */
static void place_bonds(struct node *node)
{
    for (size_t i = 0; i < node->nic_count; i++) {
        struct node_nic *bond = &node->nics[i];
        int numa = -1;

        for (size_t j = 0; j < node->nic_count; j++)
            if (bond->netdev[0] && strcmp(node->nics[j].bond, bond->netdev) == 0)
                numa = numa == -1 || numa == node->nics[j].numa ? node->nics[j].numa : -2;
        if (bond->numa < 0 && numa >= 0)
            bond->numa = numa;
    }
}

static int read_nics(struct node *node, const char *root, bool ethernet)
{
    if (node_read_rdma(node, root) < 0)
        return -1;
    if ((ethernet || node->gpu_count || node->nic_count) && node_read_netdevs(node, root) < 0)
        return -1;
    if (node->nic_count)
        node_read_addresses(node, root);
    for (size_t i = 0; i < node->nic_count; i++) {
        struct node_nic *nic = &node->nics[i];

        nic->gid_index = nic->kind == NIC_ROCE && nic->up ? node_gid_index(root, nic->hca) : -1;
        if (node->core_count)
            nic->numa = node_find_numa(node, nic->pci);
    }
    if (!node->core_count)
        return 0;
    place_bonds(node);
    node->paths = calloc(node->gpu_count * node->nic_count + 1, sizeof *node->paths);
    if (!node->paths)
        return -1;
    for (size_t i = 0; i < node->gpu_count; i++)
        for (size_t j = 0; j < node->nic_count; j++)
            node->paths[i * node->nic_count + j] = node_find_path(node, i, j);
    return 0;
}

static void check_numas(struct node *node)
{
    size_t lost = 0;

    for (size_t i = 0; i < node->gpu_count; i++)
        lost += node->gpus[i].numa < 0;
    if (lost)
        node_problem(node,
                     "the NUMA node of %zu of %zu GPUs is not known: the firmware or the hypervisor hides it, and "
                     "ranks cannot be bound beside them",
                     lost, node->gpu_count);
}

/* Reads the text that slurmd wrote, in a hundredth of the time that hwloc takes. False if there is none. */
static bool read_cached(struct node *node)
{
    char *text = slurmd_cache_read(MACHINE_CACHE_DIR, MACHINE_CACHE);
    bool read = text && node_read_text(node, text) == 0;

    free(text);
    return read;
}

/* True if hwloc can read this root; `beneath` is the XML, "" for the machine itself. */
static bool find_xml(struct node *node, const char *root, const char *xml, char *beneath)
{
    beneath[0] = '\0';
    if (xml)
        snprintf(beneath, PATH_MAX, "%s", xml);
    else if (sysfs_is_live(root))
        return true;
    else if (sysfs_exists(root, "machine.xml"))
        snprintf(beneath, PATH_MAX, "%s/machine.xml", root);
    else
        node_problem(node, "the snapshot has no machine.xml: cores, memory and GPUs are not known");
    return beneath[0];
}

/* Without hwloc, the node has a problem. */
static int read_machine(struct node *node, const char *root, const char *given, struct error *err)
{
    struct error why = {.code = CODE_OK};
    char xml[PATH_MAX], *text;
    int rc;

    if (!find_xml(node, root, given, xml))
        return 0;
    text = machine_read(xml[0] ? xml : NULL, &why);
    if (!text && why.code == CODE_INTERNAL) {
        node_problem(node, "%s", why.text);
        return 0;
    }
    if (!text)
        return error_set(err, why.code, "%s", why.text);
    rc = node_read_text(node, text);
    free(text);
    return rc < 0 ? error_set(err, CODE_DATA, "%s: not a machine with cores", xml[0] ? xml : root) : 0;
}

struct node *node_read_bare(const char *root, const char *xml, bool ethernet, struct error *err)
{
    struct node *node = NULL;
    bool cached;

    if (root && access(root, R_OK | X_OK) < 0) {
        error_errno(err, CODE_IO, "%s: not the directory of a snapshot", root);
        return NULL;
    }
    if (!(node = calloc(1, sizeof *node)))
        goto no_memory;
    cached = !xml && sysfs_is_live(root) && read_cached(node);
    if (!cached && read_machine(node, root, xml, err) < 0)
        goto fail;
    read_allowed(node, root);
    node_read_gpu_states(node, root);
    if (cached)
        node_check_gone(node);
    if (read_nics(node, root, ethernet) < 0)
        goto no_memory;
    check_numas(node);
    node_check_nics(node, root);
    return node;
no_memory:
    error_set(err, CODE_IO, "no memory to read the node");
fail:
    node_destroy(node);
    return NULL;
}

void node_describe(struct node *node, const char *root)
{
    read_title(node, root);
    read_memory(node, root);
    node_describe_netdevs(node, root);
}

struct node *node_read(const char *root, const char *xml, struct error *err)
{
    struct node *node = node_read_bare(root, xml, true, err);

    if (node)
        node_describe(node, root);
    return node;
}

void node_read_own(struct node *node, const char *root)
{
    read_allowed(node, root);
    node_read_hidden(node, root);
}

void node_clear(struct node *node)
{
    text_free_lines(node->problems, node->problem_count);
    free(node->numas);
    free(node->cores);
    free(node->gpus);
    free(node->nics);
    free(node->paths);
    free(node->objects);
    *node = (struct node){0};
}

void node_destroy(struct node *node)
{
    if (node)
        node_clear(node);
    free(node);
}

size_t node_usable_gpus(const struct node *node, size_t *indices)
{
    size_t count = 0;

    for (size_t i = 0; i < node->gpu_count; i++)
        if (node->gpus[i].state == GPU_USABLE) {
            if (indices)
                indices[count] = i;
            count++;
        }
    return count;
}

bool node_nic_usable(const struct node_nic *nic)
{
    if (nic->kind == NIC_VIRTUAL || !nic->up)
        return false;
    return nic->kind != NIC_ETHERNET || (nic->inet[0] && !nic->bond[0]);
}

enum nic_kind node_fabric(const struct node *node)
{
    enum nic_kind best = NIC_VIRTUAL;

    for (size_t i = 0; i < node->nic_count; i++)
        if (node_nic_usable(&node->nics[i]) && node->nics[i].kind < best)
            best = node->nics[i].kind;
    return best;
}

const char *nic_kind_name(enum nic_kind kind)
{
    static const char *const names[NIC_KINDS] = {"infiniband", "roce", "slingshot", "efa", "ethernet", "virtual"};

    return names[kind];
}

const char *node_path_name(enum node_path path)
{
    static const char *const names[] = {"switch", "host", "numa", "package", "system"};

    return names[path];
}

const char *gpu_state_name(enum gpu_state state)
{
    static const char *const names[] = {"ok", "no driver", "lost", "hidden"};

    return names[state];
}

const struct gpu_vendor *gpu_vendor_find(unsigned id)
{
    static const struct gpu_vendor vendors[] = {{GPU_NVIDIA, "nvidia", "CUDA_VISIBLE_DEVICES"},
                                                {0x1002, "amd", "ROCR_VISIBLE_DEVICES"},
                                                {0x8086, "intel", "ZE_AFFINITY_MASK"}};

    for (size_t i = 0; i < sizeof vendors / sizeof *vendors; i++)
        if (vendors[i].id == id)
            return &vendors[i];
    return NULL;
}

const char *node_nic_name(const struct node_nic *nic)
{
    return nic->hca[0] ? nic->hca : nic->netdev;
}

int node_numa_of_cpus(const struct node *node, const struct cpus *cpus)
{
    for (size_t i = 0; i < node->numa_count; i++)
        if (cpus_intersect(&node->numas[i].cpus, cpus))
            return (int)i;
    return -1;
}

enum node_path node_numa_path(const struct node *node, int from, int to)
{
    if (from < 0 || to < 0)
        return PATH_SYSTEM;
    if (from == to)
        return PATH_NUMA;
    return node->numas[from].package == node->numas[to].package ? PATH_PACKAGE : PATH_SYSTEM;
}

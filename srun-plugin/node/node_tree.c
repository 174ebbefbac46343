/*
 * Cores, memory, the tree of PCI devices and GPUs, read from the text of machine.h; and which GPUs a rank can use, from
 * sysfs and procfs.
 */
#include "srun-plugin/node/node_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/node/machine.h"
#include "srun-plugin/node/sysfs.h"

/* A bridge, whose address is "", or a device. */
struct pci_object {
    int above; /* index of the bridge above; -1 for none */
    bool is_host;
    int numa;
    unsigned class, vendor, device;
    char address[16];
};

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static int read_cpus(struct cpus *cpus, const char *list)
{
    *cpus = (struct cpus){0};
    if (strcmp(list, "-") == 0)
        return 0;
    return list[0] ? cpus_parse(cpus, list, NULL) : -1;
}

static int read_numa(struct node *node, const char *values)
{
    struct node_numa *numa = node_grow(&node->numas, &node->numa_count, sizeof *numa);
    int list = 0;

    if (!numa || sscanf(values, "%u %d %" SCNu64 " %n", &numa->os_index, &numa->package, &numa->memory, &list) < 3)
        return -1;
    return list ? read_cpus(&numa->cpus, values + list) : -1;
}

static int read_core(struct node *node, const char *list)
{
    struct node_core *core = node_grow(&node->cores, &node->core_count, sizeof *core);

    if (!core || read_cpus(&core->cpus, list) < 0)
        return -1;
    core->numa = node_numa_of_cpus(node, &core->cpus);
    return 0;
}

/* Appends an object. The one above it must have been read before. */
static struct pci_object *add_object(struct node *node)
{
    struct pci_object *object = node_grow(&node->objects, &node->object_count, sizeof *object);

    if (object)
        *object = (struct pci_object){.above = -1, .numa = -1};
    return object;
}

static bool is_above(const struct node *node, const struct pci_object *object)
{
    return object->above >= -1 && object->above < (int)node->object_count - 1;
}

static int read_bridge(struct node *node, const char *values)
{
    struct pci_object *object = add_object(node);
    char kind[8];

    if (!object || sscanf(values, "%d %7s", &object->above, kind) < 2 || !is_above(node, object))
        return -1;
    object->is_host = strcmp(kind, "host") == 0;
    return object->is_host || strcmp(kind, "pci") == 0 ? 0 : -1;
}

/*
 * True for GPUs that compute. Class codes are from the PCI Code and ID Assignment Specification: 0300 VGA, 0302 3D,
 * 0380 other display, 12xx accelerator.
 */
static bool is_compute(const struct pci_object *pci)
{
    bool display = pci->class >> 8 == 0x03, accelerator = pci->class >> 8 == 0x12;

    if (pci->vendor == GPU_NVIDIA)
        return display || accelerator;
    return gpu_vendor_find(pci->vendor) && (accelerator || pci->class == 0x0302 || pci->class == 0x0380);
}

static int add_gpu(struct node *node, const struct pci_object *object)
{
    struct node_gpu *gpu = node_grow(&node->gpus, &node->gpu_count, sizeof *gpu);

    if (!gpu)
        return -1;
    snprintf(gpu->address, sizeof gpu->address, "%s", object->address);
    gpu->vendor = (uint16_t)object->vendor;
    gpu->device = (uint16_t)object->device;
    gpu->numa = object->numa;
    return 0;
}

static int read_device(struct node *node, const char *values)
{
    struct pci_object *object = add_object(node);

    if (!object ||
        sscanf(values, "%d %d %x %x:%x %15s", &object->above, &object->numa, &object->class, &object->vendor,
               &object->device, object->address) < 6 ||
        !is_above(node, object) || object->numa < -1 || object->numa >= (int)node->numa_count)
        return -1;
    return is_compute(object) ? add_gpu(node, object) : 0;
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static int read_line(struct node *node, const char *line)
{
    const char *space = strchr(line, ' '), *values = space ? space + 1 : "";
    size_t length = space ? (size_t)(space - line) : strlen(line);

#define IS(word) (length == sizeof word - 1 && memcmp(line, word, length) == 0)
    if (IS("core"))
        return read_core(node, values);
    if (IS("device"))
        return read_device(node, values);
    if (IS("bridge"))
        return read_bridge(node, values);
    if (IS("numa"))
        return read_numa(node, values);
    if (IS("cpus"))
        return read_cpus(&node->cpus, values);
    if (IS("allowed"))
        return read_cpus(&node->allowed, values);
    return -1;
#undef IS
}

static int read_lines(struct node *node, char *text)
{
    char *line = strsep(&text, "\n");

    if (strcmp(line, MACHINE_FORM) != 0)
        return -1;
    while ((line = strsep(&text, "\n")) && strcmp(line, "end") != 0)
        if (read_line(node, line) < 0)
            return -1;
    return line && node->core_count ? 0 : -1;
}

static int by_address(const void *a, const void *b)
{
    return strcmp(((const struct node_gpu *)a)->address, ((const struct node_gpu *)b)->address);
}

int node_read_text(struct node *node, char *text)
{
    if (read_lines(node, text) < 0) {
        node_clear(node);
        return -1;
    }
    if (node->gpu_count)
        qsort(node->gpus, node->gpu_count, sizeof *node->gpus, by_address);
    return 0;
}

/* ---- paths between objects --------------------------------------------------------------------------------------- */

static int find_device(const struct node *node, const char *address)
{
    for (size_t i = 0; address[0] && i < node->object_count; i++)
        if (strcmp(node->objects[i].address, address) == 0)
            return (int)i;
    return -1;
}

int node_find_numa(const struct node *node, const char *pci)
{
    int object;

    if (node->numa_count == 1) /* also for devices that are on no PCI bus */
        return 0;
    object = find_device(node, pci);
    return object < 0 ? -1 : node->objects[object].numa;
}

/* The lowest bridge above both; -1 if they share none. */
static int common_bridge(const struct node *node, int a, int b)
{
    for (; a >= 0; a = node->objects[a].above)
        for (int above = b; above >= 0; above = node->objects[above].above)
            if (a == above)
                return a;
    return -1;
}

enum node_path node_find_path(const struct node *node, size_t gpu, size_t nic)
{
    int bridge =
        common_bridge(node, find_device(node, node->gpus[gpu].address), find_device(node, node->nics[nic].pci));

    if (bridge >= 0)
        return node->objects[bridge].is_host ? PATH_HOST : PATH_SWITCH;
    return node_numa_path(node, node->gpus[gpu].numa, node->nics[nic].numa);
}

/* ---- states of GPUs ---------------------------------------------------------------------------------------------- */

static bool is_nvidia(const struct node_gpu *gpu)
{
    return gpu->vendor == GPU_NVIDIA;
}

static bool is_compute_driver(const char *driver)
{
    static const char *const drivers[] = {"nvidia", "amdgpu", "i915", "xe"};

    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++)
        if (strcmp(driver, drivers[i]) == 0)
            return true;
    return false;
}

static void read_nvidia(struct node_gpu *gpu, const char *root)
{
    static const char path[] = "proc/driver/nvidia/gpus/%s/information";
    char minor[16];

    sysfs_field(root, "Model:", gpu->model, sizeof gpu->model, path, gpu->address);
    if (sysfs_field(root, "Device Minor:", minor, sizeof minor, path, gpu->address))
        gpu->minor = atoi(minor);
}

static void read_render_minor(struct node_gpu *gpu, const char *root)
{
    char **names = sysfs_list(root, "sys/bus/pci/devices/%s/drm", gpu->address);

    for (char **name = names; name && *name; name++)
        if (sscanf(*name, "renderD%d", &gpu->minor) == 1)
            break;
    sysfs_list_free(names);
}

/* Reads the list of device files, "PATH ok" or "PATH denied". A device that is not on the list cannot be opened. */
static bool may_open(const char *devices, const struct node_gpu *gpu)
{
    char entry[48];
    const char *line;

    if (!devices || gpu->minor < 0)
        return true;
    snprintf(entry, sizeof entry, is_nvidia(gpu) ? "/dev/nvidia%d ok" : "/dev/dri/renderD%d ok", gpu->minor);
    line = strstr(devices, entry);
    return line && (line == devices || line[-1] == '\n');
}

static void judge_gpu(struct node *node, struct node_gpu *gpu, const char *root, const char *devices)
{
    char uevent[8];
    bool seen = sysfs_field(root, "PCI_ID=", uevent, sizeof uevent, "sys/bus/pci/devices/%s/uevent", gpu->address);

    if (seen && !is_compute_driver(gpu->driver)) {
        gpu->state = GPU_NO_DRIVER;
        node_problem(node, "GPU %s: %s%s; it cannot be used until %s is bound to it", gpu->address,
                     gpu->driver[0] ? "bound to the driver " : "not bound to a driver", gpu->driver,
                     is_nvidia(gpu) ? "the nvidia driver" : "the driver of its vendor");
    } else if (is_nvidia(gpu) && sysfs_exists(root, "proc/driver/nvidia/gpus") &&
               !sysfs_exists(root, "proc/driver/nvidia/gpus/%s", gpu->address)) {
        gpu->state = GPU_LOST;
        node_problem(
            node,
            "GPU %s: the nvidia driver is bound to it but does not list it: it fell off the bus (dmesg shows Xid "
            "79), failed to start, or a container hides it",
            gpu->address);
    } else if (!may_open(devices, gpu)) {
        gpu->state = GPU_HIDDEN;
    }
}

void node_check_gone(struct node *node)
{
    for (size_t i = 0; i < node->gpu_count; i++) {
        struct node_gpu *gpu = &node->gpus[i];

        if (sysfs_exists("/", "sys/bus/pci/devices/%s", gpu->address))
            continue;
        gpu->state = GPU_LOST;
        node_problem(node, "GPU %s: it was on the PCI bus when slurmd started, and is no longer there", gpu->address);
    }
}

static void report_hidden(struct node *node)
{
    size_t hidden = 0;

    for (size_t i = 0; i < node->gpu_count; i++)
        hidden += node->gpus[i].state == GPU_HIDDEN;
    if (hidden)
        node_problem(
            node,
            "%zu of %zu GPUs cannot be opened by this process. If its cgroup hides them, the job did not request "
            "them, or --gpus-per-task or --gpu-bind gives each rank only its own; --gpus-per-node with "
            "--gpu-bind=none shows all of the job's GPUs to every rank",
            hidden, node->gpu_count);
}

void node_read_gpu_states(struct node *node, const char *root)
{
    char *devices = node->gpu_count ? sysfs_text(root, "devices") : NULL;

    for (size_t i = 0; i < node->gpu_count; i++) {
        struct node_gpu *gpu = &node->gpus[i];

        gpu->minor = -1;
        sysfs_field(root, "DRIVER=", gpu->driver, sizeof gpu->driver, "sys/bus/pci/devices/%s/uevent", gpu->address);
        if (is_nvidia(gpu))
            read_nvidia(gpu, root);
        else
            read_render_minor(gpu, root);
        if (!gpu->model[0])
            snprintf(gpu->model, sizeof gpu->model, "%04x:%04x", gpu->vendor, gpu->device);
        judge_gpu(node, gpu, root, devices);
    }
    report_hidden(node);
    free(devices);
}

void node_read_hidden(struct node *node, const char *root)
{
    char *devices = node->gpu_count ? sysfs_text(root, "devices") : NULL;

    for (size_t i = 0; i < node->gpu_count; i++) {
        struct node_gpu *gpu = &node->gpus[i];

        if (gpu->state == GPU_USABLE || gpu->state == GPU_HIDDEN)
            gpu->state = may_open(devices, gpu) ? GPU_USABLE : GPU_HIDDEN;
    }
    free(devices);
}

/* Which GPUs of the PCI bus a rank can use: driver, model and device file, from sysfs and procfs. */
#include "srun-plugin/node/node_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/node/sysfs.h"

static bool is_nvidia(const struct node_gpu *gpu)
{
    return gpu->vendor == 0x10de;
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

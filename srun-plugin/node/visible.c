#include "srun-plugin/node/visible.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_SIZE 4096

/* "GPU-0b1c...", "MIG-GPU-...". Slurm's "NoDevFiles" is not a name: it means no GPUs. */
static bool names_by_uuid(const char *value)
{
    while (isspace((unsigned char)*value))
        value++;
    return isalpha((unsigned char)*value) && strncmp(value, "NoDevFiles", strlen("NoDevFiles")) != 0;
}

static size_t pick_gpus(const char *value, const size_t *usable, size_t usable_count, size_t indices[VISIBLE_MOST])
{
    size_t count = 0;

    while (count < VISIBLE_MOST) {
        char *end;
        long index = strtol(value, &end, 10);

        if (end == value || index < 0 || (size_t)index >= usable_count)
            break;
        indices[count++] = usable[index];
        end += strcspn(end, ",");
        if (!*end)
            break;
        value = end + 1;
    }
    return count;
}

size_t visible_gpus(const struct node *node, env_lookup *environment, void *environment_arg,
                    size_t indices[VISIBLE_MOST])
{
    size_t usable[VISIBLE_MOST], count = 0;
    char value[VALUE_SIZE];
    const struct gpu_vendor *vendor;

    for (size_t i = 0; i < node->gpu_count && count < VISIBLE_MOST; i++)
        if (node->gpus[i].state == GPU_USABLE)
            usable[count++] = i;
    vendor = count ? gpu_vendor_find(node->gpus[usable[0]].vendor) : NULL;
    if (vendor && environment(vendor->visible, value, sizeof value, environment_arg) && !names_by_uuid(value))
        return pick_gpus(value, usable, count, indices);
    memcpy(indices, usable, count * sizeof *indices);
    return count;
}

/* ---- neighbours' GPUs -------------------------------------------------------------------------------------------- */

/* The number of devices in a value of CUDA_VISIBLE_DEVICES, which ends at the first -1, as in CUDA. */
static int count_visible(const char *visible)
{
    int count = 0;

    while (*visible && *visible != '-' && strncmp(visible, "NoDevFiles", strlen("NoDevFiles")) != 0) {
        size_t length = strcspn(visible, ",");

        count += length > 0;
        visible += length + (visible[length] == ',');
    }
    return count;
}

/* The option of srun that hides GPUs, as the user wrote it; false if Slurm reports none. */
static bool find_cause(env_lookup *environment, void *arg, char *text, size_t size)
{
    char value[512];

    if ((environment("SLURM_GPU_BIND", value, sizeof value, arg) ||
         environment("SLURM_TRES_BIND", value, sizeof value, arg)) &&
        !strstr(value, "none"))
        snprintf(text, size, "--gpu-bind=%.128s", strncmp(value, "gres/gpu:", 9) == 0 ? value + 9 : value);
    else if (environment("SLURM_GPUS_PER_TASK", value, sizeof value, arg))
        snprintf(text, size, "--gpus-per-task=%.128s", value);
    else if (environment("SLURM_TRES_PER_TASK", value, sizeof value, arg) && strstr(value, "gres/gpu"))
        snprintf(text, size, "--tres-per-task=%.128s", value);
    else
        return false;
    return true;
}

void isolation_judge(const struct node *node, unsigned rank, unsigned local_ranks, env_lookup *environment, void *arg,
                     char line[ISOLATION_LINE_SIZE])
{
    int openable = (int)node_usable_gpus(node, NULL), seen = openable, given;
    char value[VALUE_SIZE], flag[160], advice[160];
    bool flagged = find_cause(environment, arg, flag, sizeof flag), closed;

    given = environment("SLURM_GPUS_ON_NODE", value, sizeof value, arg) ? atoi(value) : -1;
    closed = openable < given; /* it cannot open all device files */
    if ((environment("CUDA_VISIBLE_DEVICES", value, sizeof value, arg) ||
         environment("ROCR_VISIBLE_DEVICES", value, sizeof value, arg)) &&
        count_visible(value) < openable)
        seen = count_visible(value);
    line[0] = '\0';
    if (local_ranks < 2 || given < 2 || seen >= given)
        return;
    if (seen == 0 && !flagged)
        return; /* a step that uses no GPUs on purpose */
    if (flagged || closed)
        snprintf(advice, sizeof advice, "give srun --gpus-per-node=%d --gpu-bind=none instead", given);
    else /* the variable alone hides the GPUs */
        strcpy(advice, "leave CUDA_VISIBLE_DEVICES unset and let each rank choose its GPU by LOCAL_RANK");
    snprintf(
        line, ISOLATION_LINE_SIZE,
        "rank %u sees %d of the node's %d GPUs, because of %s: NCCL cannot use NVLink to its neighbours and silently "
        "falls back to slower transports; %s",
        rank, seen, given,
        flagged  ? flag
        : closed ? "its cgroup"
                 : "its CUDA_VISIBLE_DEVICES",
        advice);
}

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

/* The number of devices in a value of CUDA_VISIBLE_DEVICES, which ends at the first -1, as in CUDA. -1 for NULL. */
static int count_visible(const char *visible)
{
    int count = 0;

    if (!visible)
        return -1;
    while (*visible && *visible != '-' && strncmp(visible, "NoDevFiles", strlen("NoDevFiles")) != 0) {
        size_t length = strcspn(visible, ",");

        count += length > 0;
        visible += length + (visible[length] == ',');
    }
    return count;
}

/* The option of srun that hides GPUs, as the user wrote it; NULL if Slurm reports none. */
static const char *find_cause(const struct isolation *i, char *text, size_t size)
{
    bool bound = i->gpu_bind && !strstr(i->gpu_bind, "none");

    if (i->gpus_per_task && !bound)
        snprintf(text, size, "--gpus-per-task=%s", i->gpus_per_task);
    else if (i->tres_per_task && strstr(i->tres_per_task, "gres/gpu") && !bound)
        snprintf(text, size, "--tres-per-task=%s", i->tres_per_task);
    else if (bound)
        snprintf(text, size, "--gpu-bind=%s",
                 strncmp(i->gpu_bind, "gres/gpu:", 9) == 0 ? i->gpu_bind + 9 : i->gpu_bind);
    else
        return NULL;
    return text;
}

void isolation_judge(const struct isolation *i, char line[ISOLATION_LINE_SIZE])
{
    int named = count_visible(i->visible);
    int seen = named >= 0 && (i->openable < 0 || named < i->openable) ? named : i->openable;
    bool closed = i->openable >= 0 && i->openable < i->node_gpus; /* it cannot open all device files */
    char flag_text[160], advice[160];
    const char *flag = find_cause(i, flag_text, sizeof flag_text);

    line[0] = '\0';
    if (i->local_ranks < 2 || i->node_gpus < 2 || seen < 0 || seen >= i->node_gpus)
        return;
    if (seen == 0 && !flag)
        return; /* a step that uses no GPUs on purpose */
    if (flag || closed)
        snprintf(advice, sizeof advice, "give srun --gpus-per-node=%d --gpu-bind=none instead", i->node_gpus);
    else /* the variable alone hides the GPUs */
        strcpy(advice, "leave CUDA_VISIBLE_DEVICES unset and let each rank choose its GPU by LOCAL_RANK");
    snprintf(
        line, ISOLATION_LINE_SIZE,
        "rank %u sees %d of the node's %d GPUs, because of %s: NCCL cannot use NVLink to its neighbours and silently "
        "falls back to slower transports; %s",
        i->rank, seen, i->node_gpus,
        flag     ? flag
        : closed ? "its cgroup"
                 : "its CUDA_VISIBLE_DEVICES",
        advice);
}

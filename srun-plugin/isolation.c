#include "srun-plugin/isolation.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int isolation_count(const char *visible)
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

/* srun's flag that hides GPUs, as the user will have written it; NULL where Slurm tells of none. */
static const char *cause(const struct isolation *i, char *text, size_t size)
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

/* What mends it: Slurm's flag, unless it is the variable alone, which then somebody else has set. */
static void mend(const struct isolation *i, enum isolation_state state, const char *flag, char *text, size_t size)
{
    if (flag || state == ISOLATION_HIDDEN)
        snprintf(text, size, "give srun --gpus-per-node=%d --gpu-bind=none instead", i->node_gpus);
    else
        snprintf(text, size, "leave CUDA_VISIBLE_DEVICES alone and let each rank choose by LOCAL_RANK");
}

enum isolation_state isolation_judge(const struct isolation *i, char line[ISOLATION_LINE_SIZE])
{
    int named = isolation_count(i->visible);
    int seen = named >= 0 && (i->openable < 0 || named < i->openable) ? named : i->openable;
    enum isolation_state state = i->openable >= 0 && i->openable < i->node_gpus ? ISOLATION_HIDDEN : ISOLATION_MASKED;
    char flag_text[160], advice[160];
    const char *flag = cause(i, flag_text, sizeof flag_text);

    line[0] = '\0';
    if (i->local_ranks < 2 || i->node_gpus < 2 || seen < 0 || seen >= i->node_gpus)
        return ISOLATION_NONE;
    if (seen == 0 && !flag)
        return ISOLATION_NONE; /* a step that uses none on purpose */
    mend(i, state, flag, advice, sizeof advice);
    snprintf(
        line, ISOLATION_LINE_SIZE,
        "rank %u sees %d of the node's %d GPUs, because of %s: NCCL cannot reach its neighbours by NVLink and falls "
        "back to slower ways without a word; %s",
        i->rank, seen, i->node_gpus,
        flag                        ? flag
        : state == ISOLATION_HIDDEN ? "its cgroup"
                                    : "its CUDA_VISIBLE_DEVICES",
        advice);
    return state;
}

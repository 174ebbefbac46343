#include "srun-plugin/bind.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/bind_impl.h"

void bind_note(struct bind_plan *plan, const char *format, ...)
{
    char **grown, *line;
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vasprintf(&line, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    if (!(grown = reallocarray(plan->notes, plan->note_count + 1, sizeof *grown))) {
        free(line);
        return;
    }
    plan->notes = grown;
    plan->notes[plan->note_count++] = line;
}

static int choose_gpus(const struct node *node, const struct bind_request *request, struct bind_plan *plan)
{
    size_t *usable = calloc(node->gpu_count + 1, sizeof *usable), count;
    const size_t *gpus = request->gpus ? request->gpus : usable;

    if (!usable)
        return -1;
    count = request->gpus ? request->gpu_count : node_usable_gpus(node, usable);
    plan->gpu_count = count;
    for (size_t i = 0; i < plan->count; i++)
        plan->ranks[i].gpu = count ? (int)gpus[i % count] : -1;
    if (count && plan->count > count)
        bind_note(plan, "%zu ranks share %zu GPUs; NCCL refuses two ranks of one group on one GPU", plan->count, count);
    else if (plan->count == 1 && count > 1)
        bind_note(plan, "1 rank has %zu GPUs, and all cores, for the processes that it starts", count);
    else if (plan->count < count)
        bind_note(plan, "%zu of %zu GPUs have no rank", count - plan->count, count);
    free(usable);
    return 0;
}

/* Whether the user's cores are where the GPU is; what they are, stands. */
static void report_given(const struct node *node, const struct bind_request *request, struct bind_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        struct bind_rank *rank = &plan->ranks[i];
        int numa = rank->gpu >= 0 ? node->gpus[rank->gpu].numa : -1;
        char list[64];

        rank->cpus = request->given[i];
        if (numa >= 0 && node->numa_count > 1 && !cpus_intersect(&rank->cpus, &node->numas[numa].cpus))
            bind_note(plan, "rank %zu runs on CPUs %s, as Slurm was told, but its GPU %s is at NUMA node %u", i,
                      cpus_format(&rank->cpus, list, sizeof list), node->gpus[rank->gpu].address,
                      node->numas[numa].os_index);
    }
}

/* Cores rather than hardware threads: two threads of one core compute no faster than one. */
static void count_threads(const struct node *node, const struct bind_plan *plan, struct bind_rank *rank)
{
    unsigned cores = 0;

    for (size_t i = 0; i < node->core_count; i++) {
        const struct node_core *core = &node->cores[i];

        if (!cpus_intersect(&core->cpus, &rank->cpus))
            continue;
        cores++;
        if (core->numa >= 0)
            cpus_add(&rank->mems, node->numas[core->numa].os_index);
    }
    if (!cores)
        cores = plan->by_user ? cpus_count(&rank->cpus) : cpus_count(&node->allowed) / (unsigned)plan->count;
    if (plan->count == 1 && plan->gpu_count > 1)
        cores /= (unsigned)plan->gpu_count;
    rank->threads = cores ? cores : 1;
}

struct bind_plan *bind_plan_create(const struct node *node, const struct bind_request *request, struct error *err)
{
    struct bind_plan *plan;

    if (request->local_ranks == 0) {
        error_set(err, CODE_USAGE, "no ranks to bind; at least 1");
        return NULL;
    }
    if (!(plan = calloc(1, sizeof *plan)))
        goto fail;
    plan->count = request->local_ranks;
    plan->by_user = request->given != NULL;
    if (!(plan->ranks = calloc(plan->count, sizeof *plan->ranks)) || choose_gpus(node, request, plan) < 0)
        goto fail;
    if (plan->by_user)
        report_given(node, request, plan);
    else if (bind_cores(node, plan) < 0)
        goto fail;
    for (size_t i = 0; i < plan->count; i++)
        count_threads(node, plan, &plan->ranks[i]);
    if (bind_nics(node, plan) < 0)
        goto fail;
    return plan;
fail:
    error_set(err, CODE_IO, "no memory to bind %u ranks", request->local_ranks);
    bind_plan_destroy(plan);
    return NULL;
}

void bind_plan_destroy(struct bind_plan *plan)
{
    if (!plan)
        return;
    for (size_t i = 0; plan->ranks && i < plan->count; i++)
        free(plan->ranks[i].nics);
    for (size_t i = 0; i < plan->note_count; i++)
        free(plan->notes[i]);
    free(plan->notes);
    free(plan->ranks);
    free(plan);
}

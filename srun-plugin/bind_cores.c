/* Who gets which cores. */
#include <stdlib.h>

#include "srun-plugin/bind_impl.h"

/* Cores to share and ranks that share them, by index; `taken` says which cores somebody has. */
struct sharing {
    const struct node *node;
    struct bind_plan *plan;
    size_t *cores, core_count;
    size_t *ranks, rank_count;
    bool *taken, *seated;
};

static void give(struct sharing *sharing, struct bind_rank *rank, size_t core)
{
    struct cpus cpus = sharing->node->cores[core].cpus;

    cpus_and(&cpus, &sharing->node->allowed);
    cpus_or(&rank->cpus, &cpus);
    sharing->taken[core] = true;
}

/* Contiguous runs whose lengths differ by at most one; with fewer cores than ranks, one core each, used by several. */
static void share(struct sharing *sharing)
{
    size_t cores = sharing->core_count, ranks = sharing->rank_count;

    for (size_t i = 0; i < ranks && cores; i++) {
        struct bind_rank *rank = &sharing->plan->ranks[sharing->ranks[i]];
        size_t first = i * cores / ranks, last = (i + 1) * cores / ranks;

        rank->shares_cores = cores < ranks;
        for (size_t j = first; j < last || j == first; j++)
            give(sharing, rank, sharing->cores[j]);
        sharing->seated[sharing->ranks[i]] = true;
    }
}

static bool may_use(const struct node *node, size_t core)
{
    return cpus_intersect(&node->cores[core].cpus, &node->allowed);
}

/* The cores of a NUMA node, of all with -1. */
static void take_cores(struct sharing *sharing, int numa, bool free_only)
{
    sharing->core_count = 0;
    for (size_t i = 0; i < sharing->node->core_count; i++)
        if (may_use(sharing->node, i) && (numa < 0 || sharing->node->cores[i].numa == numa) &&
            !(free_only && sharing->taken[i]))
            sharing->cores[sharing->core_count++] = i;
}

static int numa_of_rank(const struct sharing *sharing, size_t rank)
{
    int gpu = sharing->plan->ranks[rank].gpu;

    return gpu >= 0 ? sharing->node->gpus[gpu].numa : -1;
}

static void share_beside_gpus(struct sharing *sharing)
{
    for (size_t numa = 0; numa < sharing->node->numa_count; numa++) {
        take_cores(sharing, (int)numa, false);
        sharing->rank_count = 0;
        for (size_t i = 0; i < sharing->plan->count; i++)
            if (numa_of_rank(sharing, i) == (int)numa)
                sharing->ranks[sharing->rank_count++] = i;
        share(sharing);
    }
}

/* Ranks whose GPU has no core beside it, or does not say where it is. */
static void share_rest(struct sharing *sharing)
{
    sharing->rank_count = 0;
    for (size_t i = 0; i < sharing->plan->count; i++)
        if (!sharing->seated[i])
            sharing->ranks[sharing->rank_count++] = i;
    if (sharing->rank_count == 0)
        return;
    for (size_t i = 0; i < sharing->rank_count; i++) {
        int numa = numa_of_rank(sharing, sharing->ranks[i]);

        if (numa >= 0)
            bind_note(sharing->plan,
                      "rank %zu: Slurm gave no core of NUMA node %u, which its GPU is at; it gets others",
                      sharing->ranks[i], sharing->node->numas[numa].os_index);
    }
    take_cores(sharing, -1, true);
    if (sharing->core_count < sharing->rank_count)
        take_cores(sharing, -1, false);
    share(sharing);
}

/*
 * NUMA nodes with usable cores, if they go evenly into the ranks or the ranks into them. Else 0: where Slurm gave much
 * of one and little of another, equal runs across the border are fairer.
 */
static size_t even_domains(struct sharing *sharing)
{
    size_t domains = 0, least = SIZE_MAX, most = 0, ranks = sharing->plan->count;

    for (size_t numa = 0; numa < sharing->node->numa_count; numa++) {
        take_cores(sharing, (int)numa, false);
        if (!sharing->core_count)
            continue;
        domains++;
        least = sharing->core_count < least ? sharing->core_count : least;
        most = sharing->core_count > most ? sharing->core_count : most;
    }
    return domains && most <= 2 * least && (ranks % domains == 0 || domains % ranks == 0) ? domains : 0;
}

/* With more domains than ranks a rank gets several, whole; with more ranks, several share one. */
static void share_by_domain(struct sharing *sharing, size_t domains)
{
    size_t ranks = sharing->plan->count, each = ranks > domains ? ranks / domains : 1;
    size_t together = domains > ranks ? domains / ranks : 1, seen = 0;

    for (size_t numa = 0; numa < sharing->node->numa_count; numa++) {
        take_cores(sharing, (int)numa, false);
        if (!sharing->core_count)
            continue;
        sharing->rank_count = each;
        for (size_t i = 0; i < each; i++)
            sharing->ranks[i] = seen / together * each + i;
        share(sharing);
        seen++;
    }
}

static void share_without_gpus(struct sharing *sharing)
{
    size_t domains = even_domains(sharing);

    if (domains)
        share_by_domain(sharing, domains);
    else
        share_rest(sharing);
}

static bool any_gpu_has_a_place(const struct sharing *sharing)
{
    for (size_t i = 0; i < sharing->plan->count; i++)
        if (numa_of_rank(sharing, i) >= 0)
            return true;
    return false;
}

static void tell_sharing(const struct sharing *sharing)
{
    size_t crowded = 0;

    for (size_t i = 0; i < sharing->plan->count; i++)
        crowded += sharing->plan->ranks[i].shares_cores;
    if (crowded)
        bind_note(sharing->plan,
                  "%zu of %zu ranks share a core with another: Slurm gave fewer cores than ranks "
                  "(--cpus-per-task)",
                  crowded, sharing->plan->count);
}

int bind_cores(const struct node *node, struct bind_plan *plan)
{
    struct sharing sharing = {.node = node, .plan = plan};
    int status = -1;

    sharing.cores = calloc(node->core_count + 1, sizeof *sharing.cores);
    sharing.ranks = calloc(plan->count, sizeof *sharing.ranks);
    sharing.taken = calloc(node->core_count + 1, sizeof *sharing.taken);
    sharing.seated = calloc(plan->count, sizeof *sharing.seated);
    if (sharing.cores && sharing.ranks && sharing.taken && sharing.seated) {
        bool is_launcher = plan->count == 1 && plan->gpu_count > 1;

        if (!is_launcher && any_gpu_has_a_place(&sharing)) {
            share_beside_gpus(&sharing);
            share_rest(&sharing);
        } else {
            share_without_gpus(&sharing);
        }
        tell_sharing(&sharing);
        status = 0;
    }
    free(sharing.cores);
    free(sharing.ranks);
    free(sharing.taken);
    free(sharing.seated);
    return status;
}

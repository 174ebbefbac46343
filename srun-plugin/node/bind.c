/* GPUs first, then cores beside them, then threads and NICs. */
#include "srun-plugin/node/bind.h"

#include <stdlib.h>
#include <string.h>

#include "common/text.h"

/* Adds a line to notes, as printf writes it; lost when out of memory. */
#define add_note(binding, ...) text_add_line(&(binding)->notes, &(binding)->note_count, __VA_ARGS__)

static int choose_gpus(const struct node *node, const struct bind_request *request, struct binding *binding)
{
    size_t *usable = calloc(node->gpu_count + 1, sizeof *usable), count;
    const size_t *gpus = request->gpus ? request->gpus : usable;

    if (!usable)
        return -1;
    count = request->gpus ? request->gpu_count : node_usable_gpus(node, usable);
    binding->gpu_count = count;
    for (size_t i = 0; i < binding->count; i++)
        binding->ranks[i].gpu = count ? (int)gpus[i % count] : -1;
    if (count && binding->count > count)
        add_note(binding, "%zu ranks share %zu GPUs; NCCL refuses two ranks of one group on one GPU", binding->count,
                 count);
    else if (binding->count == 1 && count > 1)
        add_note(binding, "1 rank has %zu GPUs, and all cores, for the processes that it starts", count);
    else if (binding->count < count)
        add_note(binding, "%zu of %zu GPUs have no rank", count - binding->count, count);
    free(usable);
    return 0;
}

/* ---- cores ------------------------------------------------------------------------------------------------------- */

/* Cores and the ranks that share them, by index. */
struct sharing {
    const struct node *node;
    struct binding *binding;
    size_t *cores, core_count;
    size_t *ranks, rank_count;
    struct cpus taken; /* by ranks */
};

static void give_core(struct sharing *sharing, struct bind_rank *rank, size_t core)
{
    struct cpus cpus = sharing->node->cores[core].cpus;

    cpus_and(&cpus, &sharing->node->allowed);
    cpus_or(&rank->cpus, &cpus);
    cpus_or(&sharing->taken, &cpus);
}

/* Contiguous runs whose lengths differ by at most one; with fewer cores than ranks, one core each, used by several. */
static void share_cores(struct sharing *sharing)
{
    size_t cores = sharing->core_count, ranks = sharing->rank_count;

    for (size_t i = 0; i < ranks && cores; i++) {
        struct bind_rank *rank = &sharing->binding->ranks[sharing->ranks[i]];
        size_t first = i * cores / ranks, last = (i + 1) * cores / ranks;

        rank->shares_cores = cores < ranks;
        for (size_t j = first; j < last || j == first; j++)
            give_core(sharing, rank, sharing->cores[j]);
    }
}

/* Selects the usable cores of a NUMA node, of all with -1. */
static void select_cores(struct sharing *sharing, int numa, bool free_only)
{
    sharing->core_count = 0;
    for (size_t i = 0; i < sharing->node->core_count; i++) {
        const struct node_core *core = &sharing->node->cores[i];

        if (cpus_intersect(&core->cpus, &sharing->node->allowed) && (numa < 0 || core->numa == numa) &&
            !(free_only && cpus_intersect(&core->cpus, &sharing->taken)))
            sharing->cores[sharing->core_count++] = i;
    }
}

static int numa_of_rank(const struct sharing *sharing, size_t rank)
{
    int gpu = sharing->binding->ranks[rank].gpu;

    return gpu >= 0 ? sharing->node->gpus[gpu].numa : -1;
}

static void share_beside_gpus(struct sharing *sharing)
{
    for (size_t numa = 0; numa < sharing->node->numa_count; numa++) {
        select_cores(sharing, (int)numa, false);
        sharing->rank_count = 0;
        for (size_t i = 0; i < sharing->binding->count; i++)
            if (numa_of_rank(sharing, i) == (int)numa)
                sharing->ranks[sharing->rank_count++] = i;
        share_cores(sharing);
    }
}

/* Ranks whose GPU has no usable core at its NUMA node, or whose place is not known. */
static void share_rest(struct sharing *sharing)
{
    sharing->rank_count = 0;
    for (size_t i = 0; i < sharing->binding->count; i++)
        if (cpus_next(&sharing->binding->ranks[i].cpus, 0) < 0)
            sharing->ranks[sharing->rank_count++] = i;
    if (sharing->rank_count == 0)
        return;
    for (size_t i = 0; i < sharing->rank_count; i++) {
        int numa = numa_of_rank(sharing, sharing->ranks[i]);

        if (numa >= 0)
            add_note(sharing->binding, "rank %zu: Slurm gave no core of NUMA node %u, where its GPU is; it gets others",
                     sharing->ranks[i], sharing->node->numas[numa].os_index);
    }
    select_cores(sharing, -1, true);
    if (sharing->core_count < sharing->rank_count)
        select_cores(sharing, -1, false);
    share_cores(sharing);
}

/*
 * The number of NUMA nodes with usable cores, if it divides the number of ranks or the ranks divide it. Else 0: where
 * Slurm gave many cores of one and few of another, equal runs across the border are fairer.
 */
static size_t even_domains(struct sharing *sharing)
{
    size_t domains = 0, least = SIZE_MAX, most = 0, ranks = sharing->binding->count;

    for (size_t numa = 0; numa < sharing->node->numa_count; numa++) {
        select_cores(sharing, (int)numa, false);
        if (!sharing->core_count)
            continue;
        domains++;
        least = sharing->core_count < least ? sharing->core_count : least;
        most = sharing->core_count > most ? sharing->core_count : most;
    }
    return domains && most <= 2 * least && (ranks % domains == 0 || domains % ranks == 0) ? domains : 0;
}

/* With more domains than ranks, a rank gets several whole domains; with more ranks, several share one. */
static void share_by_domain(struct sharing *sharing, size_t domains)
{
    size_t ranks = sharing->binding->count, each = ranks > domains ? ranks / domains : 1;
    size_t together = domains > ranks ? domains / ranks : 1, seen = 0;

    for (size_t numa = 0; numa < sharing->node->numa_count; numa++) {
        select_cores(sharing, (int)numa, false);
        if (!sharing->core_count)
            continue;
        sharing->rank_count = each;
        for (size_t i = 0; i < each; i++)
            sharing->ranks[i] = seen / together * each + i;
        share_cores(sharing);
        seen++;
    }
}

static bool is_any_gpu_placed(const struct sharing *sharing)
{
    for (size_t i = 0; i < sharing->binding->count; i++)
        if (numa_of_rank(sharing, i) >= 0)
            return true;
    return false;
}

static void note_sharing(const struct sharing *sharing)
{
    size_t crowded = 0;

    for (size_t i = 0; i < sharing->binding->count; i++)
        crowded += sharing->binding->ranks[i].shares_cores;
    if (crowded)
        add_note(sharing->binding,
                 "%zu of %zu ranks share a core with another: Slurm gave fewer cores than ranks "
                 "(--cpus-per-task)",
                 crowded, sharing->binding->count);
}

static int assign_cores(const struct node *node, struct binding *binding)
{
    size_t *memory = calloc(node->core_count + binding->count, sizeof *memory), domains;
    struct sharing sharing = {.node = node, .binding = binding, .cores = memory, .ranks = memory + node->core_count};
    bool is_launcher = binding->count == 1 && binding->gpu_count > 1,
         by_gpu = !is_launcher && is_any_gpu_placed(&sharing);

    if (!memory)
        return -1;
    domains = by_gpu ? 0 : even_domains(&sharing);
    if (by_gpu)
        share_beside_gpus(&sharing);
    if (domains)
        share_by_domain(&sharing, domains);
    else
        share_rest(&sharing);
    note_sharing(&sharing);
    free(memory);
    return 0;
}

/* ---- NICs -------------------------------------------------------------------------------------------------------- */

static enum node_path path_to(const struct node *node, const struct bind_rank *rank, size_t nic)
{
    if (rank->gpu >= 0)
        return node->paths[(size_t)rank->gpu * node->nic_count + nic];
    return node_numa_path(node, node_numa_of_cpus(node, &rank->cpus), node->nics[nic].numa);
}

/* The fabric's ports, without those of less than half its rate: on many nodes the management port is RoCE, too. */
static void find_fabric(const struct node *node, bool *fabric)
{
    enum nic_kind kind = node_fabric(node);
    unsigned fastest = 0;

    for (size_t i = 0; i < node->nic_count; i++)
        if (node->nics[i].kind == kind && node_nic_usable(&node->nics[i]) && node->nics[i].rate > fastest)
            fastest = node->nics[i].rate;
    for (size_t i = 0; i < node->nic_count; i++)
        fabric[i] = node->nics[i].kind == kind && node_nic_usable(&node->nics[i]) && node->nics[i].rate * 2 >= fastest;
}

static void find_nearest(const struct node *node, struct bind_rank *rank, const bool *fabric, bool *nearest)
{
    rank->path = PATH_SYSTEM;
    for (size_t i = 0; i < node->nic_count; i++)
        if (fabric[i] && path_to(node, rank, i) < rank->path)
            rank->path = path_to(node, rank, i);
    for (size_t i = 0; i < node->nic_count; i++)
        nearest[i] = fabric[i] && path_to(node, rank, i) == rank->path;
}

static bool on_gpu_of_earlier(const struct binding *binding, size_t rank)
{
    for (size_t i = 0; i < rank; i++)
        if (binding->ranks[i].gpu >= 0 && binding->ranks[i].gpu == binding->ranks[rank].gpu)
            return true;
    return false;
}

/* Of the GPUs (or ranks without one) with the same nearest NICs: their number, and the position of this rank's. */
static void find_seat(const struct node *node, const struct binding *binding, const bool *nearest, size_t rank,
                      size_t *seat, size_t *seats)
{
    size_t nics = node->nic_count;

    *seat = *seats = 0;
    for (size_t i = 0; i < binding->count; i++) {
        if (memcmp(nearest + i * nics, nearest + rank * nics, nics * sizeof *nearest) != 0 ||
            on_gpu_of_earlier(binding, i))
            continue;
        if (i == rank || (binding->ranks[i].gpu >= 0 && binding->ranks[i].gpu == binding->ranks[rank].gpu))
            *seat = *seats;
        ++*seats;
    }
}

static void deal_nics(const struct node *node, struct bind_rank *rank, const bool *nearest, size_t seat, size_t seats)
{
    size_t count = 0, index = 0;

    for (size_t i = 0; i < node->nic_count; i++)
        count += nearest[i];
    for (size_t i = 0; i < node->nic_count; i++) {
        if (!nearest[i])
            continue;
        if (count >= seats ? index % seats == seat : seat % count == index)
            rank->nics[rank->nic_count++] = i;
        index++;
    }
}

/* Ranks that have this NIC; 0 unless one of them has it below the same PCI switch as its GPU. */
static size_t count_users(const struct binding *binding, size_t nic)
{
    size_t count = 0;
    bool owned = false;

    for (size_t i = 0; i < binding->count; i++)
        for (size_t j = 0; j < binding->ranks[i].nic_count; j++)
            if (binding->ranks[i].nics[j] == nic) {
                count++;
                owned = owned || binding->ranks[i].path == PATH_SWITCH;
            }
    return owned ? count : 0;
}

/*
 * For a GPU without a NIC of its own, the least used one of its neighbours, but not one that no rank uses: that may
 * belong to the storage network. node->nic_count if no neighbour has one.
 */
static size_t find_shared(const struct node *node, const struct binding *binding, size_t rank, const bool *nearest)
{
    size_t best = node->nic_count, fewest = SIZE_MAX;

    for (size_t i = 0; i < rank; i++) /* ranks on one GPU get the same */
        if (binding->ranks[rank].gpu >= 0 && binding->ranks[i].gpu == binding->ranks[rank].gpu &&
            binding->ranks[i].nic_count == 1)
            return binding->ranks[i].nics[0];
    for (size_t i = 0; i < node->nic_count; i++) {
        size_t count = nearest[i] ? count_users(binding, i) : 0;

        if (count > 0 && count < fewest) {
            best = i;
            fewest = count;
        }
    }
    return best;
}

/* Called first for ranks with NICs of their own, then for the others. */
static void give_nics(const struct node *node, struct binding *binding, const bool *nearest, bool own)
{
    for (size_t i = 0; i < binding->count; i++) {
        struct bind_rank *rank = &binding->ranks[i];
        const bool *row = nearest + i * node->nic_count;
        size_t seat, seats, shared = own ? node->nic_count : find_shared(node, binding, i, row);

        if ((rank->path == PATH_SWITCH) != own)
            continue;
        find_seat(node, binding, nearest, i, &seat, &seats);
        if (shared < node->nic_count)
            rank->nics[rank->nic_count++] = shared;
        else
            deal_nics(node, rank, row, seat, seats);
    }
}

static int assign_nics(const struct node *node, struct binding *binding)
{
    bool *fabric = calloc((binding->count + 1) * node->nic_count + 1, sizeof *fabric),
         *nearest = fabric + node->nic_count;
    size_t far = 0;

    if (!fabric)
        return -1;
    find_fabric(node, fabric);
    for (size_t i = 0; i < binding->count; i++) {
        find_nearest(node, &binding->ranks[i], fabric, nearest + i * node->nic_count);
        if (!(binding->ranks[i].nics = calloc(node->nic_count + 1, sizeof *binding->ranks[i].nics))) {
            free(fabric);
            return -1;
        }
    }
    give_nics(node, binding, nearest, true);
    give_nics(node, binding, nearest, false);
    for (size_t i = 0; i < binding->count; i++)
        far += binding->ranks[i].gpu >= 0 && binding->ranks[i].nic_count && binding->ranks[i].path == PATH_SYSTEM;
    if (far && node->numa_count > 1)
        add_note(binding, "%zu of %zu ranks reach their NIC through another socket", far, binding->count);
    free(fabric);
    return 0;
}

/* ---- the binding ------------------------------------------------------------------------------------------------- */

/* Keeps the cores of the user's binding, and notes where they are far from the GPU. */
static void keep_given(const struct node *node, const struct bind_request *request, struct binding *binding)
{
    for (size_t i = 0; i < binding->count; i++) {
        struct bind_rank *rank = &binding->ranks[i];
        int numa = rank->gpu >= 0 ? node->gpus[rank->gpu].numa : -1;
        char list[64];

        rank->cpus = *request->given;
        if (numa >= 0 && node->numa_count > 1 && !cpus_intersect(&rank->cpus, &node->numas[numa].cpus))
            add_note(binding, "rank %zu runs on CPUs %s, as requested from Slurm, but its GPU %s is at NUMA node %u", i,
                     cpus_format(&rank->cpus, list, sizeof list), node->gpus[rank->gpu].address,
                     node->numas[numa].os_index);
    }
}

/* Cores rather than hardware threads: two threads of one core compute no faster than one. */
static void count_threads(const struct node *node, const struct binding *binding, struct bind_rank *rank)
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
        cores = binding->keeps_given ? cpus_count(&rank->cpus) : cpus_count(&node->allowed) / (unsigned)binding->count;
    if (binding->count == 1 && binding->gpu_count > 1)
        cores /= (unsigned)binding->gpu_count;
    rank->threads = cores ? cores : 1;
}

struct binding *binding_create(const struct node *node, const struct bind_request *request, struct error *err)
{
    struct binding *binding;

    if (request->local_ranks == 0) {
        error_set(err, CODE_USAGE, "no ranks to bind; at least 1");
        return NULL;
    }
    if (!(binding = calloc(1, sizeof *binding)))
        goto fail;
    binding->count = request->local_ranks;
    binding->keeps_given = request->given != NULL;
    if (!(binding->ranks = calloc(binding->count, sizeof *binding->ranks)) || choose_gpus(node, request, binding) < 0)
        goto fail;
    if (binding->keeps_given)
        keep_given(node, request, binding);
    else if (assign_cores(node, binding) < 0)
        goto fail;
    for (size_t i = 0; i < binding->count; i++)
        count_threads(node, binding, &binding->ranks[i]);
    if (assign_nics(node, binding) < 0)
        goto fail;
    return binding;
fail:
    error_set(err, CODE_IO, "no memory to bind %u ranks", request->local_ranks);
    binding_destroy(binding);
    return NULL;
}

void binding_destroy(struct binding *binding)
{
    if (!binding)
        return;
    for (size_t i = 0; binding->ranks && i < binding->count; i++)
        free(binding->ranks[i].nics);
    text_free_lines(binding->notes, binding->note_count);
    free(binding->ranks);
    free(binding);
}

bool binding_uses(const struct binding *binding, size_t nic)
{
    for (size_t i = 0; i < binding->count; i++)
        for (size_t j = 0; j < binding->ranks[i].nic_count; j++)
            if (binding->ranks[i].nics[j] == nic)
                return true;
    return false;
}

bool affinity_is_of_step(const struct cpus *all, const struct node *node, uint32_t slurm_cpus, bool cpus_are_cores)
{
    unsigned count = cpus_count(all), cores = 0;

    for (size_t i = 0; i < node->core_count; i++)
        cores += cpus_intersect(&node->cores[i].cpus, all);
    return slurm_cpus > 0 && (cpus_are_cores && cores ? cores : count) <= slurm_cpus;
}

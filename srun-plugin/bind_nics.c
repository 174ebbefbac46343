/* Who talks through which NICs. */
#include <stdlib.h>
#include <string.h>

#include "srun-plugin/bind_impl.h"

static int numa_of_cpus(const struct node *node, const struct cpus *cpus)
{
    for (size_t i = 0; i < node->numa_count; i++)
        if (cpus_intersect(&node->numas[i].cpus, cpus))
            return (int)i;
    return -1;
}

static enum node_path path_to(const struct node *node, const struct bind_rank *rank, size_t nic)
{
    int near, far = node->nics[nic].numa;

    if (rank->gpu >= 0)
        return node->paths[(size_t)rank->gpu * node->nic_count + nic];
    near = numa_of_cpus(node, &rank->cpus);
    if (near < 0 || far < 0)
        return PATH_SYSTEM;
    if (near == far)
        return PATH_NUMA;
    return node->numas[near].package == node->numas[far].package ? PATH_PACKAGE : PATH_SYSTEM;
}

/* The fabric's ports, without those of less than half its rate: the management's 25 Gbit/s are RoCE too on many nodes.
 */
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

static bool on_gpu_of_earlier(const struct bind_plan *plan, size_t rank)
{
    for (size_t i = 0; i < rank; i++)
        if (plan->ranks[i].gpu >= 0 && plan->ranks[i].gpu == plan->ranks[rank].gpu)
            return true;
    return false;
}

/* Among those with the same nearest NICs: how many GPUs (or ranks without) there are, and which of them this one is. */
static void find_seat(const struct node *node, const struct bind_plan *plan, const bool *nearest, size_t rank,
                      size_t *seat, size_t *seats)
{
    size_t nics = node->nic_count;

    *seat = *seats = 0;
    for (size_t i = 0; i < plan->count; i++) {
        if (memcmp(nearest + i * nics, nearest + rank * nics, nics * sizeof *nearest) != 0 ||
            on_gpu_of_earlier(plan, i))
            continue;
        if (i == rank || (plan->ranks[i].gpu >= 0 && plan->ranks[i].gpu == plan->ranks[rank].gpu))
            *seat = *seats;
        ++*seats;
    }
}

static int share_out(const struct node *node, struct bind_rank *rank, const bool *nearest, size_t seat, size_t seats)
{
    size_t count = 0, index = 0;

    for (size_t i = 0; i < node->nic_count; i++)
        count += nearest[i];
    if (!(rank->nics = calloc(count + 1, sizeof *rank->nics)))
        return -1;
    for (size_t i = 0; i < node->nic_count; i++) {
        if (!nearest[i])
            continue;
        if (count >= seats ? index % seats == seat : seat % count == index)
            rank->nics[rank->nic_count++] = i;
        index++;
    }
    return 0;
}

/* Ranks that have this NIC already; 0 while none of them has it as its own, beneath one switch with its GPU. */
static size_t users(const struct bind_plan *plan, size_t nic)
{
    size_t count = 0;
    bool owned = false;

    for (size_t i = 0; i < plan->count; i++)
        for (size_t j = 0; j < plan->ranks[i].nic_count; j++)
            if (plan->ranks[i].nics[j] == nic) {
                count++;
                owned = owned || plan->ranks[i].path == PATH_SWITCH;
            }
    return owned ? count : 0;
}

/*
 * A GPU without a NIC of its own joins the least busy of its neighbours' rather than one that nobody has: what the
 * others have is of the right network, the idle one may be the storage's. node->nic_count when no neighbour has one.
 */
static size_t find_neighbours(const struct node *node, const struct bind_plan *plan, size_t rank, const bool *nearest)
{
    size_t best = node->nic_count, fewest = SIZE_MAX;

    for (size_t i = 0; i < rank; i++) /* ranks on one GPU get the same */
        if (plan->ranks[rank].gpu >= 0 && plan->ranks[i].gpu == plan->ranks[rank].gpu && plan->ranks[i].nic_count == 1)
            return plan->ranks[i].nics[0];
    for (size_t i = 0; i < node->nic_count; i++) {
        size_t count = nearest[i] ? users(plan, i) : 0;

        if (count > 0 && count < fewest) {
            best = i;
            fewest = count;
        }
    }
    return best;
}

static int join_neighbour(struct bind_rank *rank, size_t nic)
{
    if (!(rank->nics = calloc(1, sizeof *rank->nics)))
        return -1;
    rank->nics[rank->nic_count++] = nic;
    return 0;
}

/* First those with NICs of their own, then the others. */
static int give_nics(const struct node *node, struct bind_plan *plan, const bool *nearest, bool own)
{
    int status = 0;

    for (size_t i = 0; i < plan->count && status == 0; i++) {
        const bool *row = nearest + i * node->nic_count;
        size_t seat, seats, neighbours = own ? node->nic_count : find_neighbours(node, plan, i, row);

        if ((plan->ranks[i].path == PATH_SWITCH) != own)
            continue;
        find_seat(node, plan, nearest, i, &seat, &seats);
        if (neighbours < node->nic_count)
            status = join_neighbour(&plan->ranks[i], neighbours);
        else
            status = share_out(node, &plan->ranks[i], row, seat, seats);
    }
    return status;
}

bool bind_plan_uses(const struct bind_plan *plan, size_t nic)
{
    for (size_t i = 0; i < plan->count; i++)
        for (size_t j = 0; j < plan->ranks[i].nic_count; j++)
            if (plan->ranks[i].nics[j] == nic)
                return true;
    return false;
}

static void tell_far(const struct node *node, struct bind_plan *plan)
{
    size_t far = 0;

    for (size_t i = 0; i < plan->count; i++)
        far += plan->ranks[i].gpu >= 0 && plan->ranks[i].nic_count && plan->ranks[i].path == PATH_SYSTEM;
    if (far && node->numa_count > 1)
        bind_note(plan, "%zu of %zu ranks reach their NIC through another socket", far, plan->count);
}

int bind_nics(const struct node *node, struct bind_plan *plan)
{
    bool *fabric = calloc(node->nic_count + 1, sizeof *fabric);
    bool *nearest = calloc(plan->count * node->nic_count + 1, sizeof *nearest);
    int status = fabric && nearest ? 0 : -1;

    if (status == 0) {
        find_fabric(node, fabric);
        for (size_t i = 0; i < plan->count; i++)
            find_nearest(node, &plan->ranks[i], fabric, nearest + i * node->nic_count);
    }
    if (status == 0 && (give_nics(node, plan, nearest, true) < 0 || give_nics(node, plan, nearest, false) < 0))
        status = -1;
    if (status == 0)
        tell_far(node, plan);
    free(nearest);
    free(fabric);
    return status;
}

#include "srun-plugin/place/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "srun-plugin/place/place.h"
#include "srun-plugin/place/hostlist.h"

/* The ranks of a node if all nodes have as many; else 1. */
static int guess_group(const struct order *order)
{
    for (int node = 1; node < order->cluster->node_count; node++)
        if (order->slots[node] != order->slots[0])
            return 1;
    return order->slots[0] > 0 ? order->slots[0] : 1;
}

static int find_mesh(struct order *order, const struct job *job, int world, struct error *err)
{
    if (job) {
        if (mesh_fit(&order->mesh, world, job->parallel.tp, job->parallel.pp, err) < 0)
            return -1;
        place_bytes(job, &order->mesh, order->bytes);
        return 0;
    }
    order->guessed = true;
    for (int axis = 0; axis < PLACE_AXES; axis++)
        order->bytes[axis] = 1;
    return mesh_fit(&order->mesh, world, guess_group(order), 1, err);
}

/* Whether the order moves as many bytes as Slurm's at every depth, for tp and in all: then Slurm's is kept. */
static bool no_better(const struct order *order, const int *slurms)
{
    const uint64_t tp_only[PLACE_AXES] = {[PLACE_TP] = 1}, *const kinds[] = {tp_only, order->bytes};
    uint64_t ours[PLACE_LEVELS + 1], theirs[PLACE_LEVELS + 1];

    for (int kind = 0; kind < 2; kind++) {
        place_traffic(order->cluster, &order->mesh, kinds[kind], order->nodes, ours);
        place_traffic(order->cluster, &order->mesh, kinds[kind], slurms, theirs);
        if (place_compare(ours, theirs, order->cluster->levels) != 0)
            return false;
    }
    return true;
}

/* `room` holds as many as order->nodes. */
static void settle_order(struct order *order, int *room)
{
    size_t bytes = (size_t)mesh_world(&order->mesh) * sizeof *room;

    place_keep_first(&order->mesh, order->nodes, room);
    place_in_order(order->cluster, &order->mesh, order->slots, NULL, room);
    order->as_slurm = memcmp(room, order->nodes, bytes) == 0 || no_better(order, room);
    if (order->as_slurm)
        memcpy(order->nodes, room, bytes);
}

static int fill_order(struct order *order, const struct order_request *request, struct error *err)
{
    struct hostlist *names = hostlist_create(request->nodes, err);
    int world = 0, *room = NULL, rc = -1;

    order->cluster = names ? cluster_create(names, request->topology, request->where, err) : NULL;
    hostlist_destroy(names);
    if (!order->cluster)
        return -1;
    order->slots = calloc((size_t)order->cluster->node_count, sizeof *order->slots);
    if (!order->slots)
        return error_errno(err, CODE_IO, "no memory for %d nodes", order->cluster->node_count);
    if (hostlist_counts(request->tasks, order->slots, order->cluster->node_count, &world, err) < 0 ||
        find_mesh(order, request->job, world, err) < 0)
        return -1;
    order->nodes = calloc((size_t)world, sizeof *order->nodes);
    room = calloc((size_t)world, sizeof *room);
    if (!order->nodes || !room)
        error_errno(err, CODE_IO, "no memory for %d ranks", world);
    else
        rc = place_ranks(order->cluster, &order->mesh, order->bytes, order->slots, order->nodes, &order->report, err);
    if (rc == 0)
        settle_order(order, room);
    free(room);
    return rc;
}

struct order *order_create(const struct order_request *request, struct error *err)
{
    struct order *order = calloc(1, sizeof *order);

    if (!order) {
        error_errno(err, CODE_IO, "no memory for the order of the ranks");
        return NULL;
    }
    if (fill_order(order, request, err) == 0)
        return order;
    order_destroy(order);
    return NULL;
}

void order_destroy(struct order *order)
{
    if (!order)
        return;
    cluster_destroy(order->cluster);
    free(order->slots);
    free(order->nodes);
    free(order);
}

void order_replace(struct order *order, const int *nodes)
{
    size_t bytes = (size_t)mesh_world(&order->mesh) * sizeof *nodes;

    if (memcmp(order->nodes, nodes, bytes) == 0)
        return;
    memcpy(order->nodes, nodes, bytes);
    place_traffic(order->cluster, &order->mesh, order->bytes, order->nodes, order->report.traffic);
    order->report.exact = false;
    order->as_slurm = false;
}

/* A positive integer; else -1. */
static long read_count(const char *text)
{
    long value;

    return text_to_long(text, 1, PLACE_RANKS, &value) ? value : -1;
}

int order_counts(int nodes, const char *tasks, const char *tasks_per_node, const char *counts, char *text, size_t size)
{
    long all = tasks ? read_count(tasks) : 0, each = tasks_per_node ? read_count(tasks_per_node) : 0;
    struct error ignored;
    int sum = 0, *room;

    if (nodes < 1 || all < 0 || each < 0 || (all && each && all != each * nodes))
        return -1;
    if (!each && (!all || all == nodes))
        each = 1; /* srun's default, and the only way if there are as many ranks as nodes */
    if (each) {
        snprintf(text, size, "%ld(x%d)", each, nodes);
        return 0;
    }
    room = counts ? calloc((size_t)nodes, sizeof *room) : NULL;
    if (!room || hostlist_counts(counts, room, nodes, &sum, &ignored) < 0 || sum != all || strlen(counts) >= size)
        sum = 0;
    free(room);
    if (!sum)
        return -1;
    snprintf(text, size, "%s", counts);
    return 0;
}

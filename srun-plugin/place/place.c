#include "srun-plugin/place/place.h"

#include <stdlib.h>
#include <string.h>

#include "srun-plugin/place/place_impl.h"

#define REFINE_BUDGET 200000

struct placing {
    const struct cluster *cluster;
    const struct mesh *mesh;
    const uint64_t *bytes;
    struct seats *seats;
    int *order, *trial; /* [world] best so far, and the one that is weighed */
    int *leaf;          /* [cells] */
    bool any;
    struct place_report report;        /* of order */
    uint64_t groups[PLACE_LEVELS + 1]; /* edges of its tp groups at each depth */
};

static int check_arguments(const struct cluster *cluster, const struct mesh *mesh, const uint64_t *bytes,
                           const int *slots, struct error *err)
{
    long all = 0;

    if (mesh->dp < 1 || mesh->tp < 1 || mesh->pp < 1)
        return error_set(err, CODE_CONFIG, "a mesh of dp %d, tp %d, pp %d is impossible: each must be at least 1",
                         mesh->dp, mesh->tp, mesh->pp);
    if ((long)mesh->dp * mesh->tp > PLACE_RANKS || (long)mesh->dp * mesh->tp * mesh->pp > PLACE_RANKS)
        return error_set(err, CODE_CONFIG, "a mesh of dp %d, tp %d, pp %d has more than %d ranks", mesh->dp, mesh->tp,
                         mesh->pp, PLACE_RANKS);
    if (cluster->levels > PLACE_LEVELS)
        return error_set(err, CODE_DATA, "the switches have %d levels; at most %d can be placed on", cluster->levels,
                         PLACE_LEVELS);
    for (int axis = 0; axis < PLACE_AXES; axis++)
        if (bytes[axis] > PLACE_BYTES)
            return error_set(err, CODE_CONFIG, "more than 2^40 bytes between two ranks in a step");
    for (int node = 0; node < cluster->node_count; node++) {
        if (slots[node] < 0)
            return error_set(err, CODE_CONFIG, "node %s has %d slots", cluster->nodes[node], slots[node]);
        all += slots[node];
    }
    if (all > PLACE_SLOTS)
        return error_set(err, CODE_CONFIG, "%ld slots are more than the limit of %d", all, PLACE_SLOTS);
    if (all < mesh_world(mesh))
        return error_set(err, CODE_CONFIG, "%d ranks do not fit the %ld slots of %d nodes", mesh_world(mesh), all,
                         cluster->node_count);
    return 0;
}

static int count_splits(const struct mesh *mesh, const int *order)
{
    int splits = 0;

    for (int first = 0; first < mesh_world(mesh); first += mesh->tp)
        for (int i = 1; i < mesh->tp; i++)
            if (order[first + i] != order[first]) {
                splits++;
                break;
            }
    return splits;
}

/*
 * Keeps placing->trial if it is the best so far. tp's edges come before all others: else a group that must be divided
 * would be torn across the top for the sake of dp.
 */
static void weigh_trial(struct placing *placing)
{
    const uint64_t tp_only[PLACE_AXES] = {[PLACE_TP] = 1};
    struct place_report report = {.split_groups = count_splits(placing->mesh, placing->trial)};
    int levels = placing->cluster->levels, worse;
    uint64_t groups[PLACE_LEVELS + 1];

    place_traffic(placing->cluster, placing->mesh, tp_only, placing->trial, groups);
    place_traffic(placing->cluster, placing->mesh, placing->bytes, placing->trial, report.traffic);
    worse = placing->any ? place_compare(groups, placing->groups, levels) : -1;
    if (worse > 0 || (worse == 0 && place_compare(report.traffic, placing->report.traffic, levels) >= 0))
        return;
    memcpy(placing->order, placing->trial, (size_t)mesh_world(placing->mesh) * sizeof *placing->order);
    memcpy(placing->groups, groups, sizeof groups);
    placing->report = report;
    placing->any = true;
}

static void seat_ranks(struct placing *placing)
{
    int tp = placing->mesh->tp;

    for (int rank = 0; rank < mesh_world(placing->mesh); rank++) {
        const struct vertex *seat = &placing->seats->vertices[placing->leaf[rank / tp]];

        placing->trial[rank] = seat->split < 0 ? seat->node : placing->seats->hosts[seat->split * tp + rank % tp];
    }
}

static int place_all(struct placing *placing, const int *slots, struct error *err)
{
    const struct mesh *mesh = placing->mesh;
    struct grid grid = {.dp = mesh->dp,
                        .pp = mesh->pp,
                        .cells = mesh->dp * mesh->pp,
                        .along_dp = placing->bytes[PLACE_DP] * (uint64_t)mesh->tp,
                        .along_pp = placing->bytes[PLACE_PP] * (uint64_t)mesh->tp};
    bool exact;

    for (int columns_first = 0; columns_first < 2; columns_first++) {
        if (place_divide(placing->seats, &grid, columns_first, placing->leaf, err) < 0 ||
            place_refine(placing->seats, &grid, REFINE_BUDGET, placing->leaf, err) < 0)
            return -1;
        seat_ranks(placing);
        weigh_trial(placing);
    }
    exact = place_exact(placing->seats, &grid, placing->leaf);
    seat_ranks(placing);
    weigh_trial(placing);
    place_in_order(placing->cluster, mesh, slots, NULL, placing->trial);
    weigh_trial(placing);
    placing->report.exact = exact;
    return 0;
}

int place_ranks(const struct cluster *cluster, const struct mesh *mesh, const uint64_t bytes[PLACE_AXES],
                const int *slots, int *order, struct place_report *report, struct error *err)
{
    struct placing placing = {.cluster = cluster, .mesh = mesh, .bytes = bytes, .order = order};
    int rc = -1;

    if (check_arguments(cluster, mesh, bytes, slots, err) < 0)
        return -1;
    placing.seats = seats_create(cluster, mesh->tp, mesh->dp * mesh->pp, slots, err);
    placing.trial = calloc((size_t)mesh_world(mesh), sizeof *placing.trial);
    placing.leaf = calloc((size_t)mesh->dp * (size_t)mesh->pp, sizeof *placing.leaf);
    if (placing.seats && placing.trial && placing.leaf)
        rc = place_all(&placing, slots, err);
    else if (placing.seats)
        error_errno(err, CODE_IO, "no memory to place %d ranks", mesh_world(mesh));
    if (rc == 0 && report)
        *report = placing.report;
    seats_destroy(placing.seats);
    free(placing.trial);
    free(placing.leaf);
    return rc;
}

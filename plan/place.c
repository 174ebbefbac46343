/* The tree of switches, what an order costs, and the choice of the best one. */
#include "plan/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "plan/cost.h"
#include "plan/place_impl.h"

void switch_tree_destroy(struct switch_tree *switch_tree)
{
    if (!switch_tree)
        return;
    for (int i = 0; i < switch_tree->switch_count; i++)
        free(switch_tree->switches[i].name);
    text_free_lines(switch_tree->nodes, (size_t)switch_tree->node_count);
    free(switch_tree->above);
    free(switch_tree->switches);
    free(switch_tree->path);
    free(switch_tree);
}

int switch_tree_meet(const struct switch_tree *switch_tree, int a, int b)
{
    const int *of_a = &switch_tree->path[(size_t)a * (size_t)switch_tree->levels];
    const int *of_b = &switch_tree->path[(size_t)b * (size_t)switch_tree->levels];
    int depth = 0;

    if (a == b)
        return switch_tree->levels;
    while (depth + 1 < switch_tree->levels && of_a[depth + 1] >= 0 && of_a[depth + 1] == of_b[depth + 1])
        depth++;
    return depth;
}

char *switch_tree_path_name(const struct switch_tree *switch_tree, int node, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int depth = 1; depth < switch_tree->levels && used < size; depth++) {
        int at = switch_tree->path[(size_t)node * (size_t)switch_tree->levels + (size_t)depth];

        if (at >= 0)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? "/" : "", switch_tree->switches[at].name);
    }
    return text;
}

/* ---- the cost of an order ---------------------------------------------------------------------------------------- */

void place_traffic(const struct switch_tree *switch_tree, const struct mesh *mesh, const uint64_t bytes[PLACE_AXES],
                   const int *node_of, uint64_t *traffic)
{
    memset(traffic, 0, ((size_t)switch_tree->levels + 1) * sizeof *traffic);
    for (int rank = 0; rank < mesh_world(mesh); rank++) {
        const struct mesh_coords at = mesh_coords(mesh, rank);
        const struct mesh_coords next[PLACE_AXES] = {
            [PLACE_DP] = {.dp = (at.dp + 1) % mesh->dp, .tp = at.tp, .pp = at.pp},
            [PLACE_PP] = {.dp = at.dp, .tp = at.tp, .pp = at.pp + 1},
            [PLACE_TP] = {.dp = at.dp, .tp = (at.tp + 1) % mesh->tp, .pp = at.pp},
        };
        const bool sends[PLACE_AXES] = {
            [PLACE_DP] = mesh->dp > 1, [PLACE_PP] = at.pp + 1 < mesh->pp, [PLACE_TP] = mesh->tp > 1};

        for (int axis = 0; axis < PLACE_AXES; axis++)
            if (sends[axis])
                traffic[switch_tree_meet(switch_tree, node_of[rank], node_of[mesh_rank(mesh, next[axis])])] +=
                    bytes[axis];
    }
}

int place_compare(const uint64_t *a, const uint64_t *b, int levels)
{
    for (int depth = 0; depth < levels; depth++)
        if (a[depth] != b[depth])
            return a[depth] < b[depth] ? -1 : 1;
    return 0;
}

static bool is_split(const int *node_of, int tp)
{
    for (int i = 1; i < tp; i++)
        if (node_of[i] != node_of[0])
            return true;
    return false;
}

void place_weigh(const struct switch_tree *switch_tree, const struct mesh *mesh, const uint64_t bytes[PLACE_AXES],
                 const int *node_of, struct place_cost *cost)
{
    const uint64_t tp_only[PLACE_AXES] = {[PLACE_TP] = 1};

    *cost = (struct place_cost){.exact = false};
    place_traffic(switch_tree, mesh, tp_only, node_of, cost->tp_edges);
    place_traffic(switch_tree, mesh, bytes, node_of, cost->traffic);
    for (int first = 0; first < mesh_world(mesh); first += mesh->tp)
        cost->split_groups += is_split(&node_of[first], mesh->tp);
}

/* tp's edges come before all others: else a group that must be divided would be torn across the top for dp's sake. */
int place_compare_costs(const struct place_cost *a, const struct place_cost *b, int levels)
{
    int groups = place_compare(a->tp_edges, b->tp_edges, levels);

    return groups ? groups : place_compare(a->traffic, b->traffic, levels);
}

/* ---- what a job sends -------------------------------------------------------------------------------------------- */

static uint64_t limit_bytes(double bytes)
{
    return bytes < (double)PLACE_BYTES ? (uint64_t)bytes : PLACE_BYTES;
}

void place_bytes(const struct job *job, const struct mesh *mesh, uint64_t bytes[PLACE_AXES])
{
    struct plan_traffic traffic;
    struct error err;

    if (plan_traffic(job, mesh, &traffic, &err) < 0)
        return;
    bytes[PLACE_DP] = limit_bytes(traffic.dp);
    bytes[PLACE_PP] = limit_bytes(traffic.pp);
    bytes[PLACE_TP] = limit_bytes(traffic.tp);
}

/* ---- orders ------------------------------------------------------------------------------------------------------ */

void place_in_order(const struct switch_tree *switch_tree, const struct mesh *mesh, const int *slots, const int *nodes,
                    int *node_of)
{
    int world = mesh_world(mesh), rank = 0;

    for (int i = 0; i < switch_tree->node_count; i++) {
        int node = nodes ? nodes[i] : i;

        for (int slot = 0; slot < slots[node] && rank < world; slot++)
            node_of[rank++] = node;
    }
}

/* node_of with dp's rings rotated by `shift`, and the stages in reverse order if `back`. */
static void rename_ranks(const struct mesh *mesh, const int *node_of, int shift, bool back, int *scratch)
{
    for (int rank = 0; rank < mesh_world(mesh); rank++) {
        struct mesh_coords place = mesh_coords(mesh, rank);

        place.dp = (place.dp + shift) % mesh->dp;
        place.pp = back ? mesh->pp - 1 - place.pp : place.pp;
        scratch[rank] = node_of[mesh_rank(mesh, place)];
    }
}

bool place_keep_first(const struct mesh *mesh, int *node_of, int *scratch)
{
    for (int back = 0; back < 2; back++)
        for (int shift = 0; shift < mesh->dp; shift++) {
            const struct mesh_coords first = {.dp = shift, .pp = back ? mesh->pp - 1 : 0};

            if (node_of[mesh_rank(mesh, first)] != 0)
                continue;
            rename_ranks(mesh, node_of, shift, back, scratch);
            memcpy(node_of, scratch, (size_t)mesh_world(mesh) * sizeof *node_of);
            return true;
        }
    return false;
}

/* ---- the best order ---------------------------------------------------------------------------------------------- */

#define REFINE_BUDGET 200000

struct placing {
    const struct switch_tree *switch_tree;
    const struct mesh *mesh;
    const uint64_t *bytes;
    struct seat_tree *tree;
    int *best, *trial; /* [world] the best order so far, and the one that is compared with it */
    int *holder;       /* [cells] */
    bool any;
    struct place_cost cost; /* of best */
};

static int check_arguments(const struct switch_tree *switch_tree, const struct mesh *mesh, const uint64_t *bytes,
                           const int *slots, struct error *err)
{
    long all = 0;

    if (mesh->dp < 1 || mesh->tp < 1 || mesh->pp < 1)
        return error_set(err, CODE_CONFIG, "a mesh of dp %d, tp %d, pp %d is impossible: each must be at least 1",
                         mesh->dp, mesh->tp, mesh->pp);
    if ((long)mesh->dp * mesh->tp > PLACE_RANKS || (long)mesh->dp * mesh->tp * mesh->pp > PLACE_RANKS)
        return error_set(err, CODE_CONFIG, "a mesh of dp %d, tp %d, pp %d has more than %d ranks", mesh->dp, mesh->tp,
                         mesh->pp, PLACE_RANKS);
    if (switch_tree->levels > PLACE_LEVELS)
        return error_set(err, CODE_DATA, "the switches have %d levels; at most %d can be placed on",
                         switch_tree->levels, PLACE_LEVELS);
    for (int axis = 0; axis < PLACE_AXES; axis++)
        if (bytes[axis] > PLACE_BYTES)
            return error_set(err, CODE_CONFIG, "more than 2^40 bytes between two ranks in a step");
    for (int node = 0; node < switch_tree->node_count; node++) {
        if (slots[node] < 0)
            return error_set(err, CODE_CONFIG, "node %s has %d slots", switch_tree->nodes[node], slots[node]);
        all += slots[node];
    }
    if (all > PLACE_SLOTS)
        return error_set(err, CODE_CONFIG, "%ld slots are more than the limit of %d", all, PLACE_SLOTS);
    if (all < mesh_world(mesh))
        return error_set(err, CODE_CONFIG, "%d ranks do not fit the %ld slots of %d nodes", mesh_world(mesh), all,
                         switch_tree->node_count);
    return 0;
}

/* Keeps placing->trial if it is the best so far. */
static void keep_if_better(struct placing *placing)
{
    struct place_cost cost;

    place_weigh(placing->switch_tree, placing->mesh, placing->bytes, placing->trial, &cost);
    if (placing->any && place_compare_costs(&cost, &placing->cost, placing->switch_tree->levels) >= 0)
        return;
    memcpy(placing->best, placing->trial, (size_t)mesh_world(placing->mesh) * sizeof *placing->best);
    placing->cost = cost;
    placing->any = true;
}

/* The same for the order of placing->holder. */
static void weigh_holders(struct placing *placing)
{
    int tp = placing->mesh->tp;

    for (int rank = 0; rank < mesh_world(placing->mesh); rank++) {
        const struct vertex *seat = &placing->tree->vertices[placing->holder[rank / tp]];

        placing->trial[rank] = seat->split < 0 ? seat->node : placing->tree->split_nodes[seat->split * tp + rank % tp];
    }
    keep_if_better(placing);
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
        if (place_divide(placing->tree, &grid, columns_first, placing->holder, err) < 0 ||
            place_refine(placing->tree, &grid, REFINE_BUDGET, placing->holder, err) < 0)
            return -1;
        weigh_holders(placing);
    }
    exact = place_exact(placing->tree, &grid, placing->cost.traffic, placing->holder);
    weigh_holders(placing);
    place_in_order(placing->switch_tree, mesh, slots, NULL, placing->trial);
    keep_if_better(placing);
    placing->cost.exact = exact;
    return 0;
}

int place_ranks(const struct switch_tree *switch_tree, const struct mesh *mesh, const uint64_t bytes[PLACE_AXES],
                const int *slots, int *node_of, struct place_cost *cost, struct error *err)
{
    struct placing placing = {.switch_tree = switch_tree, .mesh = mesh, .bytes = bytes, .best = node_of};
    int rc = -1;

    if (check_arguments(switch_tree, mesh, bytes, slots, err) < 0)
        return -1;
    placing.tree = seat_tree_create(switch_tree, mesh->tp, mesh->dp * mesh->pp, slots, err);
    placing.trial = error_calloc((size_t)mesh_world(mesh), sizeof *placing.trial, err);
    placing.holder = error_calloc((size_t)mesh->dp * (size_t)mesh->pp, sizeof *placing.holder, err);
    if (placing.tree && placing.trial && placing.holder)
        rc = place_all(&placing, slots, err);
    if (rc == 0 && cost)
        *cost = placing.cost;
    seat_tree_destroy(placing.tree);
    free(placing.trial);
    free(placing.holder);
    return rc;
}

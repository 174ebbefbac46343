/*
 * place_switches.h - what the tests of place.h share: switches from text, and what every order must keep. Fails the
 * test where something fails.
 */
#ifndef MUSTER_TESTS_PLACE_SWITCHES_H
#define MUSTER_TESTS_PLACE_SWITCHES_H

#include "plan/place.h"
#include "srun-plugin/order/order.h"
#include "tests/cmocka_test.h"

#define RANKS 64 /* of a mesh here, at most */

static inline struct switch_tree *make_cluster(const char *nodes, const char *text)
{
    struct error err = {0};
    struct switch_tree *switch_tree = switch_tree_create(nodes, text, "test", &err);

    if (!switch_tree)
        fail_msg("%s", err.text);
    return switch_tree;
}

static inline void place_all(const struct switch_tree *switch_tree, struct mesh mesh, const uint64_t *bytes,
                             const int *slots, int *order, struct place_cost *cost)
{
    struct error err = {0};

    if (place_ranks(switch_tree, &mesh, bytes, slots, order, cost, &err) < 0)
        fail_msg("%s", err.text);
}

/* Whatever the order: nobody gets more than its slots, and the cost is what the order costs. */
static inline void check_order(const struct switch_tree *switch_tree, struct mesh mesh, const uint64_t *bytes,
                               const int *slots, const int *order, const struct place_cost *cost)
{
    uint64_t traffic[PLACE_LEVELS + 1];
    int used[RANKS] = {0};

    for (int rank = 0; rank < mesh_world(&mesh); rank++) {
        assert_in_range(order[rank], 0, switch_tree->node_count - 1);
        assert_true(used[order[rank]]++ < slots[order[rank]]);
    }
    place_traffic(switch_tree, &mesh, bytes, order, traffic);
    assert_memory_equal(traffic, cost->traffic, ((size_t)switch_tree->levels + 1) * sizeof *traffic);
}

#endif

/*
 * Ranks on nodes: a cost that is right by hand, the heavier axis beneath a switch, tp groups whole where they can be.
 */
#include "common/model/model_tensors.h"
#include "plan/place.h"
#include "tests/unit/place_switches.h"

/* ---- by hand ---- */

static void traffic_is_counted_where_nodes_meet(void **state)
{
    struct switch_tree *switch_tree = make_cluster("a,b,c,d", "SwitchName=x Nodes=a,b\nSwitchName=y Nodes=c,d");
    const struct mesh mesh = {.dp = 2, .tp = 2, .pp = 2};
    const uint64_t bytes[PLACE_AXES] = {[PLACE_DP] = 100, [PLACE_PP] = 10, [PLACE_TP] = 1};
    const int order[] = {0, 0, 1, 1, 2, 2, 3, 3}, turned[] = {0, 0, 2, 2, 1, 1, 3, 3},
              split[] = {0, 1, 0, 1, 2, 3, 2, 3};
    uint64_t traffic[3];

    place_traffic(switch_tree, &mesh, bytes, order, traffic);
    assert_int_equal(traffic[0], 4 * 10);  /* 2 cells of 2 ranks: stage to stage, between x and y */
    assert_int_equal(traffic[1], 8 * 100); /* every rank to the next of its ring of 2, a to b, b to a, ... */
    assert_int_equal(traffic[2], 8 * 1);
    place_traffic(switch_tree, &mesh, bytes, turned, traffic);
    assert_int_equal(traffic[0], 8 * 100);
    assert_int_equal(traffic[1], 4 * 10);
    assert_int_equal(traffic[2], 8 * 1);
    place_traffic(switch_tree, &mesh, bytes, split, traffic);
    assert_int_equal(traffic[0], 4 * 10);
    assert_int_equal(traffic[1], 8 * 1);
    assert_int_equal(traffic[2], 8 * 100);
    assert_true(place_compare((uint64_t[]){1, 9}, (uint64_t[]){2, 0}, 2) < 0);
    assert_true(place_compare((uint64_t[]){1, 9}, (uint64_t[]){1, 9}, 2) == 0);
    assert_true(place_compare((uint64_t[]){1, 9}, (uint64_t[]){1, 8}, 2) > 0);
    switch_tree_destroy(switch_tree);
}

/* Equal slots, groups that divide: whole groups of the heavier axis beneath a switch. The answers are arithmetic. */
static void the_heavier_axis_stays_beneath_a_switch(void **state)
{
    struct switch_tree *switch_tree =
        make_cluster("n[1-16]", "SwitchName=s1 Nodes=n[1,5,9,13]\nSwitchName=s2 Nodes=n[2,6,10,14]\n"
                                "SwitchName=s3 Nodes=n[3,7,11,15]\nSwitchName=s4 Nodes=n[4,8,12,16]");
    const struct mesh mesh = {.dp = 4, .tp = 2, .pp = 4};
    int slots[16], order[RANKS];
    struct place_cost cost;

    for (int i = 0; i < 16; i++)
        slots[i] = 2;
    place_all(switch_tree, mesh, (uint64_t[]){[PLACE_DP] = 1000, [PLACE_PP] = 10, [PLACE_TP] = 5}, slots, order, &cost);
    assert_int_equal(cost.traffic[0], 3 * 4 * 2 * 10); /* three boundaries between stages; no ring leaves its switch */
    assert_int_equal(cost.traffic[1], 4 * 4 * 2 * 1000);
    place_all(switch_tree, mesh, (uint64_t[]){[PLACE_DP] = 10, [PLACE_PP] = 1000, [PLACE_TP] = 5}, slots, order, &cost);
    assert_int_equal(cost.traffic[0],
                     4 * 4 * 2 * 10); /* four rings through four switches; no pipeline leaves its own */
    assert_int_equal(cost.traffic[1], 3 * 4 * 2 * 1000);
    place_all(switch_tree, mesh, (uint64_t[]){[PLACE_DP] = 10, [PLACE_PP] = 10, [PLACE_TP] = 5}, slots, order, &cost);
    assert_int_equal(cost.traffic[0],
                     (4 * 2 + 4) * 2 * 10); /* tiles of 2 x 2: two cuts of each ring, one of each line */
    switch_tree_destroy(switch_tree);
}

/* ---- tp ---- */

static void tensor_groups_stay_whole_where_they_can(void **state)
{
    struct switch_tree *switch_tree = make_cluster("n[1-5]", "SwitchName=x Nodes=n[1-2]\nSwitchName=y Nodes=n[3-5]");
    const uint64_t bytes[PLACE_AXES] = {1, 1, 1};
    const int slots[] = {3, 5, 4, 1, 3};
    int order[RANKS];
    struct place_cost cost;

    place_all(switch_tree, (struct mesh){.dp = 6, .tp = 2, .pp = 1}, bytes, slots, order,
              &cost); /* 1 + 2 + 2 + 0 + 1 */
    check_order(switch_tree, (struct mesh){.dp = 6, .tp = 2, .pp = 1}, bytes, slots, order, &cost);
    assert_int_equal(cost.split_groups, 0);
    for (int rank = 0; rank < 12; rank += 2)
        assert_int_equal(order[rank], order[rank + 1]);
    place_all(switch_tree, (struct mesh){.dp = 8, .tp = 2, .pp = 1}, bytes, slots, order,
              &cost); /* two more: one in x, one in y */
    check_order(switch_tree, (struct mesh){.dp = 8, .tp = 2, .pp = 1}, bytes, slots, order, &cost);
    assert_int_equal(cost.split_groups, 2);
    for (int rank = 0; rank < 16; rank += 2)
        assert_true(switch_tree_meet(switch_tree, order[rank], order[rank + 1]) >= 1);
    switch_tree_destroy(switch_tree);
}

static void a_group_larger_than_a_node_gets_few_nodes_beneath_one_switch(void **state)
{
    struct switch_tree *switch_tree =
        make_cluster("n[1-6]", "SwitchName=x Nodes=n[1,3,5]\nSwitchName=y Nodes=n[2,4,6]");
    const struct mesh mesh = {.dp = 2, .tp = 8, .pp = 1};
    const uint64_t bytes[PLACE_AXES] = {1, 1, 1};
    const int slots[] = {4, 4, 4, 4, 4, 4};
    int order[RANKS];
    struct place_cost cost;

    place_all(switch_tree, mesh, bytes, slots, order, &cost);
    check_order(switch_tree, mesh, bytes, slots, order, &cost);
    assert_int_equal(cost.split_groups, 2);
    for (int group = 0; group < 2; group++) {
        const int *ranks = &order[group * 8];
        int changes = 0;

        for (int i = 1; i < 8; i++) {
            changes += ranks[i] != ranks[i - 1];
            assert_int_equal(switch_tree->above[ranks[i]], switch_tree->above[ranks[0]]);
        }
        assert_int_equal(changes, 1);
    }
    switch_tree_destroy(switch_tree);
}

static void what_cannot_be_placed_is_refused(void **state)
{
    struct switch_tree *switch_tree = make_cluster("n[1-2]", NULL);
    struct error err = {0};
    int order[RANKS];

    assert_int_equal(place_ranks(switch_tree, &(struct mesh){.dp = 9, .tp = 1, .pp = 1}, (uint64_t[]){1, 1, 1},
                                 (int[]){4, 4}, order, NULL, &err),
                     -1);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_non_null(strstr(err.text, "9 ranks do not fit the 8 slots of 2 nodes"));
    assert_int_equal(place_ranks(switch_tree, &(struct mesh){.dp = 2, .tp = 0, .pp = 1}, (uint64_t[]){1, 1, 1},
                                 (int[]){4, 4}, order, NULL, &err),
                     -1);
    assert_int_equal(place_ranks(switch_tree, &(struct mesh){.dp = 2, .tp = 1, .pp = 1}, (uint64_t[]){1, 1, 1},
                                 (int[]){4, -1}, order, NULL, &err),
                     -1);
    assert_int_equal(place_ranks(switch_tree, &(struct mesh){.dp = 2, .tp = 1, .pp = 1}, (uint64_t[]){UINT64_MAX, 1, 1},
                                 (int[]){4, 1}, order, NULL, &err),
                     -1);
    assert_int_equal(place_ranks(switch_tree, &(struct mesh){.dp = 1 << 30, .tp = 4, .pp = 1}, (uint64_t[]){1, 1, 1},
                                 (int[]){4, 1}, order, NULL, &err),
                     -1);
    switch_tree_destroy(switch_tree);
}

/* ---- what a job sends ---- */

static void the_bytes_of_a_job_are_those_of_the_formulas(void **state)
{
    struct job job = {
        .model = {.layers = 8, .hidden = 64, .heads = 4, .seq_length = 32, .vocab = 256},
        .batch = {.global_batch = 64, .micro_batch = 2},
        .parallel = {.tp = 2, .pp = 2, .chunks = 1, .zero = 1, .reduce = REDUCE_STEP},
        .precision = {.compute = DTYPE_BF16, .reduce = DTYPE_F32},
    };
    const struct mesh mesh = {.dp = 4, .tp = 2, .pp = 2}, alone = {.dp = 1, .tp = 1, .pp = 1};
    const struct mesh flat = {.dp = 4, .tp = 1, .pp = 1}, crowded = {.dp = 128, .tp = 1, .pp = 1};
    const uint64_t activations = 64 / 4 * 32 * 64 * 2; /* of a replica's samples, at one place in the model */
    const double parameters = (double)model_parameters(&job.model);
    uint64_t bytes[PLACE_AXES];

    place_bytes(&job, &mesh, bytes);
    assert_int_equal(bytes[PLACE_PP], 2 * activations / 2);
    /* 4 layers of 4 exchanges forward and 6 backward, and the head's 2; (tp - 1) / tp is 1 / 2 */
    assert_in_range(bytes[PLACE_TP], 4 * 10 * activations / 2, 4 * 10 * activations / 2 + activations);
    place_bytes(&job, &flat, bytes);
    assert_in_range(bytes[PLACE_DP], (uint64_t)(parameters * 3 / 4 * 6), (uint64_t)(parameters * 3 / 4 * 6 * 1.1));
    job.parallel.chunks = 2;
    job.parallel.zero = 3;
    job.parallel.recompute = RECOMPUTE_FULL;
    place_bytes(&job, &mesh, bytes);
    assert_int_equal(bytes[PLACE_PP], 4 * activations / 2);
    assert_in_range(bytes[PLACE_TP], 4 * 13 * activations / 2, 4 * 13 * activations / 2 + activations);
    job.parallel.chunks = 1;
    place_bytes(&job, &alone, bytes);
    assert_int_equal(bytes[PLACE_DP] + bytes[PLACE_PP] + bytes[PLACE_TP], 0);
    bytes[PLACE_DP] = 7;
    place_bytes(&job, &crowded, bytes);
    assert_int_equal(bytes[PLACE_DP], 7);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(traffic_is_counted_where_nodes_meet),
        cmocka_unit_test(the_heavier_axis_stays_beneath_a_switch),
        cmocka_unit_test(tensor_groups_stay_whole_where_they_can),
        cmocka_unit_test(a_group_larger_than_a_node_gets_few_nodes_beneath_one_switch),
        cmocka_unit_test(what_cannot_be_placed_is_refused),
        cmocka_unit_test(the_bytes_of_a_job_are_those_of_the_formulas),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Ranks on nodes: the best of all orders on every tree of up to 7 nodes, tp groups whole where they can be, and a cost
 * that is right by hand.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "srun-plugin/place_bytes.h"

#define RANKS 64

static struct cluster *make(const char *nodes, const char *text)
{
    struct error err = {0};
    struct hostlist *list = hostlist_create(nodes, &err);
    struct cluster *cluster = list ? cluster_create(list, text, "test", &err) : NULL;

    if (!cluster)
        fail_msg("%s", err.text);
    hostlist_destroy(list);
    return cluster;
}

static void place(const struct cluster *cluster, struct mesh mesh, const uint64_t *bytes, const int *slots, int *order,
                  struct place_report *report)
{
    struct error err = {0};

    if (place_ranks(cluster, &mesh, bytes, slots, order, report, &err) < 0)
        fail_msg("%s", err.text);
}

/* Whatever the order: nobody gets more than its slots, and the report is what the order costs. */
static void check_order(const struct cluster *cluster, struct mesh mesh, const uint64_t *bytes, const int *slots,
                        const int *order, const struct place_report *report)
{
    uint64_t traffic[PLACE_LEVELS + 1];
    int used[RANKS] = {0};

    for (int rank = 0; rank < mesh_world(&mesh); rank++) {
        assert_in_range(order[rank], 0, cluster->node_count - 1);
        assert_true(used[order[rank]]++ < slots[order[rank]]);
    }
    place_traffic(cluster, &mesh, bytes, order, traffic);
    assert_memory_equal(traffic, report->traffic, ((size_t)cluster->levels + 1) * sizeof *traffic);
}

/* ---- by hand ---- */

static void traffic_is_counted_where_nodes_meet(void **state)
{
    struct cluster *cluster = make("a,b,c,d", "SwitchName=x Nodes=a,b\nSwitchName=y Nodes=c,d");
    const struct mesh mesh = {.dp = 2, .tp = 2, .pp = 2};
    const uint64_t bytes[PLACE_AXES] = {[PLACE_DP] = 100, [PLACE_PP] = 10, [PLACE_TP] = 1};
    const int order[] = {0, 0, 1, 1, 2, 2, 3, 3}, turned[] = {0, 0, 2, 2, 1, 1, 3, 3},
              split[] = {0, 1, 0, 1, 2, 3, 2, 3};
    uint64_t traffic[3];

    (void)state;
    place_traffic(cluster, &mesh, bytes, order, traffic);
    assert_int_equal(traffic[0], 4 * 10);  /* 2 cells of 2 ranks: stage to stage, between x and y */
    assert_int_equal(traffic[1], 8 * 100); /* every rank to the next of its ring of 2, a to b, b to a, ... */
    assert_int_equal(traffic[2], 8 * 1);
    place_traffic(cluster, &mesh, bytes, turned, traffic);
    assert_int_equal(traffic[0], 8 * 100);
    assert_int_equal(traffic[1], 4 * 10);
    assert_int_equal(traffic[2], 8 * 1);
    place_traffic(cluster, &mesh, bytes, split, traffic);
    assert_int_equal(traffic[0], 4 * 10);
    assert_int_equal(traffic[1], 8 * 1);
    assert_int_equal(traffic[2], 8 * 100);
    assert_true(place_compare((uint64_t[]){1, 9}, (uint64_t[]){2, 0}, 2) < 0);
    assert_true(place_compare((uint64_t[]){1, 9}, (uint64_t[]){1, 9}, 2) == 0);
    assert_true(place_compare((uint64_t[]){1, 9}, (uint64_t[]){1, 8}, 2) > 0);
    cluster_destroy(cluster);
}

/* Equal slots, groups that divide: whole groups of the heavier axis beneath a switch. The answers are arithmetic. */
static void the_heavier_axis_stays_beneath_a_switch(void **state)
{
    struct cluster *cluster = make("n[1-16]", "SwitchName=s1 Nodes=n[1,5,9,13]\nSwitchName=s2 Nodes=n[2,6,10,14]\n"
                                              "SwitchName=s3 Nodes=n[3,7,11,15]\nSwitchName=s4 Nodes=n[4,8,12,16]");
    const struct mesh mesh = {.dp = 4, .tp = 2, .pp = 4};
    int slots[16], order[RANKS];
    struct place_report report;

    (void)state;
    for (int i = 0; i < 16; i++)
        slots[i] = 2;
    place(cluster, mesh, (uint64_t[]){[PLACE_DP] = 1000, [PLACE_PP] = 10, [PLACE_TP] = 5}, slots, order, &report);
    assert_int_equal(report.traffic[0],
                     3 * 4 * 2 * 10); /* three boundaries between stages; no ring leaves its switch */
    assert_int_equal(report.traffic[1], 4 * 4 * 2 * 1000);
    place(cluster, mesh, (uint64_t[]){[PLACE_DP] = 10, [PLACE_PP] = 1000, [PLACE_TP] = 5}, slots, order, &report);
    assert_int_equal(report.traffic[0],
                     4 * 4 * 2 * 10); /* four rings through four switches; no pipeline leaves its own */
    assert_int_equal(report.traffic[1], 3 * 4 * 2 * 1000);
    place(cluster, mesh, (uint64_t[]){[PLACE_DP] = 10, [PLACE_PP] = 10, [PLACE_TP] = 5}, slots, order, &report);
    assert_int_equal(report.traffic[0],
                     (4 * 2 + 4) * 2 * 10); /* tiles of 2 x 2: two cuts of each ring, one of each line */
    cluster_destroy(cluster);
}

/* ---- tp ---- */

static void tensor_groups_stay_whole_where_they_can(void **state)
{
    struct cluster *cluster = make("n[1-5]", "SwitchName=x Nodes=n[1-2]\nSwitchName=y Nodes=n[3-5]");
    const uint64_t bytes[PLACE_AXES] = {1, 1, 1};
    const int slots[] = {3, 5, 4, 1, 3};
    int order[RANKS];
    struct place_report report;

    (void)state;
    place(cluster, (struct mesh){.dp = 6, .tp = 2, .pp = 1}, bytes, slots, order, &report); /* 1 + 2 + 2 + 0 + 1 */
    check_order(cluster, (struct mesh){.dp = 6, .tp = 2, .pp = 1}, bytes, slots, order, &report);
    assert_int_equal(report.split_groups, 0);
    for (int rank = 0; rank < 12; rank += 2)
        assert_int_equal(order[rank], order[rank + 1]);
    place(cluster, (struct mesh){.dp = 8, .tp = 2, .pp = 1}, bytes, slots, order,
          &report); /* two more: one in x, one in y */
    check_order(cluster, (struct mesh){.dp = 8, .tp = 2, .pp = 1}, bytes, slots, order, &report);
    assert_int_equal(report.split_groups, 2);
    for (int rank = 0; rank < 16; rank += 2)
        assert_true(cluster_meet(cluster, order[rank], order[rank + 1]) >= 1);
    cluster_destroy(cluster);
}

static void a_group_larger_than_a_node_gets_few_nodes_beneath_one_switch(void **state)
{
    struct cluster *cluster = make("n[1-6]", "SwitchName=x Nodes=n[1,3,5]\nSwitchName=y Nodes=n[2,4,6]");
    const struct mesh mesh = {.dp = 2, .tp = 8, .pp = 1};
    const uint64_t bytes[PLACE_AXES] = {1, 1, 1};
    const int slots[] = {4, 4, 4, 4, 4, 4};
    int order[RANKS];
    struct place_report report;

    (void)state;
    place(cluster, mesh, bytes, slots, order, &report);
    check_order(cluster, mesh, bytes, slots, order, &report);
    assert_int_equal(report.split_groups, 2);
    for (int group = 0; group < 2; group++) {
        const int *ranks = &order[group * 8];
        int changes = 0;

        for (int i = 1; i < 8; i++) {
            changes += ranks[i] != ranks[i - 1];
            assert_int_equal(cluster->above[ranks[i]], cluster->above[ranks[0]]);
        }
        assert_int_equal(changes, 1);
    }
    cluster_destroy(cluster);
}

static void what_cannot_be_placed_is_refused(void **state)
{
    struct cluster *cluster = make("n[1-2]", NULL);
    struct error err = {0};
    int order[RANKS];

    (void)state;
    assert_int_equal(place_ranks(cluster, &(struct mesh){.dp = 9, .tp = 1, .pp = 1}, (uint64_t[]){1, 1, 1},
                                 (int[]){4, 4}, order, NULL, &err),
                     -1);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_non_null(strstr(err.text, "9 ranks do not go into the 8 slots of 2 nodes"));
    assert_int_equal(place_ranks(cluster, &(struct mesh){.dp = 2, .tp = 0, .pp = 1}, (uint64_t[]){1, 1, 1},
                                 (int[]){4, 4}, order, NULL, &err),
                     -1);
    assert_int_equal(place_ranks(cluster, &(struct mesh){.dp = 2, .tp = 1, .pp = 1}, (uint64_t[]){1, 1, 1},
                                 (int[]){4, -1}, order, NULL, &err),
                     -1);
    assert_int_equal(place_ranks(cluster, &(struct mesh){.dp = 2, .tp = 1, .pp = 1}, (uint64_t[]){UINT64_MAX, 1, 1},
                                 (int[]){4, 1}, order, NULL, &err),
                     -1);
    assert_int_equal(place_ranks(cluster, &(struct mesh){.dp = 1 << 30, .tp = 4, .pp = 1}, (uint64_t[]){1, 1, 1},
                                 (int[]){4, 1}, order, NULL, &err),
                     -1);
    cluster_destroy(cluster);
}

/* ---- what a job sends ---- */

static void the_bytes_of_a_job_are_those_of_the_formulas(void **state)
{
    struct job job = {
        .model = {.layers = 8, .hidden = 64, .heads = 4, .seq_length = 32, .vocab = 256, .kind = MODEL_GPT},
        .batch = {.global_batch = 64, .micro_batch = 2},
        .parallel = {.tp = 2, .pp = 2, .chunks = 1},
        .precision = {.compute = DTYPE_BF16, .reduce = DTYPE_F32},
    };
    const struct mesh mesh = {.dp = 4, .tp = 2, .pp = 2}, alone = {.dp = 1, .tp = 1, .pp = 1};
    const uint64_t activations = 64 / 4 * 32 * 64 * 2; /* of a replica's samples, at one place in the model */
    const uint64_t parameters = model_parameters(&job.model) / 4;
    uint64_t bytes[PLACE_AXES];

    (void)state;
    place_bytes(&job, &mesh, bytes);
    assert_in_range(bytes[PLACE_DP], parameters * 3 / 4 * 6 - 8, parameters * 3 / 4 * 6 + 8);
    assert_int_equal(bytes[PLACE_PP], 2 * activations / 2);
    assert_int_equal(bytes[PLACE_TP], 2 * 2 * 4 * activations); /* passes, all-reduces, layers; 2 (tp - 1) / tp is 1 */
    job.parallel.chunks = 2;
    job.parallel.zero = 3;
    job.parallel.recompute = RECOMPUTE_FULL;
    place_bytes(&job, &mesh, bytes);
    assert_in_range(bytes[PLACE_DP], parameters * 3 / 4 * 8 - 8, parameters * 3 / 4 * 8 + 8);
    assert_int_equal(bytes[PLACE_PP], 4 * activations / 2);
    assert_int_equal(bytes[PLACE_TP], 3 * 2 * 4 * activations);
    place_bytes(&job, &alone, bytes);
    assert_int_equal(bytes[PLACE_DP] + bytes[PLACE_PP] + bytes[PLACE_TP], 0);
}

/* ---- against brute force ---- */

struct brute {
    const struct cluster *cluster;
    struct mesh mesh;
    const uint64_t *bytes;
    int left[8]; /* seats for tp groups on each node */
    int order[RANKS];
    uint64_t best[PLACE_LEVELS + 1];
    bool any;
    long orders;
};

/* Every way to give tp groups to nodes, with no thought of what is alike or hopeless. */
static void try_all(struct brute *brute, int cell)
{
    uint64_t traffic[PLACE_LEVELS + 1];

    if (cell == brute->mesh.dp * brute->mesh.pp) {
        brute->orders++;
        place_traffic(brute->cluster, &brute->mesh, brute->bytes, brute->order, traffic);
        if (!brute->any || place_compare(traffic, brute->best, brute->cluster->levels) < 0)
            memcpy(brute->best, traffic, sizeof brute->best);
        brute->any = true;
        return;
    }
    for (int node = 0; node < brute->cluster->node_count; node++) {
        if (!brute->left[node])
            continue;
        brute->left[node]--;
        for (int i = 0; i < brute->mesh.tp; i++)
            brute->order[cell * brute->mesh.tp + i] = node;
        try_all(brute, cell + 1);
        brute->left[node]++;
    }
}

static long expect_the_best(const struct cluster *cluster, struct mesh mesh, const uint64_t *bytes, const int *slots)
{
    struct brute brute = {.cluster = cluster, .mesh = mesh, .bytes = bytes};
    struct place_report report;
    int order[RANKS];

    for (int node = 0; node < cluster->node_count; node++)
        brute.left[node] = slots[node] / mesh.tp;
    try_all(&brute, 0);
    place(cluster, mesh, bytes, slots, order, &report);
    check_order(cluster, mesh, bytes, slots, order, &report);
    assert_true(report.exact);
    assert_int_equal(report.split_groups, 0);
    if (place_compare(report.traffic, brute.best, cluster->levels) != 0)
        fail_msg("dp %d pp %d on %d nodes: %lu at the top, and %lu would do", mesh.dp, mesh.pp, cluster->node_count,
                 (unsigned long)report.traffic[0], (unsigned long)brute.best[0]);
    return brute.orders;
}

static const uint64_t weights[][PLACE_AXES] = {{7, 2, 1}, {2, 7, 1}, {3, 3, 1}};

/*
 * Every grouping of n nodes under switches is a word over switch numbers, each new one the next: restricted growth
 * strings. With a switch number 0 standing for "beneath the root" too, single nodes without a switch are there as well.
 */
static void describe(const int *group, int nodes, int unnamed, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int at = unnamed ? 1 : 0; at < nodes; at++) {
        bool any = false;

        for (int i = 0; i < nodes; i++)
            if (group[i] == at) {
                used += (size_t)snprintf(text + used, size - used, any ? ",n%d" : "SwitchName=s%d Nodes=n%d",
                                         any ? i : at, i);
                any = true;
            }
        if (any)
            used += (size_t)snprintf(text + used, size - used, "\n");
    }
}

static bool next_grouping(int *group, int nodes)
{
    for (int i = nodes - 1; i > 0; i--) {
        int most = 0;

        for (int j = 0; j < i; j++)
            most = group[j] > most ? group[j] : most;
        if (group[i] <= most) {
            group[i]++;
            for (int j = i + 1; j < nodes; j++)
                group[j] = 0;
            return true;
        }
    }
    return false;
}

static long compare_meshes(const struct cluster *cluster, int groups, const int *slots)
{
    long orders = 0;

    for (int pp = 1; pp <= groups; pp++)
        if (groups % pp == 0)
            for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
                orders +=
                    expect_the_best(cluster, (struct mesh){.dp = groups / pp, .tp = 2, .pp = pp}, weights[i], slots);
    return orders;
}

static void every_tree_of_up_to_seven_nodes_is_placed_as_well_as_by_brute_force(void **state)
{
    bool all = getenv("MUSTER_CHECK_FULL") != NULL;
    int trees = 0;

    (void)state;
    for (int nodes = 2; nodes <= 7; nodes++) {
        int group[7] = {0}, slots[7], turn = 0;
        char list[16], text[512];

        for (int i = 0; i < nodes; i++)
            slots[i] = 2;
        snprintf(list, sizeof list, "n[0-%d]", nodes - 1);
        do {
            struct cluster *cluster;

            if (nodes == 7 && !all && turn++ % 59) /* 877 groupings of 7 nodes, 5040 orders each */
                continue;
            describe(group, nodes, 0, text, sizeof text);
            cluster = make(list, text);
            compare_meshes(cluster, nodes, slots);
            if (nodes > 3) /* a node to spare */
                compare_meshes(cluster, nodes - 1, slots);
            cluster_destroy(cluster);
            trees++;
            describe(group, nodes, 1, text, sizeof text);
            cluster = make(list, text);
            compare_meshes(cluster, nodes, slots);
            cluster_destroy(cluster);
        } while (next_grouping(group, nodes));
    }
    assert_true(trees > 280);
}

/* Nodes of different size, several groups on each, three levels of switches. */
static void uneven_nodes_are_placed_as_well_as_by_brute_force(void **state)
{
    static const char *const trees[] = {
        "SwitchName=a Nodes=n[0,3]\nSwitchName=b Nodes=n[1,4]\nSwitchName=c Nodes=n2\nSwitchName=ab Switches=a,b",
        "SwitchName=a Nodes=n[0-1]\nSwitchName=b Nodes=n[2-4]",
        "SwitchName=a Nodes=n[0,2,4]",
        "",
    };
    static const int slots[][5] = {{2, 4, 2, 4, 4}, {6, 2, 2, 2, 4}, {4, 4, 4, 3, 2}, {0, 5, 3, 8, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++)
        for (size_t j = 0; j < sizeof slots / sizeof *slots; j++) {
            struct cluster *cluster = make("n[0-4]", trees[i]);
            long orders = 0;

            for (int groups = 4; groups <= 8; groups += 2) {
                int room = 0;

                for (int node = 0; node < 5; node++)
                    room += slots[j][node] / 2;
                if (room >= groups)
                    orders += compare_meshes(cluster, groups, slots[j]);
            }
            assert_true(orders > 1000);
            cluster_destroy(cluster);
        }
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
        cmocka_unit_test(every_tree_of_up_to_seven_nodes_is_placed_as_well_as_by_brute_force),
        cmocka_unit_test(uneven_nodes_are_placed_as_well_as_by_brute_force),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

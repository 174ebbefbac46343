/*
 * Ranks on nodes against brute force: the best of all orders, on every tree of up to 7 nodes (a sample of those of 7;
 * all with MUSTER_CHECK_FULL), and where nodes are uneven.
 */
#include "tests/unit/place_switches.h"

struct brute {
    const struct switch_tree *switch_tree;
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
        place_traffic(brute->switch_tree, &brute->mesh, brute->bytes, brute->order, traffic);
        if (!brute->any || place_compare(traffic, brute->best, brute->switch_tree->levels) < 0)
            memcpy(brute->best, traffic, sizeof brute->best);
        brute->any = true;
        return;
    }
    for (int node = 0; node < brute->switch_tree->node_count; node++) {
        if (!brute->left[node])
            continue;
        brute->left[node]--;
        for (int i = 0; i < brute->mesh.tp; i++)
            brute->order[cell * brute->mesh.tp + i] = node;
        try_all(brute, cell + 1);
        brute->left[node]++;
    }
}

static long expect_the_best(const struct switch_tree *switch_tree, struct mesh mesh, const uint64_t *bytes,
                            const int *slots)
{
    struct brute brute = {.switch_tree = switch_tree, .mesh = mesh, .bytes = bytes};
    struct place_cost cost;
    int order[RANKS];

    for (int node = 0; node < switch_tree->node_count; node++)
        brute.left[node] = slots[node] / mesh.tp;
    try_all(&brute, 0);
    place_all(switch_tree, mesh, bytes, slots, order, &cost);
    check_order(switch_tree, mesh, bytes, slots, order, &cost);
    assert_true(cost.exact);
    assert_int_equal(cost.split_groups, 0);
    if (place_compare(cost.traffic, brute.best, switch_tree->levels) != 0)
        fail_msg("dp %d pp %d on %d nodes: %lu at the top, and %lu would do", mesh.dp, mesh.pp, switch_tree->node_count,
                 (unsigned long)cost.traffic[0], (unsigned long)brute.best[0]);
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

static long compare_meshes(const struct switch_tree *switch_tree, int groups, const int *slots)
{
    long orders = 0;

    for (int pp = 1; pp <= groups; pp++)
        if (groups % pp == 0)
            for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
                orders += expect_the_best(switch_tree, (struct mesh){.dp = groups / pp, .tp = 2, .pp = pp}, weights[i],
                                          slots);
    return orders;
}

static void every_tree_of_up_to_seven_nodes_is_placed_as_well_as_by_brute_force(void **state)
{
    bool all = getenv("MUSTER_CHECK_FULL") != NULL;
    int trees = 0;

    for (int nodes = 2; nodes <= 7; nodes++) {
        int group[7] = {0}, slots[7], turn = 0;
        char list[16], text[512];

        for (int i = 0; i < nodes; i++)
            slots[i] = 2;
        snprintf(list, sizeof list, "n[0-%d]", nodes - 1);
        do {
            struct switch_tree *switch_tree;

            if (nodes == 7 && !all && turn++ % 59) /* 877 groupings of 7 nodes, 5040 orders each */
                continue;
            describe(group, nodes, 0, text, sizeof text);
            switch_tree = make_cluster(list, text);
            compare_meshes(switch_tree, nodes, slots);
            if (nodes > 3) /* a node to spare */
                compare_meshes(switch_tree, nodes - 1, slots);
            switch_tree_destroy(switch_tree);
            trees++;
            describe(group, nodes, 1, text, sizeof text);
            switch_tree = make_cluster(list, text);
            compare_meshes(switch_tree, nodes, slots);
            switch_tree_destroy(switch_tree);
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

    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++)
        for (size_t j = 0; j < sizeof slots / sizeof *slots; j++) {
            struct switch_tree *switch_tree = make_cluster("n[0-4]", trees[i]);
            long orders = 0;

            for (int groups = 4; groups <= 8; groups += 2) {
                int room = 0;

                for (int node = 0; node < 5; node++)
                    room += slots[j][node] / 2;
                if (room >= groups)
                    orders += compare_meshes(switch_tree, groups, slots[j]);
            }
            assert_true(orders > 1000);
            switch_tree_destroy(switch_tree);
        }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tree_of_up_to_seven_nodes_is_placed_as_well_as_by_brute_force),
        cmocka_unit_test(uneven_nodes_are_placed_as_well_as_by_brute_force),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Simulated clusters: 2 to 4 levels of switches or blocks, up to 4096 nodes, allocations with holes. Across the
 * switches at the top there is never more traffic than in Slurm's order, and on scattered allocations at most half of
 * what sorted names give. A sample of the seeds; all 500 with MUSTER_CHECK_FULL.
 */
#include "plan/place.h"
#include "srun-plugin/order/order.h"
#include "tests/cmocka_test.h"

#define NODES 4096

/* A small generator of its own (splitmix64): the same clusters on every machine. */
static uint64_t state_of_random;

static uint64_t next_random(void)
{
    uint64_t z = state_of_random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static int between(int least, int most)
{
    return least + (int)(next_random() % (uint64_t)(most - least + 1));
}

struct simulated {
    char *text;    /* topology.conf */
    char *list;    /* the allocation, in Slurm's order */
    int nodes;     /* allocated */
    int widths[4]; /* children of a switch, from the top down; the last is nodes */
    int levels;
    bool blocks; /* two levels, as topology/block has them: no switch above is named */
};

static void shuffle(int *numbers, int count)
{
    for (int i = count - 1; i > 0; i--) {
        int j = between(0, i), swap = numbers[i];

        numbers[i] = numbers[j];
        numbers[j] = swap;
    }
}

static void write_switches(FILE *out, const struct simulated *sim, const int *numbers, int machines)
{
    int leaf = sim->widths[sim->levels - 1], below = machines / leaf;

    for (int i = 0; i < below; i++) {
        fprintf(out, sim->blocks ? "BlockName=s0x%d Nodes=" : "SwitchName=s0x%d Nodes=", i);
        for (int j = 0; j < leaf; j++)
            fprintf(out, "%sn%d", j ? "," : "", numbers[i * leaf + j]);
        fprintf(out, "\n");
    }
    for (int level = sim->levels - 2; level >= 0 && !sim->blocks; level--) {
        int width = sim->widths[level], here = below / width, tier = sim->levels - 1 - level;

        for (int i = 0; i < here; i++)
            fprintf(out, "SwitchName=s%dx%d Switches=s%dx[%d-%d]\n", tier, i, tier - 1, i * width,
                    i * width + width - 1);
        below = here;
    }
}

static void build(struct simulated *sim, bool scattered, int machines, int share)
{
    int *numbers = malloc((size_t)machines * sizeof *numbers);
    size_t size;
    FILE *out;

    assert_non_null(numbers);
    for (int i = 0; i < machines; i++)
        numbers[i] = i + 1;
    if (scattered)
        shuffle(numbers, machines);
    out = open_memstream(&sim->text, &size);
    write_switches(out, sim, numbers, machines);
    fclose(out);
    out = open_memstream(&sim->list, &size);
    sim->nodes = 0;
    for (int i = 0; i < machines; i++)
        if (between(1, 100) <= share || (i == machines - 1 && sim->nodes == 0)) {
            fprintf(out, "%sn%d", sim->nodes ? "," : "", i + 1);
            sim->nodes++;
        }
    fclose(out);
    free(numbers);
}

/* A machine of 2 to 4 levels with random widths, of which `share` percent of the nodes were allocated. */
static void simulate(struct simulated *sim, bool scattered, int most, int share)
{
    int machines = 1;

    sim->levels = between(2, 4);
    for (int i = 0; i < sim->levels; i++) {
        int limit = most / machines / (1 << (sim->levels - 1 - i)), widest = i == sim->levels - 1 ? 32 : 16;

        sim->widths[i] = between(2, limit < widest ? limit : widest);
        machines *= sim->widths[i];
    }
    sim->blocks = sim->levels == 2 && between(0, 1);
    build(sim, scattered, machines, share);
}

static struct switch_tree *make(const struct simulated *sim)
{
    struct error err = {0};
    struct switch_tree *switch_tree = switch_tree_create(sim->list, sim->text, "simulated", &err);

    if (!switch_tree)
        fail_msg("%s", err.text);
    return switch_tree;
}

/* pp is some divisor of the number of tp groups. */
static struct mesh choose_mesh(int groups, int tp)
{
    int pp = 1;

    for (int tries = 0; tries < 8; tries++) {
        int at = between(1, 16);

        if (groups % at == 0)
            pp = at;
    }
    return (struct mesh){.dp = groups / pp, .tp = tp, .pp = pp};
}

static int by_name(const void *a, const void *b, void *names)
{
    return strcmp(((char **)names)[*(const int *)a], ((char **)names)[*(const int *)b]);
}

static void sort_names(const struct switch_tree *switch_tree, int *nodes)
{
    for (int i = 0; i < switch_tree->node_count; i++)
        nodes[i] = i;
    qsort_r(nodes, (size_t)switch_tree->node_count, sizeof *nodes, by_name, switch_tree->nodes);
}

struct outcome {
    uint64_t ours, slurm, alphabetical; /* at the top */
};

static struct outcome place(const struct switch_tree *switch_tree, struct mesh mesh, const uint64_t *bytes,
                            const int *slots)
{
    int world = mesh_world(&mesh), *order = calloc((size_t)world, sizeof *order);
    int *nodes = calloc((size_t)switch_tree->node_count, sizeof *nodes), *used = calloc(NODES, sizeof *used);
    uint64_t traffic[PLACE_LEVELS + 1];
    struct place_cost cost;
    struct outcome outcome;
    struct error err = {0};

    assert_non_null(order);
    assert_non_null(nodes);
    assert_non_null(used);
    if (place_ranks(switch_tree, &mesh, bytes, slots, order, &cost, &err) < 0)
        fail_msg("%s", err.text);
    for (int rank = 0; rank < world; rank++) {
        assert_in_range(order[rank], 0, switch_tree->node_count - 1);
        assert_true(used[order[rank]]++ < slots[order[rank]]);
    }
    place_traffic(switch_tree, &mesh, bytes, order, traffic);
    assert_memory_equal(traffic, cost.traffic, ((size_t)switch_tree->levels + 1) * sizeof *traffic);
    outcome.ours = traffic[0];
    place_in_order(switch_tree, &mesh, slots, NULL, order);
    place_traffic(switch_tree, &mesh, bytes, order, traffic);
    outcome.slurm = traffic[0];
    sort_names(switch_tree, nodes);
    place_in_order(switch_tree, &mesh, slots, nodes, order);
    place_traffic(switch_tree, &mesh, bytes, order, traffic);
    outcome.alphabetical = traffic[0];
    free(order);
    free(nodes);
    free(used);
    return outcome;
}

static int seeds(int sample)
{
    return getenv("MUSTER_CHECK_FULL") ? 500 : sample;
}

static void choose_bytes(uint64_t *bytes)
{
    bytes[PLACE_DP] = 1u << between(10, 30);
    bytes[PLACE_PP] = 1u << between(10, 30);
    bytes[PLACE_TP] = 1u << between(10, 30);
}

static int compared; /* with sorted names */

static void check_seed(int seed, int most, bool scattered)
{
    struct simulated sim;
    struct switch_tree *switch_tree;
    struct mesh mesh;
    uint64_t bytes[PLACE_AXES];
    int *slots, per_node, tp, groups = 0, tops = 0;
    bool uneven;
    struct outcome got;

    state_of_random = (uint64_t)seed * 1000003u;
    simulate(&sim, scattered, most, between(30, 100));
    switch_tree = make(&sim);
    slots = calloc((size_t)switch_tree->node_count, sizeof *slots);
    assert_non_null(slots);
    tp = 1 << between(0, 3);
    per_node = 8 / tp;
    uneven = between(0, 3) == 0;
    for (int i = 0; i < switch_tree->node_count; i++) {
        slots[i] = tp * (uneven ? between(1, per_node) : per_node);
        groups += slots[i] / tp;
    }
    if (between(0, 1)) /* some slots stay free, so that there is a mesh with more than one stage */
        groups -= groups % 8 < groups ? groups % 8 : 0;
    mesh = choose_mesh(groups, tp);
    choose_bytes(bytes);
    got = place(switch_tree, mesh, bytes, slots);
    for (int i = 0; i < switch_tree->switch_count; i++)
        tops += switch_tree->switches[i].depth == 1;
    if (got.ours > got.slurm)
        fail_msg("seed %d: %lu at the top, %lu in Slurm's order", seed, (unsigned long)got.ours,
                 (unsigned long)got.slurm);
    /* A switch with a node or two lets a ring through whatever is done: there must be something to gather. */
    if (scattered && switch_tree->node_count >= 32 && switch_tree->node_count >= 4 * tops) {
        compared++;
        if (got.ours > got.alphabetical / 2)
            fail_msg("seed %d: %lu at the top, %lu with sorted names", seed, (unsigned long)got.ours,
                     (unsigned long)got.alphabetical);
    }
    switch_tree_destroy(switch_tree);
    free(slots);
    free(sim.text);
    free(sim.list);
}

static void never_above_slurms_order(void **state)
{
    for (int seed = 0; seed < seeds(60); seed++)
        check_seed(seed, seed % 20 ? 512 : NODES, false);
}

static void half_of_sorted_names_where_scattered(void **state)
{
    for (int seed = 0; seed < seeds(60); seed++)
        check_seed(seed, seed % 20 ? 512 : NODES, true);
    assert_true(compared > seeds(60) / 2);
}

/* The largest: 4096 nodes of 8 ranks each, four levels, a rank a tp group of its own. */
static void the_largest_machine_is_placed(void **state)
{
    struct simulated sim = {.levels = 4, .widths = {4, 8, 8, 16}};
    const struct mesh mesh = {.dp = 2048, .tp = 1, .pp = 16};
    int slots[NODES];
    struct switch_tree *switch_tree;
    struct outcome got;

    state_of_random = 4096;
    build(&sim, true, NODES, 100);
    switch_tree = make(&sim);
    assert_int_equal(switch_tree->node_count, NODES);
    for (int i = 0; i < NODES; i++)
        slots[i] = 8;
    got = place(switch_tree, mesh, (uint64_t[]){[PLACE_DP] = 9000, [PLACE_PP] = 10, [PLACE_TP] = 1}, slots);
    assert_int_equal(got.ours, 3 * 2048 * 10); /* 4 of 16 stages beneath each of 4 switches: 3 boundaries */
    got = place(switch_tree, mesh, (uint64_t[]){[PLACE_DP] = 1000, [PLACE_PP] = 10, [PLACE_TP] = 1}, slots);
    assert_int_equal(got.ours, 2048 * 10 + 2 * 8 * 2 * 1000); /* two halves of 8 stages, each two halves of its rings */
    got = place(switch_tree, mesh, (uint64_t[]){[PLACE_DP] = 10, [PLACE_PP] = 1000, [PLACE_TP] = 1}, slots);
    assert_int_equal(got.ours, 4 * 16 * 10); /* a quarter of each ring: 4 crossings of each of 16 */
    switch_tree_destroy(switch_tree);
    free(sim.text);
    free(sim.list);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_above_slurms_order),
        cmocka_unit_test(the_largest_machine_is_placed),
        cmocka_unit_test(half_of_sorted_names_where_scattered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Which node each rank gets, from what srun knows: the mesh of a job file, the counts, the switches. */
#include "common/job.h"
#include "srun-plugin/order/order.h"
#include "plan/place.h"
#include "tests/unit/place_switches.h"
#include "tests/unit/test_files.h"

/* Neighbours by name hang on different switches, as names tell nothing of cables. */
static const char scattered[] = "SwitchName=s1 Nodes=n[1,3,5,7]\nSwitchName=s2 Nodes=n[2,4,6,8]\n";
static const char in_turn[] = "SwitchName=s1 Nodes=n[1-4]\nSwitchName=s2 Nodes=n[5-8]\n";

static struct order *make_order(const struct job *job, const char *tasks, const char *topology)
{
    const struct order_request ask = {
        .job = job, .nodes = "n[1-8]", .tasks_per_node = tasks, .topology = topology, .where = "test"};
    struct error err = {0};
    struct order *order = order_create(&ask, &err);

    if (!order)
        fail_msg("%s", err.text);
    return order;
}

static struct job load(const char *parallel)
{
    const char *path = "test_order.cfg";
    struct error err;
    struct job job;
    char text[512];

    snprintf(text, sizeof text,
             "model = { preset = \"gpt-tiny\"; };\nparallel = { %s };\ndata = { train = \"train\"; };\n", parallel);
    write_text(path, text);
    if (job_load(&job, path, NULL, 0, &err) < 0)
        fail_msg("%s", err.text);
    remove(path);
    return job;
}

/* What any program gets: a node's ranks together, nodes beneath one switch in a row, rank 0 where it was. */
static void without_a_job_file_the_nodes_stand_in_a_row(void **state)
{
    static const int row[] = {0, 2, 4, 6, 1, 3, 5, 7};
    struct order *order = make_order(NULL, "2(x8)", scattered);

    assert_true(order->guessed);
    assert_false(order->keeps_slurm_order);
    assert_int_equal(order->node_of[0], 0);
    for (int rank = 0; rank < 16; rank++) {
        assert_int_equal(order->node_of[rank], order->node_of[rank & ~1]);
        assert_int_equal(order->node_of[rank] % 2, row[rank / 2] % 2);
    }
    order_destroy(order);
}

static void slurms_order_stays_where_no_other_is_better(void **state)
{
    struct order *order = make_order(NULL, "2(x8)", in_turn);

    assert_true(order->keeps_slurm_order);
    for (int rank = 0; rank < 16; rank++)
        assert_int_equal(order->node_of[rank], rank / 2);
    order_destroy(order);
    order = make_order(NULL, "2(x8)", NULL); /* no switches are known */
    assert_true(order->keeps_slurm_order);
    order_destroy(order);
    order = make_order(NULL, "3,1(x7)", scattered); /* ragged: each rank by itself */
    assert_int_equal(order->mesh.tp, 1);
    assert_int_equal(order->mesh.dp, 10);
    order_destroy(order);
}

static void the_mesh_is_the_job_files(void **state)
{
    struct job job = load("tp = 2; pp = 2;");
    struct order *order = make_order(&job, "2(x8)", scattered);

    assert_false(order->guessed);
    assert_int_equal(order->mesh.dp, 4);
    assert_int_equal(order->mesh.tp, 2);
    assert_int_equal(order->mesh.pp, 2);
    assert_int_equal(order->node_of[0], 0);
    for (int rank = 0; rank < 16; rank += 2)
        assert_int_equal(order->node_of[rank], order->node_of[rank + 1]);
    order_destroy(order);
    job_destroy(&job);
}

static void a_mesh_that_does_not_fit_is_an_error(void **state)
{
    struct job job = load("tp = 4;");
    const struct order_request ask = {
        .job = &job, .nodes = "n[1-8]", .tasks_per_node = "1(x7),3", .topology = scattered, .where = "t"};
    struct error err = {0};

    assert_null(order_create(&ask, &err));
    assert_non_null(strstr(err.text, "10"));
    job_destroy(&job);
}

static void another_order_can_be_shown(void **state)
{
    struct order *order = make_order(NULL, "2(x8)", scattered);
    uint64_t before = order->cost.traffic[0];
    int slurms[16];

    for (int rank = 0; rank < 16; rank++)
        slurms[rank] = rank / 2;
    order_replace(order, slurms);
    assert_true(order->cost.traffic[0] > before);
    assert_false(order->cost.exact);
    assert_memory_equal(order->node_of, slurms, sizeof slurms);
    order_destroy(order);
}

/* Turning rings and pipelines costs nothing: random orders keep their traffic at every depth. */
static void rank_0_comes_to_the_first_node_for_nothing(void **state)
{
    struct switch_tree *switch_tree = make_cluster("n[1-8]", scattered);
    const uint64_t bytes[PLACE_AXES] = {[PLACE_DP] = 7, [PLACE_PP] = 100, [PLACE_TP] = 3};
    unsigned seed = 1;
    int came = 0;

    for (int round = 0; round < 300; round++) {
        static const struct mesh meshes[] = {{2, 1, 4}, {4, 1, 2}, {8, 1, 1}, {1, 1, 8}, {4, 2, 1}, {2, 2, 2}};
        const struct mesh *mesh = &meshes[round % 6];
        int order[8], room[8], world = mesh_world(mesh), had = -1;
        uint64_t before[PLACE_LEVELS + 1], after[PLACE_LEVELS + 1];

        for (int i = 0; i < world; i++)
            order[i] = i;
        for (int i = world - 1; i > 0; i--) {
            int j = rand_r(&seed) % (i + 1), node = order[i];

            order[i] = order[j];
            order[j] = node;
        }
        for (int i = 0; i < world; i++)
            had = order[i] == 0 ? i : had;
        place_traffic(switch_tree, mesh, bytes, order, before);
        if (place_keep_first(mesh, order, room)) {
            assert_int_equal(order[0], 0);
            came++;
        } else {
            struct mesh_coords where = mesh_coords(mesh, had);

            assert_true(where.tp > 0 || (where.pp > 0 && where.pp < mesh->pp - 1));
        }
        place_traffic(switch_tree, mesh, bytes, order, after);
        assert_int_equal(place_compare(before, after, switch_tree->levels + 1), 0);
    }
    assert_in_range(came, 150, 299);
    switch_tree_destroy(switch_tree);
}

static void counts_are_taken_only_where_they_are_settled(void **state)
{
    char text[64];

    assert_int_equal(order_counts(4, "8", "2", NULL, text, sizeof text), 0);
    assert_string_equal(text, "2(x4)");
    assert_int_equal(order_counts(4, NULL, "2", NULL, text, sizeof text), 0);
    assert_string_equal(text, "2(x4)");
    assert_int_equal(order_counts(4, NULL, NULL, "2(x4)", text, sizeof text), 0); /* CPUs, where sbatch had no -n */
    assert_string_equal(text, "1(x4)");
    assert_int_equal(order_counts(4, "7", NULL, "2(x3),1", text, sizeof text), 0);
    assert_string_equal(text, "2(x3),1");
    assert_int_equal(order_counts(4, "6", NULL, "2(x3),1", text, sizeof text), -1);
    assert_int_equal(order_counts(4, "9", "2", NULL, text, sizeof text), -1);
    assert_int_equal(order_counts(4, "2-8", NULL, NULL, text, sizeof text), -1);
    assert_int_equal(order_counts(4, "6", NULL, NULL, text, sizeof text), -1);
    assert_int_equal(order_counts(4, "-1", NULL, NULL, text, sizeof text), -1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_job_file_the_nodes_stand_in_a_row),
        cmocka_unit_test(slurms_order_stays_where_no_other_is_better),
        cmocka_unit_test(the_mesh_is_the_job_files),
        cmocka_unit_test(a_mesh_that_does_not_fit_is_an_error),
        cmocka_unit_test(another_order_can_be_shown),
        cmocka_unit_test(rank_0_comes_to_the_first_node_for_nothing),
        cmocka_unit_test(counts_are_taken_only_where_they_are_settled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

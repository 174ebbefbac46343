/* Which ranks share a node, and that every shard has exactly one partner on another node, in every shape of job. */
#include "tests/cmocka_test.h"
#include "trainer/nodes.h"

#define STRIDE 8

static struct nodes make(const int *node_of, int world)
{
    char hosts[64 * STRIDE] = "";
    struct error err;
    struct nodes nodes;

    for (int rank = 0; rank < world; rank++)
        snprintf(hosts + rank * STRIDE, STRIDE, "n%d", node_of[rank]);
    assert_int_equal(nodes_find(&nodes, hosts, STRIDE, world, &err), 0);
    return nodes;
}

static void test_places(void **state)
{
    static const int node_of[] = {7, 7, 3, 7, 3, 9};
    struct nodes nodes = make(node_of, 6);

    assert_int_equal(nodes.count, 3);
    assert_int_equal(nodes.of[3], 0);
    assert_int_equal(nodes.local[3], 2);
    assert_int_equal(nodes.of[4], 1);
    assert_int_equal(nodes.local[4], 1);
    assert_int_equal(nodes.locals[0], 3);
    assert_int_equal(nodes.locals[2], 1);
    nodes_free(&nodes);
}

static void test_one_node_has_no_partner(void **state)
{
    static const int node_of[] = {0, 0, 0};
    struct nodes nodes = make(node_of, 3);

    assert_int_equal(nodes_rounds(&nodes), 0);
    nodes_free(&nodes);
}

/* What one sends in a round is what another receives in it, and each rank sends once in all. */
static void check_ring(const int *node_of, int world)
{
    struct nodes nodes = make(node_of, world);
    int sent[64] = {0};

    for (int round = 0; round < nodes_rounds(&nodes); round++)
        for (int rank = 0; rank < world; rank++) {
            int to, from, theirs_to, theirs_from;

            nodes_partners(&nodes, rank, round, &to, &from);
            if (to >= 0) {
                nodes_partners(&nodes, to, round, &theirs_to, &theirs_from);
                assert_int_equal(theirs_from, rank);
                assert_int_equal(nodes.of[to], (nodes.of[rank] + 1) % nodes.count);
                sent[rank]++;
            }
            if (from >= 0) {
                nodes_partners(&nodes, from, round, &theirs_to, &theirs_from);
                assert_int_equal(theirs_to, rank);
            }
        }
    for (int rank = 0; rank < world; rank++)
        assert_int_equal(sent[rank], nodes.count > 1);
    nodes_free(&nodes);
}

static void test_ring(void **state)
{
    srand(4711);
    for (int trial = 0; trial < 500; trial++) {
        int node_of[64], world = 1 + rand() % 64, most = 1 + rand() % 9;

        for (int rank = 0; rank < world; rank++)
            node_of[rank] = rand() % most;
        check_ring(node_of, world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_one_node_has_no_partner),
        cmocka_unit_test(test_ring),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

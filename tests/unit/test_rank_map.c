/* The map of ranks survives its text, broken texts are refused, and host file and map agree on who stands where. */
#include "common/mesh.h"
#include "srun-plugin/order/order.h"
#include "tests/cmocka_test.h"

static void round_trip(const int *map, int world, const char *expected)
{
    struct error err = {0};
    char *text = rank_map_text(map, world, &err);
    int *again = calloc((size_t)world, sizeof *again);

    if (!text)
        fail_msg("%s", err.text);
    if (expected)
        assert_string_equal(text, expected);
    if (rank_map_parse(text, world, again, &err) < 0)
        fail_msg("\"%s\": %s", text, err.text);
    assert_memory_equal(map, again, (size_t)world * sizeof *map);
    free(text);
    free(again);
}

static void maps_survive_their_text(void **state)
{
    round_trip((int[]){0}, 1, "0");
    round_trip((int[]){0, 1, 2, 3}, 4, "0-3");
    round_trip((int[]){1, 0}, 2, "1,0");
    round_trip((int[]){0, 1, 4, 5, 2, 3, 6, 7}, 8, "0-1,4-5,2-3,6-7");
    round_trip((int[]){0, 2, 4, 6, 1, 3, 5, 7}, 8, "0-6:2,1-7:2");
    round_trip((int[]){3, 2, 1, 0}, 4, "3,2,1,0");
    round_trip((int[]){0, 3, 1, 4, 2, 5}, 6, "0,3,1,4,2,5");
}

static void random_maps_survive(void **state)
{
    uint32_t random = 12345;
    int map[1000];

    for (int turn = 0; turn < 200; turn++) {
        int world = 1 + turn * 5, unit = 1 + turn % 9; /* shuffled in units, as tp groups are */

        for (int i = 0; i < world; i++)
            map[i] = i;
        for (int i = world / unit - 1; i > 0; i--) {
            int j;

            random = random * 1664525u + 1013904223u;
            j = (int)((random >> 8) % (uint32_t)(i + 1));
            for (int k = 0; k < unit; k++) {
                int swap = map[i * unit + k];

                map[i * unit + k] = map[j * unit + k];
                map[j * unit + k] = swap;
            }
        }
        round_trip(map, world, NULL);
    }
}

static void a_text_too_long_is_refused(void **state)
{
    enum { WORLD = 1 << 15 };
    int *map = calloc(WORLD, sizeof *map);
    struct error err = {0};

    for (int i = 0; i < WORLD; i++)
        map[i] = WORLD - 1 - i;
    assert_null(rank_map_text(map, WORLD, &err));
    assert_int_equal(err.code, CODE_CONFIG);
    for (int i = 0; i < WORLD; i++)
        map[i] = i ^ 8; /* runs of 8 */
    round_trip(map, WORLD, NULL);
    free(map);
}

static void broken_texts_are_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } broken[] = {
        {"", "a rank from 0 to 7"},
        {"0-6", "is for 7 ranks, but there are 8"},
        {"0-8", "character 3"},
        {"0-7,", "a rank from 0 to 7"},
        {"0-7,7", "rank 7 is listed twice"},
        {"0-3,2-5", "rank 2 is listed twice"},
        {"0--7", "a run must end"},
        {"7-0", "a run must end"},
        {"-1,0-6", "a rank from 0 to 7"},
        {"0-7:0", "the step"},
        {"0-7:2", "the step"},
        {"0-6:2:1,7", "\",\" or the end"},
        {" 0-7", "a rank from 0 to 7"},
        {"0-7 ", "\",\" or the end"},
        {"0-7x", "\",\" or the end"},
        {"0,,1-7", "character 3"},
        {"0-99999999999999999999", "a run must"},
        {"a", "a rank from 0 to 7"},
        {"0-6:2,1-7:99999999", "the step"},
    };

    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        struct error err = {0};
        int map[8];

        if (rank_map_parse(broken[i].text, 8, map, &err) == 0)
            fail_msg("\"%s\" was taken", broken[i].text);
        assert_int_equal(err.code, CODE_CONFIG);
        if (!strstr(err.text, broken[i].says))
            fail_msg("\"%s\": \"%s\" does not say \"%s\"", broken[i].text, err.text, broken[i].says);
    }
}

static void host_file_and_map_put_everybody_on_the_same_node(void **state)
{
    struct error err = {0};
    int node_of[] = {2, 2, 0, 0, 1, 1, 0, 2};
    struct order order = {.switch_tree = switch_tree_create("a,b,c", NULL, "", &err),
                          .mesh = {.dp = 8, .tp = 1, .pp = 1},
                          .node_of = node_of};
    const int slurm[] = {0, 0, 0, 1, 1, 2, 2, 2}; /* block distribution */
    const int other[] = {0, 0, 1, 1, 1, 2, 2, 2};
    int map[8], taken = 0;
    char *text = order_hostfile(&order, &err);

    assert_string_equal(text, "c\nc\na\na\nb\nb\na\nc\n");
    assert_int_equal(order_rank_map(&order, slurm, map, &err), 0);
    for (int rank = 0; rank < 8; rank++) {
        assert_int_equal(node_of[map[rank]], slurm[rank]);
        taken |= 1 << map[rank];
    }
    assert_int_equal(taken, 255);
    assert_memory_equal(map, ((int[]){2, 3, 6, 4, 5, 0, 1, 7}), sizeof map);
    assert_int_equal(order_rank_map(&order, other, map, &err), -1);
    assert_non_null(strstr(err.text, "Slurm has 2 ranks on node a, but the mesh has 3"));
    free(text);
    switch_tree_destroy(order.switch_tree);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_survive_their_text),
        cmocka_unit_test(random_maps_survive),
        cmocka_unit_test(a_text_too_long_is_refused),
        cmocka_unit_test(broken_texts_are_refused),
        cmocka_unit_test(host_file_and_map_put_everybody_on_the_same_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

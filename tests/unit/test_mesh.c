/* world = dp x pp x tp: every rank has one place, and even splits cover everything once. */
#include "common/mesh.h"
#include "tests/cmocka_test.h"

static void ranks_and_places_are_one_to_one(void **state)
{
    for (int tp = 1; tp <= 4; tp++)
        for (int pp = 1; pp <= 4; pp++)
            for (int dp = 1; dp <= 5; dp++) {
                struct mesh mesh;

                assert_int_equal(mesh_fit(&mesh, dp * tp * pp, tp, pp, NULL), 0);
                assert_int_equal(mesh.dp, dp);
                assert_int_equal(mesh_world(&mesh), dp * tp * pp);
                for (int rank = 0; rank < mesh_world(&mesh); rank++) {
                    struct mesh_coords place = mesh_coords(&mesh, rank);

                    assert_in_range(place.dp, 0, dp - 1);
                    assert_in_range(place.tp, 0, tp - 1);
                    assert_in_range(place.pp, 0, pp - 1);
                    assert_int_equal(mesh_rank(&mesh, place), rank);
                }
            }
}

static void tp_is_innermost_and_pp_outermost(void **state)
{
    struct mesh mesh;
    struct mesh_coords place;

    assert_int_equal(mesh_fit(&mesh, 24, 2, 3, NULL), 0); /* dp 4 */
    place = mesh_coords(&mesh, 1);
    assert_true(place.tp == 1 && place.dp == 0 && place.pp == 0);
    place = mesh_coords(&mesh, 2);
    assert_true(place.tp == 0 && place.dp == 1 && place.pp == 0);
    place = mesh_coords(&mesh, 8);
    assert_true(place.tp == 0 && place.dp == 0 && place.pp == 1);
    place = mesh_coords(&mesh, 23);
    assert_true(place.tp == 1 && place.dp == 3 && place.pp == 2);
}

static void a_world_that_does_not_divide_is_refused(void **state)
{
    struct mesh mesh;
    struct error err;

    assert_int_equal(mesh_fit(&mesh, 6, 4, 1, &err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_non_null(strstr(err.text, "6 ranks"));
    assert_non_null(strstr(err.text, "multiple of 4"));
    assert_int_equal(mesh_fit(&mesh, 0, 1, 1, &err), -1);
    assert_int_equal(mesh_fit(&mesh, 4, 0, 1, &err), -1);
    assert_int_equal(mesh_fit(&mesh, 4, 1, -1, &err), -1);
}

static void even_splits_cover_all_once(void **state)
{
    const long counts[] = {0, 1, 2, 7, 64, 1000, 1001, 123456789012345};

    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (int parts = 1; parts <= 17; parts++) {
            long end = 0;

            for (int i = 0; i < parts; i++) {
                long first, size = mesh_even_split(counts[c], parts, i, &first);

                assert_true(first == end);
                assert_true(size == counts[c] / parts || size == counts[c] / parts + 1);
                end = first + size;
            }
            assert_true(end == counts[c]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_and_places_are_one_to_one),
        cmocka_unit_test(tp_is_innermost_and_pp_outermost),
        cmocka_unit_test(a_world_that_does_not_divide_is_refused),
        cmocka_unit_test(even_splits_cover_all_once),
    };

    return cmocka_run_group_tests_name("mesh", tests, NULL, NULL);
}

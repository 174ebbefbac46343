/* Ranks that take longer than their like. */
#include <math.h>

#include "tests/cmocka_test.h"
#include "trainer/watch/straggler.h"

enum { RANKS = 8 };

static struct straggler found[RANKS];

/* groups NULL: all ranks have the same work. */
static int find_slow(const double *seconds, const int *groups, int ranks, double factor)
{
    struct rank_time times[RANKS];

    for (int rank = 0; rank < ranks; rank++)
        times[rank] = (struct rank_time){.seconds = (float)seconds[rank], .group = groups ? (float)groups[rank] : 0};
    return stragglers_find(found, times, ranks, factor);
}

static void names_the_slow_one(void **state)
{
    const double seconds[RANKS] = {0.230, 0.229, 0.228, 0.229, 0.229, 0.412, 0.231, 0.227};
    char text[128];

    assert_int_equal(find_slow(seconds, NULL, RANKS, 1.5), 1);
    assert_int_equal(found[0].rank, 5);
    straggler_text(text, sizeof text, &found[0], "n3");
    assert_string_equal(text, "rank 5 on n3 is 1.8 x slower than the median (412 ms against 229 ms a step)");
    assert_int_equal(find_slow(seconds, NULL, RANKS, 1.8), 0); /* 1.799 */
    assert_int_equal(find_slow(seconds, NULL, RANKS, 1.0), 3);
    assert_int_equal(found[0].rank, 5);
    assert_int_equal(found[1].rank, 6);
    assert_int_equal(found[2].rank, 0);
    assert_int_equal(find_slow(seconds, NULL, RANKS, 0), 0);
}

/* The median of two is the faster one, or nobody could ever be slower than twice of it. */
static void two_ranks(void **state)
{
    const double seconds[] = {3.0, 1.0};

    assert_int_equal(find_slow(seconds, NULL, 2, 2.5), 1);
    assert_int_equal(found[0].rank, 0);
    assert_int_equal(find_slow(seconds, NULL, 1, 1.5), 0);
}

/* A stage with twice the layers is no straggler; one that is slower than the rest of its stage is. */
static void stages_have_their_own_median(void **state)
{
    const double seconds[RANKS] = {1, 1, 1, 1.7, 2, 2, 2, 2.9};
    const int stages[RANKS] = {0, 0, 0, 0, 1, 1, 1, 1}, mixed[RANKS] = {0, 1, 0, 1, 0, 1, 0, 1};

    assert_int_equal(find_slow(seconds, stages, RANKS, 1.5), 1);
    assert_int_equal(found[0].rank, 3);
    assert_true(found[0].median == 1);
    assert_int_equal(find_slow(seconds, stages, RANKS, 1.4), 2);
    assert_int_equal(found[1].rank, 7);
    assert_int_equal(find_slow(seconds, mixed, RANKS, 1.6), 3); /* 4 and 6 of medians 1; 7 of 1.7 */
    assert_int_equal(found[0].rank, 4);
    assert_int_equal(found[1].rank, 6);
    assert_int_equal(found[2].rank, 7);
}

static void noise_is_no_news(void **state)
{
    const double tiny[RANKS] = {1e-5, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5, 1e-3}, none[RANKS] = {0};

    assert_int_equal(find_slow(tiny, NULL, RANKS, 1.5), 0);
    assert_int_equal(find_slow(none, NULL, RANKS, 1.5), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_the_slow_one),
        cmocka_unit_test(two_ranks),
        cmocka_unit_test(stages_have_their_own_median),
        cmocka_unit_test(noise_is_no_news),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

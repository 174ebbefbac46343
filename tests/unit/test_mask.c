/* Random choices, and which tokens are masked by them. */
#include <math.h>

#include "common/philox.h"
#include "tests/cmocka_test.h"
#include "trainer/data/draws.h"

/* |hits - draws * p| within 5 standard deviations: wrong once in 1.7 million, and the draws are the same every time. */
static void assert_share(const char *what, double hits, double draws, double p)
{
    double bound = 5 * sqrt(draws * p * (1 - p));

    if (!(draws > 1000 && fabs(hits - draws * p) <= bound))
        fail_msg("%s: %g of %g, expected %g +- %g", what, hits, draws, draws * p, bound);
}

/* ---- draws ------------------------------------------------------------------------------------------------------- */

/* The header gives the words: they are those of a stream whose step is the number of the block. */
static void draws_are_philox(void **state)
{
    const uint64_t number = 0x123456789aull, seed = 0xfedcba9876543210ull;
    struct draws draws = draws_start(seed, 77, number);

    for (uint32_t i = 0; i < 40; i++) {
        uint32_t word = philox_u32((struct philox_stream){seed, 77, i / 4}, 4 * number + i % 4);

        assert_int_equal(draws_below(&draws, 1000003), (uint64_t)word * 1000003 >> 32);
    }
}

static void draws_are_even(void **state)
{
    static const uint32_t bounds[] = {1, 2, 3, 11, 256};
    struct draws draws = draws_start(1, 2, 3);

    for (size_t b = 0; b < sizeof bounds / sizeof bounds[0]; b++) {
        int hits[256] = {0};

        for (int i = 0; i < 100000; i++) {
            uint32_t value = draws_below(&draws, bounds[b]);

            assert_true(value < bounds[b]);
            hits[value]++;
        }
        for (uint32_t value = 0; value < bounds[b]; value++)
            assert_share("value", hits[value], 100000, 1.0 / bounds[b]);
    }
}

static void chances_come_true(void **state)
{
    struct draws draws = draws_start(4, 5, 6);
    int hits = 0;

    for (int i = 0; i < 100000; i++) {
        assert_false(draws_chance(&draws, 0));
        assert_true(draws_chance(&draws, 1));
        hits += draws_chance(&draws, 0.3);
    }
    assert_share("0.3", hits, 100000, 0.3);
}

/* ---- masks ------------------------------------------------------------------------------------------------------- */

static void counts_are_rounded_and_at_least_one(void **state)
{
    assert_int_equal(mask_count(0.15, 2), 1);
    assert_int_equal(mask_count(0.15, 9), 1);
    assert_int_equal(mask_count(0.15, 11), 2);
    assert_int_equal(mask_count(0.15, 100), 15);
    assert_int_equal(mask_count(0.15, 509), 76);
    assert_int_equal(mask_count(0.5, 3), 2);
    assert_int_equal(mask_count(1e-300, 500), 1);
    assert_int_equal(mask_count(1.0, 500), 500);
}

enum { MOST = 200 };

struct tally {
    double drawn[4][4]; /* [room for so many][n-grams of that length] */
};

/* One choice: every promise of the header; the lengths are tallied by the room that there was. */
static void check_choice(uint64_t number, int a, int b, int count, struct tally *tally)
{
    struct draws draws = draws_start(99, 1, number);
    bool chosen[MOST], seen[MOST] = {false};
    struct mask_span spans[MOST];
    int order[MOST], nspans = mask_choose(&draws, a, b, count, order, chosen, spans), total = 0;

    assert_in_range(nspans, 0, count);
    for (int i = 0; i < nspans; i++) {
        int first = spans[i].first, end = first < a ? a : a + b, room = 0;

        assert_in_range(spans[i].length, 1, 3);
        assert_true(first >= 0 && first + spans[i].length <= end);
        while (room < 3 && room < count - total && first + room < end && !seen[first + room])
            room++;
        assert_true(spans[i].length <= room);
        tally->drawn[room][spans[i].length]++;
        for (int k = 0; k < spans[i].length; k++)
            seen[first + k] = true;
        total += spans[i].length;
    }
    assert_int_equal(total, count);
    assert_memory_equal(seen, chosen, (size_t)(a + b) * sizeof seen[0]);
}

static void exactly_the_wanted_number_is_chosen(void **state)
{
    struct tally tally = {0};
    uint64_t number = 0;

    for (int a = 0; a <= 12; a++)
        for (int b = 0; b <= 12; b++)
            for (int count = 0; count <= a + b; count++)
                check_choice(number++, a, b, count, &tally);
}

/* Given room for 3, lengths are drawn as 6 : 3 : 2; with less room the longer ones are shortened to it. */
static void lengths_are_drawn_as_one_over_n(void **state)
{
    struct tally tally = {0};
    double sum[4];

    for (uint64_t number = 0; number < 2000; number++)
        check_choice(number, 70, 90, 24, &tally);
    for (int room = 1; room <= 3; room++)
        sum[room] = tally.drawn[room][1] + tally.drawn[room][2] + tally.drawn[room][3];
    assert_share("1 of 3", tally.drawn[3][1], sum[3], 6.0 / 11);
    assert_share("2 of 3", tally.drawn[3][2], sum[3], 3.0 / 11);
    assert_share("3 of 3", tally.drawn[3][3], sum[3], 2.0 / 11);
    assert_share("1 of 2", tally.drawn[2][1], sum[2], 6.0 / 11);
    assert_true(sum[1] > 1000 && tally.drawn[1][1] == sum[1]);
}

/* With one token to choose, each is it equally often. */
static void places_are_even(void **state)
{
    int hits[50] = {0};

    for (uint64_t number = 0; number < 50000; number++) {
        struct draws draws = draws_start(7, 1, number);
        struct mask_span span;
        bool chosen[50];
        int order[50];

        assert_int_equal(mask_choose(&draws, 20, 30, 1, order, chosen, &span), 1);
        hits[span.first]++;
    }
    for (int i = 0; i < 50; i++)
        assert_share("place", hits[i], 50000, 1.0 / 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_are_philox),
        cmocka_unit_test(draws_are_even),
        cmocka_unit_test(chances_come_true),
        cmocka_unit_test(counts_are_rounded_and_at_least_one),
        cmocka_unit_test(exactly_the_wanted_number_is_chosen),
        cmocka_unit_test(lengths_are_drawn_as_one_over_n),
        cmocka_unit_test(places_are_even),
    };

    return cmocka_run_group_tests_name("mask", tests, NULL, NULL);
}

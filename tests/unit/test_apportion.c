/* apportion.c: after every prefix each set has its part within one sample, from whichever position it is read. */
#include <math.h>

#include "common/philox.h"
#include "tests/cmocka_test.h"
#include "trainer/data/blend.h"

enum { MOST = 40 };

static uint64_t counter;

static double draw_fraction(void)
{
    return (philox_u32((struct philox_stream){.seed = 20}, counter++) + 0.5) * 0x1p-32;
}

static int draw_number(int below)
{
    return (int)(draw_fraction() * below);
}

/* Kinds of blends: any; from 1 to e^-15; small integers; one set and crumbs; powers of two; nearly equal. */
static int draw_parts(double *parts)
{
    int count = 1 + draw_number(draw_number(2) ? 6 : MOST), kind = draw_number(6);
    double sum = 0;

    for (int i = 0; i < count; i++) {
        double u = draw_fraction();

        parts[i] = kind == 0   ? u + 1e-5
                   : kind == 1 ? exp(-15 * u) + 1e-6
                   : kind == 2 ? 1 + draw_number(4)
                   : kind == 3 ? (i == 0 ? 1e5 : 1 + u)
                   : kind == 4 ? pow(0.5, i % 14)
                               : 0.5 + 1e-3 * u;
        sum += parts[i];
    }
    for (int i = 0; i < count; i++)
        parts[i] /= sum;
    return count;
}

/* From the definition. The parts' own rounding, and that of the product, are allowed a millionth. */
static void check_counts(const uint64_t *counts, const double *parts, int count, uint64_t n)
{
    uint64_t sum = 0;

    for (int i = 0; i < count; i++) {
        if (!(fabs((double)counts[i] - (double)n * parts[i]) < 1 + 1e-6))
            fail_msg("set %d of %d: %lu of %lu samples, its part is %.9g", i, count, (unsigned long)counts[i],
                     (unsigned long)n, parts[i]);
        sum += counts[i];
    }
    assert_int_equal(sum, n);
}

static void every_prefix_is_within_one_sample(void **state)
{
    for (int trial = 0; trial < 400; trial++) {
        double parts[MOST];
        int count = draw_parts(parts);
        struct apportion *a = apportion_create(parts, count, NULL);
        uint64_t first = trial % 2 ? (uint64_t)(1e8 * draw_fraction()) : 0;

        assert_non_null(a);
        if (trial % 4 == 1) /* far ahead, but only where a block is short */
            for (int i = 0; i < count; i++)
                if (parts[i] < 1e-4)
                    first = 0;
        if (trial % 4 == 3)
            first %= 100000;
        apportion_seek(a, first);
        check_counts(apportion_counts(a), parts, count, first);
        for (uint64_t n = first; n < first + 1500; n++) {
            uint64_t before[MOST];
            int set;

            for (int i = 0; i < count; i++)
                before[i] = apportion_counts(a)[i];
            set = apportion_next(a);
            assert_in_range(set, 0, count - 1);
            for (int i = 0; i < count; i++) /* no sample of a set is repeated or left out */
                assert_int_equal(apportion_counts(a)[i], before[i] + (i == set));
            check_counts(apportion_counts(a), parts, count, n + 1);
        }
        apportion_destroy(a);
    }
}

static void any_position_is_as_if_read_from_the_start(void **state)
{
    for (int trial = 0; trial < 20; trial++) {
        enum { SAMPLES = 3000 };
        static int sets[SAMPLES];
        double parts[MOST];
        int count = draw_parts(parts);
        struct apportion *a = apportion_create(parts, count, NULL), *other = apportion_create(parts, count, NULL);

        assert_true(a && other);
        for (int n = 0; n < SAMPLES; n++)
            sets[n] = apportion_next(a);
        for (int jump = 0; jump < 200; jump++) {
            int n = draw_number(SAMPLES);

            apportion_seek(other, (uint64_t)n);
            apportion_seek(a, (uint64_t)n);
            for (int i = 0; i < count; i++)
                assert_int_equal(apportion_counts(a)[i], apportion_counts(other)[i]);
            assert_int_equal(apportion_next(other), sets[n]);
            apportion_seek(a, (uint64_t)draw_number(SAMPLES));
        }
        apportion_destroy(a);
        apportion_destroy(other);
    }
    apportion_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_prefix_is_within_one_sample),
        cmocka_unit_test(any_position_is_as_if_read_from_the_start),
    };

    return cmocka_run_group_tests_name("apportion", tests, NULL, NULL);
}

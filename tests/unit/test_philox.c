/* Known answers of Philox 4x32-10 (Random123's kat_vectors), and what a stream promises. */
#include <math.h>

#include "common/philox.h"
#include "tests/cmocka_test.h"

static void known_answers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t out[4];

        philox4x32_10(rows[i].counter, rows[i].key, out);
        assert_memory_equal(out, rows[i].out, sizeof out);
    }
}

/* FNV-1a's published values: the offset basis for "", and 32-bit hashes of "a" and "foobar". */
static void sites_are_fnv_1a(void **state)
{
    assert_int_equal(philox_site(""), 0x811c9dc5);
    assert_int_equal(philox_site("a"), 0xe40c292c);
    assert_int_equal(philox_site("foobar"), 0xbf9cf968);
}

/* Element i is word i % 4 of the block whose counter is {i / 4 low, i / 4 high, site, step}. */
static void elements_are_words_of_blocks(void **state)
{
    const struct philox_stream stream = {.seed = 0x0123456789abcdef, .site = 7, .step = 9};
    const uint64_t indexes[] = {0, 1, 2, 3, 4, 1023, (1ull << 34) + 5, UINT64_MAX};

    for (size_t i = 0; i < sizeof indexes / sizeof indexes[0]; i++) {
        uint64_t block = indexes[i] / 4;
        uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 7, 9}, key[2] = {0x89abcdef, 0x01234567},
                 out[4];
        double uniform = philox_uniform(stream, indexes[i]);

        philox4x32_10(counter, key, out);
        assert_int_equal(philox_u32(stream, indexes[i]), out[indexes[i] % 4]);
        assert_true(uniform >= 0 && uniform < 1 && uniform == out[indexes[i] % 4] / 4294967296.0);
    }
}

static void seed_site_and_step_each_make_another_stream(void **state)
{
    const struct philox_stream streams[] = {{1, 2, 3}, {2, 2, 3}, {1ull << 32 | 1, 2, 3}, {1, 3, 3}, {1, 2, 4}};

    for (size_t a = 0; a < 5; a++)
        for (size_t b = 0; b < a; b++)
            assert_int_not_equal(philox_u32(streams[a], 0), philox_u32(streams[b], 0));
}

/* Who computes which part of a tensor must not matter. */
static void normals_do_not_depend_on_where_a_part_begins(void **state)
{
    const struct philox_stream stream = {.seed = 42, .site = 1};
    float whole[64], part[64];

    philox_normal(whole, 64, stream, 0, 0.5, 2.0);
    for (size_t first = 0; first < 64; first++) {
        philox_normal(part, 64 - first, stream, first, 0.5, 2.0);
        assert_memory_equal(part, whole + first, (64 - first) * sizeof part[0]);
    }
}

static void normals_have_mean_and_deviation(void **state)
{
    enum { COUNT = 1 << 16 };
    static float values[COUNT];
    double sum = 0, squares = 0;
    int beyond_2 = 0;

    philox_normal(values, COUNT, (struct philox_stream){.seed = 1234, .site = philox_site("test")}, 0, 3.0, 0.5);
    for (int i = 0; i < COUNT; i++) {
        double z = (values[i] - 3.0) / 0.5;

        sum += z;
        squares += z * z;
        beyond_2 += fabs(z) > 2;
    }
    assert_true(fabs(sum / COUNT) < 5 / sqrt(COUNT)); /* five standard errors; the seed is fixed */
    assert_true(fabs(squares / COUNT - 1) < 5 * sqrt(2.0 / COUNT));
    assert_true(fabs((double)beyond_2 / COUNT - 0.0455) < 0.005);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(sites_are_fnv_1a),
        cmocka_unit_test(elements_are_words_of_blocks),
        cmocka_unit_test(seed_site_and_step_each_make_another_stream),
        cmocka_unit_test(normals_do_not_depend_on_where_a_part_begins),
        cmocka_unit_test(normals_have_mean_and_deviation),
    };

    return cmocka_run_group_tests_name("philox", tests, NULL, NULL);
}

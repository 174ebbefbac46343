/* The order of samples, and what is in them. */
#include <math.h>
#include <unistd.h>

#include "tests/unit/data_files.h"
#include "trainer/data/draws.h"
#include "trainer/data/samples.h"

#define PREFIX "test_sampler"

static int remove_files(void **state)
{
    unlink(PREFIX ".idx");
    unlink(PREFIX ".bin");
    return 0;
}

/* ---- the order of samples ---------------------------------------------------------------------------------------- */

static void permute_is_a_bijection(void **state)
{
    static unsigned char seen[70000];
    const uint64_t large[] = {1023, 1024, 1025, 4096, 65535, 65537, 70000};

    for (uint64_t round = 1; round <= 300 + sizeof large / sizeof large[0]; round++) {
        uint64_t count = round <= 300 ? round : large[round - 301];

        memset(seen, 0, count);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t place = permute(i, count, 1234, 5);

            assert_true(place < count);
            assert_int_equal(seen[place]++, 0);
        }
    }
}

/* Where a list would be too long: neighbours must not collide, and everything must stay inside. */
static void permute_reaches_large_counts(void **state)
{
    const uint64_t counts[] = {(1ull << 32) - 1, 1ull << 32, (1ull << 40) + 1,
                               (1ull << 62) + 1, 1ull << 63, UINT64_MAX};
    enum { SOME = 200 };

    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        uint64_t places[SOME];

        for (uint64_t i = 0; i < SOME; i++) {
            places[i] = permute(i % 2 ? i : counts[c] - 1 - i, counts[c], 99, 0);
            assert_true(places[i] < counts[c]);
            for (uint64_t j = 0; j < i; j++)
                assert_true(places[j] != places[i]);
        }
    }
}

static int common_places(uint64_t seed_a, uint32_t epoch_a, uint64_t seed_b, uint32_t epoch_b)
{
    int same = 0;

    for (uint64_t i = 0; i < 1000; i++)
        same += permute(i, 1000, seed_a, epoch_a) == permute(i, 1000, seed_b, epoch_b);
    return same;
}

/* Two random permutations agree in one place on average; ten would be a wonder (p about 1e-7). */
static void seeds_and_epochs_have_their_own_orders(void **state)
{
    assert_int_equal(common_places(1, 0, 1, 0), 1000);
    assert_in_range(common_places(1, 0, 1, 1), 0, 9);
    assert_in_range(common_places(1, 0, 2, 0), 0, 9);
    assert_in_range(common_places(1, 0, 1ull << 32 | 1, 0), 0, 9);
    assert_in_range(common_places(1, 7, 1, 0x80000007), 0, 9);
}

/* Over many epochs each sample must come first about equally often: chi-squared of 50 cells, 5000 draws. */
static void every_sample_comes_first_as_often(void **state)
{
    enum { CELLS = 50, DRAWS = 5000 };
    int hits[CELLS] = {0};
    double chi = 0;

    for (uint32_t epoch = 0; epoch < DRAWS; epoch++)
        hits[permute(0, CELLS, 4321, epoch)]++;
    for (int i = 0; i < CELLS; i++)
        chi += pow(hits[i] - DRAWS / CELLS, 2) / (DRAWS / CELLS);
    assert_true(chi < 90); /* 49 degrees of freedom: p = 0.0003; the draws are the same every time */
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

/* 1001 tokens of value i % 251: with samples of 10, a sample's first token tells where it lies. */
static void write_ramp(size_t count)
{
    unsigned char idx[34 + 12 + 16], bin[2000];

    memcpy(idx, "MMIDIDX\0", 9);
    put(idx + 9, 1, 8);
    idx[17] = 1; /* uint8 */
    put(idx + 18, 1, 8);
    put(idx + 26, 2, 8);
    put(idx + 34, count, 4);
    put(idx + 38, 0, 8);
    put(idx + 46, 0, 8);
    put(idx + 54, 1, 8);
    for (size_t i = 0; i < count; i++)
        bin[i] = (unsigned char)(i % 251);
    write_file(PREFIX ".idx", idx, sizeof idx);
    write_file(PREFIX ".bin", bin, count);
}

static const struct model_shape ten = {.seq_length = 10, .vocab = 256};

static void each_epoch_takes_every_sample_once(void **state)
{
    struct samples *samples;
    struct error err;
    uint64_t order[2][100];

    write_ramp(1005);
    samples = make_samples(PREFIX, &ten, NULL, true, 1234, &err);
    assert_non_null(samples);
    assert_int_equal(samples_per_epoch(samples), 100);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        bool seen[100] = {false};

        for (uint64_t i = 0; i < 100; i++) {
            uint64_t place = permute(i, 100, 1234, (uint32_t)epoch);
            int32_t tokens[10], targets[10];

            assert_int_equal(
                samples_read(samples, 100 * epoch + i, &(struct sample){.tokens = tokens, .targets = targets}, &err),
                0);
            for (uint64_t t = 0; t < 10; t++) {
                assert_int_equal(tokens[t], (10 * place + t) % 251);
                assert_int_equal(targets[t], (10 * place + t + 1) % 251);
            }
            assert_false(seen[place]);
            seen[place] = true;
            order[epoch][i] = place;
        }
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    samples_destroy(samples);
}

static void sequential_samples_are_in_order(void **state)
{
    struct samples *samples;
    struct error err;

    write_ramp(1001);
    samples = make_samples(PREFIX, &ten, NULL, false, 0, &err);
    assert_non_null(samples);
    assert_int_equal(samples_per_epoch(samples), 100);
    for (uint64_t i = 0; i < 250; i++) {
        int32_t tokens[10], targets[10];

        assert_int_equal(samples_read(samples, i, &(struct sample){.tokens = tokens, .targets = targets}, &err), 0);
        assert_int_equal(tokens[0], i % 100 * 10 % 251);
        assert_int_equal(targets[9], (i % 100 * 10 + 10) % 251);
    }
    samples_destroy(samples);
    samples_destroy(NULL);
}

static void a_set_too_small_for_one_sample_is_refused(void **state)
{
    struct samples *samples;
    struct error err;

    write_ramp(10);
    assert_null(make_samples(PREFIX, &ten, NULL, true, 1, &err));
    assert_int_equal(err.code, CODE_DATA);
    assert_string_equal(err.text,
                        "test_sampler.bin has 10 tokens; a sample of model.seq_length = 10 needs at least 11");
    write_ramp(11);
    samples = make_samples(PREFIX, &ten, NULL, true, 1, &err);
    assert_non_null(samples);
    assert_int_equal(samples_per_epoch(samples), 1);
    samples_destroy(samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permute_is_a_bijection),
        cmocka_unit_test(permute_reaches_large_counts),
        cmocka_unit_test(seeds_and_epochs_have_their_own_orders),
        cmocka_unit_test(every_sample_comes_first_as_often),
        cmocka_unit_test(each_epoch_takes_every_sample_once),
        cmocka_unit_test(sequential_samples_are_in_order),
        cmocka_unit_test(a_set_too_small_for_one_sample_is_refused),
    };

    return cmocka_run_group_tests_name("sampler", tests, NULL, remove_files);
}

/* Where tensors lie in units, and the initial weights. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "trainer/model/units.h"

static const struct model_shape shape = {.layers = 3, .hidden = 20, .heads = 2, .seq_length = 7, .vocab = 131};

/* All shards of all ranks, as a checkpoint would hold them: every element of every tensor once. */
static void test_shards_cover_the_model(void **state)
{
    struct error err;
    uint64_t parameters = 0;

    (void)state;
    for (int dp = 1; dp <= 9; dp++) {
        struct units *units = units_create(&shape, 0.02, dp, &err);
        uint64_t next[64] = {0};

        assert_non_null(units);
        for (int u = 0; u < units->nunits; u++) {
            size_t shard = units->units[u].count / (size_t)dp;

            assert_int_equal(units->units[u].count % ((size_t)dp * UNIT_ALIGN), 0);
            for (int rank = 0; rank < dp; rank++) {
                struct ckpt_piece pieces[UNIT_MAX_TENSORS];
                size_t offsets[UNIT_MAX_TENSORS];
                size_t n = units_pieces(units, u, shard * (size_t)rank, shard, pieces, offsets);

                for (size_t i = 0; i < n; i++) {
                    assert_int_equal(pieces[i].first, next[pieces[i].tensor]);
                    assert_true(pieces[i].count > 0);
                    assert_true(offsets[i] >= shard * (size_t)rank);
                    assert_true(offsets[i] + pieces[i].count <= shard * (size_t)(rank + 1));
                    next[pieces[i].tensor] += pieces[i].count;
                }
            }
        }
        parameters = 0;
        for (size_t t = 0; t < units->ntensors; t++) {
            const struct ckpt_tensor *tensor = &units->tensors[t];

            assert_int_equal(next[t], tensor->shape[0] * (tensor->ndim > 1 ? tensor->shape[1] : 1));
            parameters += next[t];
        }
        assert_int_equal(parameters, model_parameters(&shape));
        units_destroy(units);
    }
}

/* Element i of a tensor starts with the same bits whoever holds it, and padding with zero. */
static void test_initial_weights_know_no_topology(void **state)
{
    struct error err;
    struct units *whole = units_create(&shape, 0.02, 1, &err), *cut = units_create(&shape, 0.02, 5, &err);

    (void)state;
    for (int u = 0; u < whole->nunits; u++) {
        size_t count = whole->units[u].count, wide = cut->units[u].count, shard = wide / 5;
        float *a = malloc(count * sizeof *a), *b = malloc(wide * sizeof *b);

        units_initialize(whole, u, 42, 0, count, a);
        memset(b, 0xff, wide * sizeof *b);
        for (size_t rank = 0; rank < 5; rank++)
            units_initialize(cut, u, 42, rank * shard, shard, b + rank * shard);
        assert_memory_equal(a, b, count * sizeof *a);
        for (size_t i = count; i < wide; i++)
            assert_true(b[i] == 0);
        free(a);
        free(b);
    }
    units_destroy(whole);
    units_destroy(cut);
}

static void test_initial_weights_are_gpt2s(void **state)
{
    struct model_shape big = {.layers = 4, .hidden = 256, .heads = 4, .seq_length = 64, .vocab = 512};
    struct error err;
    struct units *units = units_create(&big, 0.02, 1, &err);
    const struct unit *block = &units->units[UNIT_BLOCK0];
    float *values = malloc(block->count * sizeof *values);

    (void)state;
    units_initialize(units, UNIT_BLOCK0, 1, 0, block->count, values);
    for (int t = 0; t < block->ntensors; t++) {
        const struct unit_tensor *tensor = &block->tensors[t];
        double sum = 0, squares = 0, n = (double)tensor->count, expected = 0;

        for (size_t i = 0; i < tensor->count; i++) {
            sum += values[tensor->offset + i];
            squares += (double)values[tensor->offset + i] * values[tensor->offset + i];
        }
        if (t == BLOCK_ATTN_WEIGHT || t == BLOCK_FC_WEIGHT)
            expected = 0.02;
        if (t == BLOCK_ATTN_PROJ_WEIGHT || t == BLOCK_PROJ_WEIGHT)
            expected = 0.02 / sqrt(8.0);
        if (expected > 0) {
            assert_true(fabs(sum / n) < 5 * expected / sqrt(n));
            assert_true(fabs(sqrt(squares / n) / expected - 1) < 0.01);
            assert_true(tensor->decay);
        } else {
            assert_true(sum == (t == BLOCK_LN_1_WEIGHT || t == BLOCK_LN_2_WEIGHT ? n : 0));
            assert_false(tensor->decay);
        }
    }
    free(values);
    units_destroy(units);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards_cover_the_model),
        cmocka_unit_test(test_initial_weights_know_no_topology),
        cmocka_unit_test(test_initial_weights_are_gpt2s),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

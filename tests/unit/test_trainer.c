/* The trainer's pure arithmetic: pipeline schedules, learning rates, and where tensors lie in units. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "trainer/model/units.h"
#include "trainer/optim/lr.h"
#include "trainer/parallel/schedule.h"

/* ---- schedules ---- */

static void test_one_stage_alternates(void **state)
{
    struct schedule_entry entries[10];

    (void)state;
    assert_int_equal(schedule_1f1b(entries, 0, 1, 5), 10);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(entries[i].kind, i % 2 ? SCHEDULE_BACKWARD : SCHEDULE_FORWARD);
        assert_int_equal(entries[i].micro_batch, i / 2);
    }
}

/* Every micro-batch goes forward once and backward once, in order, and at most min(p - r, m) are held. */
static void test_1f1b_of_every_stage(void **state)
{
    struct schedule_entry entries[64];

    (void)state;
    for (int stages = 1; stages <= 8; stages++)
        for (int stage = 0; stage < stages; stage++)
            for (int m = 1; m <= 16; m++) {
                int forward = 0, backward = 0, held = 0, most = 0;
                size_t n = schedule_1f1b(entries, stage, stages, m);

                assert_int_equal(n, 2 * m);
                for (size_t i = 0; i < n; i++) {
                    if (entries[i].kind == SCHEDULE_FORWARD)
                        assert_int_equal(entries[i].micro_batch, forward++);
                    else
                        assert_int_equal(entries[i].micro_batch, backward++);
                    assert_true(backward <= forward);
                    held = forward - backward;
                    most = held > most ? held : most;
                }
                assert_int_equal(most, stages - stage < m ? stages - stage : m);
            }
}

/* All stages together, each waiting for its neighbours as sends and receives make it: nobody waits for ever. */
static void test_1f1b_has_no_deadlock(void **state)
{
    enum { STAGES = 5, BATCHES = 7 };
    struct schedule_entry entries[STAGES][2 * BATCHES];
    int at[STAGES] = {0}, forward[STAGES] = {0}, backward[STAGES] = {0}, done = 0;

    (void)state;
    for (int stage = 0; stage < STAGES; stage++)
        schedule_1f1b(entries[stage], stage, STAGES, BATCHES);
    for (int moved = 1; moved;) {
        moved = 0;
        for (int s = 0; s < STAGES; s++) {
            const struct schedule_entry *entry = &entries[s][at[s]];

            if (at[s] == 2 * BATCHES)
                continue;
            if (entry->kind == SCHEDULE_FORWARD && (s == 0 || forward[s - 1] > entry->micro_batch))
                forward[s]++;
            else if (entry->kind == SCHEDULE_BACKWARD && (s == STAGES - 1 || backward[s + 1] > entry->micro_batch))
                backward[s]++;
            else
                continue;
            at[s]++;
            done++;
            moved = 1;
        }
    }
    assert_int_equal(done, STAGES * 2 * BATCHES);
}

/* ---- learning rates ---- */

static struct job lr_job(enum lr_schedule schedule)
{
    struct job job = {0};

    job.batch.steps = 100;
    job.optimizer.lr = 1e-3;
    job.optimizer.min_lr = 1e-4;
    job.optimizer.warmup_steps = 10;
    job.optimizer.schedule = schedule;
    return job;
}

static void test_warm_up(void **state)
{
    struct job job = lr_job(LR_COSINE);

    (void)state;
    for (long step = 1; step <= 10; step++)
        assert_true(fabs(learning_rate(&job, step) - 1e-4 * (double)step) < 1e-15);
}

static void test_decay(void **state)
{
    struct job cosine = lr_job(LR_COSINE), linear = lr_job(LR_LINEAR), constant = lr_job(LR_CONSTANT);

    (void)state;
    assert_true(fabs(learning_rate(&cosine, 55) - 5.5e-4) < 1e-15); /* half way: the mean */
    assert_true(fabs(learning_rate(&linear, 55) - 5.5e-4) < 1e-15);
    assert_true(fabs(learning_rate(&linear, 28) - (1e-3 - 0.2 * 9e-4)) < 1e-15);
    assert_true(learning_rate(&cosine, 28) > learning_rate(&linear, 28));
    assert_true(learning_rate(&cosine, 100) == 1e-4 && learning_rate(&cosine, 1000) == 1e-4);
    assert_true(learning_rate(&constant, 100) == 1e-3);
    cosine.optimizer.decay_steps = 55;
    assert_true(learning_rate(&cosine, 55) == 1e-4);
}

static void test_no_warm_up(void **state)
{
    struct job job = lr_job(LR_LINEAR);

    (void)state;
    job.optimizer.warmup_steps = 0;
    assert_true(fabs(learning_rate(&job, 1) - (1e-3 - 9e-6)) < 1e-15);
}

/* ---- units ---- */

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
        cmocka_unit_test(test_one_stage_alternates),
        cmocka_unit_test(test_1f1b_of_every_stage),
        cmocka_unit_test(test_1f1b_has_no_deadlock),
        cmocka_unit_test(test_warm_up),
        cmocka_unit_test(test_decay),
        cmocka_unit_test(test_no_warm_up),
        cmocka_unit_test(test_shards_cover_the_model),
        cmocka_unit_test(test_initial_weights_know_no_topology),
        cmocka_unit_test(test_initial_weights_are_gpt2s),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

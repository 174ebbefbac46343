#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/whole_model.h"
#include "trainer/model/decoder.h"

/* The decoder beside the trainer's forward pass over the whole context, with the same weights. */

enum { SEQ = 48, VOCAB = 301, SLOTS = 3 };

static const char job[] =
    "model = { layers = 3; hidden = 40; heads = 4; seq_length = 48; vocab = 301; init_std = 0.2; };"
    "data = { train = \"-\"; }; batch = { global_batch = 1; micro_batch = 1; steps = 1; };"
    "precision = { compute = \"%s\"; };";

struct fixture {
    struct whole_model whole;
    struct decoder *decoder;
    int32_t tokens[SLOTS][SEQ];
    float want[SLOTS][SEQ][VOCAB]; /* logits of what follows each token */
};

static struct error err;
static struct fixture f;

static void create_decoder(const struct decoder_sizes *sizes)
{
    f.decoder = decoder_create(&f.whole.config->context, f.whole.config->units, f.whole.params, sizes, &err);
    assert_non_null(f.decoder);
}

/* A text for each slot, and what the trainer's model makes of it. */
static void open_model(const char *dtype)
{
    const struct micro_batch mb = {.samples = 1};
    char text[512];

    memset(&f, 0, sizeof f);
    snprintf(text, sizeof text, job, dtype);
    if (whole_model_create(&f.whole, text, "cpu", &err) < 0)
        fail_msg("%s", err.text);
    for (int slot = 0; slot < SLOTS; slot++) {
        for (int i = 0; i < SEQ; i++)
            f.tokens[slot][i] = (i * (7 + slot) + slot * 31) % VOCAB;
        whole_model_forward(&f.whole, f.tokens[slot]);
        for (int i = 0; i < SEQ; i++)
            model_logits(f.whole.model, &mb, 0, i, f.want[slot][i]);
    }
}

static void open_fixture(const char *dtype)
{
    open_model(dtype);
    create_decoder(&(struct decoder_sizes){.slots = SLOTS, .room = SEQ, .rows = SLOTS * SEQ, .outputs = 20});
}

static void close_fixture(void)
{
    decoder_destroy(f.decoder);
    whole_model_destroy(&f.whole);
}

/* A pass with tokens [first, first + count) of each slot in `slots`, a text of "012" for all; rows slot by slot. */
static int run_tokens(const char *slots, int first, int count)
{
    int32_t tokens[SLOTS * SEQ], slot[SLOTS * SEQ], position[SLOTS * SEQ];
    int n = 0;

    for (const char *at = slots; *at; at++)
        for (int i = first; i < first + count; i++) {
            tokens[n] = f.tokens[*at - '0'][i];
            slot[n] = *at - '0';
            position[n++] = i;
        }
    decoder_run(f.decoder, &(struct decoder_rows){.count = n, .tokens = tokens, .slots = slot, .positions = position});
    return n;
}

static void expect_logits(int row, int slot, int position, double tolerance, float *keep)
{
    float logits[VOCAB];
    double most = 0;

    assert_int_equal(decoder_logits(f.decoder, &row, 1, logits, &err), 0);
    for (int i = 0; i < VOCAB; i++)
        most = fmax(most, fabs((double)logits[i] - (double)f.want[slot][position][i]));
    if (!(most <= tolerance))
        fail_msg("slot %d, position %d: logits are off by %g", slot, position, most);
    if (keep)
        memcpy(keep, logits, sizeof logits);
}

/* Whole texts in one pass; prompts of other lengths and then steps; texts cut anywhere: always the same logits. */
static void check_logits(const char *dtype, double tolerance)
{
    float spread = 0;

    open_fixture(dtype);
    for (int i = 0; i < VOCAB; i++)
        spread = fmaxf(spread, fabsf(f.want[0][SEQ - 1][i]));
    assert_true(spread > 1); /* zeros would agree with anything */
    run_tokens("012", 0, SEQ);
    for (int row = 0; row < SLOTS * SEQ; row++)
        expect_logits(row, row / SEQ, row % SEQ, tolerance, NULL);
    run_tokens("1", 0, 20);
    run_tokens("0", 0, 3);
    run_tokens("2", 0, 1);
    for (int i = 3; i < SEQ; i++) {
        run_tokens("0", i, 1);
        expect_logits(0, 0, i, tolerance, NULL);
    }
    run_tokens("2", 1, 19);
    for (int i = 20; i < SEQ; i++) {
        run_tokens("12", i, 1);
        expect_logits(0, 1, i, tolerance, NULL);
        expect_logits(1, 2, i, tolerance, NULL);
    }
    close_fixture();
}

static void test_logits(void **state)
{
    (void)state;
    check_logits("fp32", 2e-4);
    check_logits("bf16", 0.25);
}

/* Bit by bit the same, alone and beside others. */
static void test_batch(void **state)
{
    float alone[VOCAB], beside[VOCAB];

    (void)state;
    open_fixture("bf16");
    for (int slot = 0; slot < SLOTS; slot++)
        run_tokens((char[]){(char)('0' + slot), 0}, 0, 30);
    run_tokens("1", 30, 1);
    expect_logits(0, 1, 30, 1, alone);
    run_tokens("021", 30, 1);
    expect_logits(2, 1, 30, 1, beside);
    assert_memory_equal(alone, beside, sizeof alone);
    close_fixture();
}

static void test_scores(void **state)
{
    struct token_score scores[SEQ - 1];
    int32_t rows[SEQ - 1], targets[SEQ - 1];
    int greedy = 0;

    (void)state;
    open_fixture("fp32");
    run_tokens("20", 0, SEQ);
    for (int i = 0; i < SEQ - 1; i++) {
        const float *logits = f.want[0][i];

        rows[i] = SEQ + i; /* slot 0 comes second */
        targets[i] = f.tokens[0][i + 1];
        for (int j = 0; i % 2 && j < VOCAB; j++)
            targets[i] = logits[j] > logits[targets[i]] ? j : targets[i];
    }
    assert_int_equal(decoder_scores(f.decoder, rows, targets, SEQ - 1, scores, &err), 0); /* more than fit at once */
    for (int i = 0; i < SEQ - 1; i++) {
        const float *logits = f.want[0][i];
        double sum = 0, most = -INFINITY;

        for (int j = 0; j < VOCAB; j++) {
            sum += exp((double)logits[j]);
            most = fmax(most, (double)logits[j]);
        }
        assert_true(fabs(scores[i].loss - (log(sum) - (double)logits[targets[i]])) < 1e-3);
        assert_int_equal(scores[i].greedy, (double)logits[targets[i]] == most);
        greedy += scores[i].greedy;
    }
    assert_true(greedy >= SEQ / 2 - 1 && greedy < SEQ - 1);
    close_fixture();
}

/* The cache is exactly as large as predicted; with the workspace, no pass needs more. */
static void test_memory(void **state)
{
    const struct decoder_sizes sizes = {.slots = SLOTS, .room = 33, .rows = 40, .outputs = 7};
    struct decoder_bytes bytes;
    size_t before;

    (void)state;
    open_model("fp32");
    bytes = decoder_predict(&f.whole.config->context, f.whole.config->units, &sizes, &f.whole.traits);
    assert_int_equal(bytes.cache, 2 * 3 * (SLOTS * 48 * 40 * sizeof(float))); /* room 33 becomes 48 */
    assert_int_equal(bytes.host, 0);
    before = device_bytes_peak(f.whole.dev, MEMORY_DEVICE);
    create_decoder(&sizes);
    run_tokens("0", 0, 33);
    expect_logits(32, 0, 32, 2e-4, NULL);
    assert_in_range(device_bytes_peak(f.whole.dev, MEMORY_DEVICE) - before, bytes.cache, bytes.cache + bytes.workspace);
    close_fixture();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

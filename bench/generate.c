/*
 * generate.c - the time of one more token of a gpt-125m with random weights, after 512: with the cache, and by a forward
 * pass over all of them, in turns. For one sequence and for 16.
 *
 *   bench/generate [fp32|bf16]
 *
 * "GB/s" is the bytes of all parameters over the time of a step, beside the rate at which the same memory is read by a
 * plain sum on the same threads: a step cannot be faster than that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "tests/unit/whole_model.h"
#include "trainer/model/decoder.h"

enum { LENGTH = 512, SLOTS = 16, ROUNDS = 9 };

static const char job[] = "model = { preset = \"gpt-125m\"; seq_length = 512; }; data = { train = \"-\"; };"
                          "batch = { global_batch = 1; micro_batch = 1; steps = 1; };"
                          "precision = { compute = \"%s\"; };";

struct bench_model {
    struct whole_model whole;
    struct decoder *decoder;
    float *logits;
    int32_t tokens[LENGTH];
    size_t bytes; /* of parameters */
};

static struct error err;

static int open_bench(struct bench_model *b, const char *dtype)
{
    const struct decoder_sizes sizes = {.slots = SLOTS, .room = LENGTH, .rows = LENGTH, .outputs = SLOTS};
    const struct units *units;
    char text[512];

    snprintf(text, sizeof text, job, dtype);
    if (whole_model_create(&b->whole, text, "cpu", &err) < 0)
        return -1;
    units = b->whole.config->units;
    b->decoder = decoder_create(&b->whole.config->context, units, b->whole.params, &sizes, &err);
    b->logits = malloc((size_t)SLOTS * (size_t)b->whole.job.model.vocab * sizeof *b->logits);
    for (int i = 0; i < units->nunits; i++)
        b->bytes += units->units[i].count * dtype_size(b->whole.job.precision.compute);
    for (int i = 0; i < LENGTH; i++)
        b->tokens[i] = i * 97 % b->whole.job.model.vocab;
    return b->decoder && b->logits ? 0 : -1;
}

/* The texts' first tokens, into each slot. */
static void fill_cache(struct bench_model *b)
{
    int32_t slots[LENGTH], positions[LENGTH];

    for (int slot = 0; slot < SLOTS; slot++) {
        for (int i = 0; i < LENGTH; i++) {
            slots[i] = slot;
            positions[i] = i;
        }
        decoder_run(b->decoder, &(struct decoder_rows){
                                    .count = LENGTH - 1, .tokens = b->tokens, .slots = slots, .positions = positions});
    }
}

/* The last token of `count` sequences, and what follows it. */
static double time_step(struct bench_model *b, int count)
{
    int32_t slots[SLOTS], positions[SLOTS], rows[SLOTS];
    double start;

    for (int i = 0; i < count; i++) {
        slots[i] = rows[i] = i;
        positions[i] = LENGTH - 1;
    }
    start = clock_monotonic();
    decoder_run(b->decoder,
                &(struct decoder_rows){.count = count, .tokens = b->tokens, .slots = slots, .positions = positions});
    decoder_logits(b->decoder, rows, count, b->logits, &err);
    return clock_monotonic() - start;
}

static double time_whole(struct bench_model *b)
{
    const struct micro_batch mb = {.samples = 1};
    double start = clock_monotonic();

    whole_model_forward(&b->whole, b->tokens);
    model_logits(b->whole.model, &mb, 0, LENGTH - 1, b->logits);
    return clock_monotonic() - start;
}

/* Seconds to read all parameters once. */
static double time_reading(const struct bench_model *b)
{
    double start = clock_monotonic(), total = 0;

    for (int unit = 0; unit < b->whole.config->units->nunits; unit++) {
        const float *at = b->whole.params[unit];
        size_t count =
            b->whole.config->units->units[unit].count * dtype_size(b->whole.job.precision.compute) / sizeof *at;
        float sum = 0;

#pragma omp parallel for simd reduction(+ : sum) schedule(static) num_threads(b->whole.traits.threads)
        for (size_t i = 0; i < count; i++)
            sum += at[i];
        total += (double)sum;
    }
    return total == 0.5 ? 0 : clock_monotonic() - start; /* so that the sum is needed */
}

static double least_of(double a, double b)
{
    return a == 0 || b < a ? b : a;
}

int main(int argc, char **argv)
{
    struct bench_model b = {0};
    double one = 0, many = 0, whole = 0, reading = 0;

    if (open_bench(&b, argc > 1 ? argv[1] : "fp32") < 0)
        return error_report(&err);
    printf("%s, gpt-125m, %s, after %d tokens; the best of %d rounds\n", device_describe(b.whole.dev),
           argc > 1 ? argv[1] : "fp32", LENGTH - 1, ROUNDS);
    fill_cache(&b);
    for (int i = 0; i < ROUNDS; i++) {
        for (int step = 0; step < 5; step++)
            one = least_of(one, time_step(&b, 1));
        many = least_of(many, time_step(&b, SLOTS));
        whole = least_of(whole, time_whole(&b));
        reading = least_of(reading, time_reading(&b));
    }
    if (device_status(b.whole.dev, &err) < 0)
        return error_report(&err);
    printf("one more token, without the cache  %8.2f ms\n", 1e3 * whole);
    printf("                with it            %8.2f ms   %.1f times as fast, %.1f GB/s\n", 1e3 * one, whole / one,
           (double)b.bytes / one / 1e9);
    printf("                of %d at once      %8.2f ms   %.1f tokens/s\n", SLOTS, 1e3 * many, SLOTS / many);
    printf("reading all parameters             %8.2f ms   %.1f GB/s\n", 1e3 * reading, (double)b.bytes / reading / 1e9);
    decoder_destroy(b.decoder);
    free(b.logits);
    whole_model_destroy(&b.whole);
    return 0;
}

/*
 * step.c - how much of the machine a training step uses: whole steps of a GPT on one process, as model FLOPs, beside
 * the rate of the best large matrix product on the same threads in the same run.
 *
 *   bench/step [--threads T] [--steps N] [--preset NAME] [--batch B] [--seq S]
 *
 * Defaults: 2 threads, 5 steps after one to warm up, gpt-125m, batch 4, sequence 512. The product's rate is measured
 * before and after every step and the best counts, so the ratio errs against us when the machine is busy.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/flops.h"
#include "common/philox.h"
#include "trainer/model/gpt.h"

struct options {
    int threads, steps, batch, seq;
    const char *preset;
};

struct bench {
    struct options options;
    struct model_shape shape;
    struct device *dev;
    struct comm *self;
    struct units *units;
    struct zero *zero;
    struct gpt *gpt;
    int32_t *tokens, *targets;
    double best_product, total_seconds, best_seconds;
};

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int create(struct bench *b, struct error *err)
{
    size_t tokens;

    if (model_preset(&b->shape, b->options.preset, err) < 0)
        return -1;
    b->shape.seq_length = b->options.seq;
    tokens = (size_t)b->options.batch * (size_t)b->shape.seq_length;
    b->dev = device_create("cpu", b->options.threads, err);
    b->self = b->dev ? comm_alone_create(err) : NULL;
    b->units = b->self ? units_create(&b->shape, 0.02, 1, err) : NULL;
    b->zero = b->units ? zero_create(b->dev, b->self, b->units, 1, true, err) : NULL;
    b->gpt = b->zero ? gpt_create(b->dev, &b->shape, b->units, b->zero, b->options.batch, true, err) : NULL;
    b->tokens = calloc(2 * tokens, sizeof *b->tokens);
    if (!b->gpt || !b->tokens)
        return -1;
    b->targets = b->tokens + tokens;
    for (size_t i = 0; i < 2 * tokens; i++)
        b->tokens[i] = (int32_t)(philox_u32((struct philox_stream){.seed = 1}, i) % (uint32_t)b->shape.vocab);
    zero_initialize(b->zero, 1);
    return 0;
}

static void destroy(struct bench *b)
{
    gpt_destroy(b->gpt);
    zero_destroy(b->zero);
    units_destroy(b->units);
    comm_destroy(b->self);
    device_destroy(b->dev);
    free(b->tokens);
}

/* What engine_step does on one rank: forward, backward, norm, AdamW. */
static int one_step(struct bench *b, uint64_t step, double *loss, struct error *err)
{
    struct micro_batch mb = {.samples = b->options.batch, .tokens = b->tokens, .targets = b->targets};
    struct zero_step adamw = {
        .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .grad_scale = 1, .step = step};
    double tokens = (double)b->options.batch * b->shape.seq_length, norm;

    zero_micro_batch(b->zero, true, true);
    gpt_forward(b->gpt, &mb);
    *loss = gpt_backward(b->gpt, &mb, (float)(1 / tokens)) / tokens;
    if (zero_finish_gradients(b->zero, err) < 0 || zero_grad_norm_squared(b->zero, &norm, err) < 0 ||
        zero_step(b->zero, &adamw, err) < 0)
        return -1;
    device_wait(b->dev);
    return 0;
}

static void measure_product(struct bench *b)
{
    double rate = device_measure_peak(b->dev, DTYPE_F32);

    if (rate > b->best_product)
        b->best_product = rate;
}

static int run(struct bench *b, struct error *err)
{
    double tokens = (double)b->options.batch * b->shape.seq_length, flops = flops_model(&b->shape, tokens), loss;

    printf("%s, batch %d x %d, %s\n", b->options.preset, b->options.batch, b->shape.seq_length,
           device_describe(b->dev));
    printf("%" PRIu64 " parameters, %.3f TFLOP a step (PaLM's count: 6N + 12Lds a token)\n\n",
           model_parameters(&b->shape), flops * 1e-12);
    printf("%5s %9s %10s %12s %10s\n", "step", "seconds", "tokens/s", "GFLOP/s", "loss");
    for (int step = 0; step <= b->options.steps; step++) {
        double started, elapsed;

        measure_product(b);
        started = seconds();
        if (one_step(b, (uint64_t)step + 1, &loss, err) < 0)
            return -1;
        elapsed = seconds() - started;
        measure_product(b);
        printf("%5s %9.3f %10.1f %12.1f %10.4f\n", step ? "" : "warm", elapsed, tokens / elapsed,
               flops / elapsed * 1e-9, loss);
        fflush(stdout);
        if (step == 0)
            continue;
        b->total_seconds += elapsed;
        if (b->best_seconds == 0 || elapsed < b->best_seconds)
            b->best_seconds = elapsed;
    }
    printf("\nbest matrix product   %8.1f GFLOP/s\n", b->best_product * 1e-9);
    printf("model FLOPs, mean     %8.1f GFLOP/s  %5.1f%%\n", flops / (b->total_seconds / b->options.steps) * 1e-9,
           100 * flops / (b->total_seconds / b->options.steps) / b->best_product);
    printf("model FLOPs, best     %8.1f GFLOP/s  %5.1f%%\n", flops / b->best_seconds * 1e-9,
           100 * flops / b->best_seconds / b->best_product);
    printf("memory                %8.2f GiB\n", (double)device_bytes_peak(b->dev, MEMORY_DEVICE) / (1 << 30));
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option longopts[] = {
        {"threads", required_argument, NULL, 't'}, {"steps", required_argument, NULL, 'n'},
        {"preset", required_argument, NULL, 'p'},  {"batch", required_argument, NULL, 'b'},
        {"seq", required_argument, NULL, 's'},     {0},
    };
    struct bench bench = {.options = {.threads = 2, .steps = 5, .batch = 4, .seq = 512, .preset = "gpt-125m"}};
    struct error err = {0};
    int option, code;

    while ((option = getopt_long(argc, argv, "", longopts, NULL)) != -1) {
        switch (option) {
        case 't':
            bench.options.threads = atoi(optarg);
            break;
        case 'n':
            bench.options.steps = atoi(optarg);
            break;
        case 'b':
            bench.options.batch = atoi(optarg);
            break;
        case 's':
            bench.options.seq = atoi(optarg);
            break;
        case 'p':
            bench.options.preset = optarg;
            break;
        default:
            return CODE_USAGE;
        }
    }
    if (bench.options.threads < 1 || bench.options.steps < 1 || bench.options.batch < 1 || bench.options.seq < 1) {
        fputs("step: every number must be at least 1\n", stderr);
        return CODE_USAGE;
    }
    code = create(&bench, &err) < 0 || run(&bench, &err) < 0 ? error_report(&err) : CODE_OK;
    destroy(&bench);
    return code;
}

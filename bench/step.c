/*
 * step.c - how much of the machine a training step uses: whole steps of the engine, as model FLOPs, beside the rate of
 * the best large matrix product of the same type on the same threads in the same run.
 *
 *   bench/step [--steps N] [--preset NAME] [--batch B] [--seq S] [--set KEY=VALUE]...
 *   mpiexec -n 2 bench/step --set parallel.zero=3 ...
 *
 * Defaults: 5 steps after one to warm up, gpt-125m, batch 4 (samples a step, over all ranks), sequence 512; threads are
 * OMP_NUM_THREADS's. The product's rate is measured before and after every step by all ranks at once and the best
 * counts, so the ratio errs against us when the machine is busy; on a GPU it is measured once. Where report.peak_tflops
 * is set, that is the rate. Tokens are random bytes, whatever the vocabulary: no cost depends on them.
 *
 * With MUSTER_PROFILE=1 in the environment it prints at the end the time of each operation (profile.h), and measures
 * the product only once. The marks cost a little: quote only rates that were measured without them.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/profile.h"
#include "common/clock.h"
#include "common/philox.h"
#include "plan/cost.h"
#include "trainer/data/indexed.h"
#include "trainer/engine.h"

enum { MOST_SETS = 32, SAMPLES = 64, SENTENCE = 16, PROFILE_LINES = 128 };

struct options {
    int steps, batch, seq;
    const char *preset;
    char *sets[MOST_SETS];
    int nsets;
};

struct bench {
    struct options options;
    struct comm *world;
    struct job job;
    struct engine *engine;
    char dir[64];
    double best_product, total_seconds, best_seconds;
    bool profiled;
};

/* Rank 0 makes a data set of random bytes in a directory that all ranks, on this machine, then read. */
static int write_data(struct bench *b, struct error *err)
{
    struct indexed_writer *writer;
    char prefix[96];
    int result = 0;

    if (comm_rank(b->world) == 0) {
        size_t count = (size_t)SAMPLES * (size_t)b->options.seq + 1;
        unsigned char *bytes = malloc(count);

        snprintf(b->dir, sizeof b->dir, "/tmp/muster-bench-XXXXXX");
        if (!bytes || !mkdtemp(b->dir))
            return error_set(err, CODE_IO, "cannot make a directory in /tmp");
        for (size_t i = 0; i < count; i++)
            bytes[i] = (unsigned char)philox_u32((struct philox_stream){.seed = 1}, i);
        snprintf(prefix, sizeof prefix, "%s/data", b->dir);
        writer = indexed_writer_create(prefix, INDEXED_U8, NULL, err);
        result = writer ? 0 : -1;
        for (size_t i = 0; i < count && result == 0; i += SENTENCE)
            if (indexed_writer_append(writer, bytes + i, count - i < SENTENCE ? count - i : SENTENCE, err) < 0 ||
                indexed_writer_end_sequence(writer, err) < 0)
                result = -1;
        if (result == 0 && (indexed_writer_end_document(writer, err) < 0 || indexed_writer_commit(writer, err) < 0))
            result = -1;
        indexed_writer_destroy(writer);
        free(bytes);
    }
    return comm_agree(b->world, result, err) < 0 ? -1 : comm_broadcast(b->world, b->dir, sizeof b->dir, 0, err);
}

static int create(struct bench *b, struct error *err)
{
    const struct options *o = &b->options;
    char text[512];

    b->world = comm_world_create(err);
    if (!b->world || write_data(b, err) < 0)
        return -1;
    snprintf(text, sizeof text,
             "model: { preset = \"%s\"; seq_length = %d; };\n"
             "batch: { global_batch = %d; micro_batch = %d; };\n"
             "data: { train = \"%s/data\"; };\n",
             o->preset, o->seq, o->batch, o->batch, b->dir);
    if (job_parse(&b->job, text, "bench/step", o->sets, o->nsets, err) < 0)
        return -1;
    b->engine = engine_create(&b->job, b->world, err);
    if (!b->engine || profile_start(b->engine->dev, err) < 0)
        return -1;
    return engine_initialize(b->engine, err);
}

static void destroy(struct bench *b)
{
    char path[128];
    static const char *const names[] = {"data.bin", "data.idx"};

    if (b->engine)
        profile_stop(b->engine->dev);
    engine_destroy(b->engine);
    job_destroy(&b->job);
    if (b->world && comm_rank(b->world) == 0 && b->dir[0]) {
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof path, "%s/%s", b->dir, names[i]);
            unlink(path);
        }
        rmdir(b->dir);
    }
    comm_destroy(b->world);
}

static int measure_product(struct bench *b, struct error *err)
{
    double rate;

    /* A GPU's clocks fall as it gets warm, and a profile is to show nothing but steps. */
    if (b->best_product > 0 && (b->profiled || !device_is_host(b->engine->dev)))
        return 0;
    if (comm_barrier(b->world, err) < 0)
        return -1;
    rate = b->job.report.peak_tflops > 0 ? b->job.report.peak_tflops * 1e12
                                         : device_measure_peak(b->engine->dev, b->job.precision.compute);
    if (comm_sum_f64(b->world, &rate, 1, err) < 0)
        return -1;
    if (rate > b->best_product)
        b->best_product = rate;
    return 0;
}

static int timed_step(struct bench *b, struct step_result *result, double *elapsed, struct error *err)
{
    double started;

    if (measure_product(b, err) < 0 || comm_barrier(b->world, err) < 0)
        return -1;
    started = clock_monotonic();
    if (engine_step(b->engine, result, err) < 0)
        return -1;
    device_wait(b->engine->dev); /* the optimizer's part may still be enqueued */
    if (comm_barrier(b->world, err) < 0)
        return -1;
    *elapsed = clock_monotonic() - started;
    return measure_product(b, err);
}

static void print_head(const struct bench *b, double flops)
{
    const struct engine *e = b->engine;

    printf("%s, batch %d x %d, %s\n", b->options.preset, b->job.batch.global_batch, b->job.model.seq_length,
           device_describe(e->dev));
    printf("dp %d x tp %d x pp %d, ZeRO-%d; %" PRIu64 " parameters, %.3f TFLOP a step (PaLM's count)\n\n",
           e->config.mesh.dp, e->config.mesh.tp, e->config.mesh.pp, b->job.parallel.zero,
           model_parameters(&b->job.model), flops * 1e-12);
    printf("%5s %9s %10s %12s %10s\n", "step", "seconds", "tokens/s", "GFLOP/s", "loss");
}

static void print_end(const struct bench *b, double flops)
{
    double mean = flops / (b->total_seconds / b->options.steps), best = flops / b->best_seconds;

    printf("\nbest matrix product   %8.1f GFLOP/s\n", b->best_product * 1e-9);
    printf("model FLOPs, mean     %8.1f GFLOP/s  %5.1f%%\n", mean * 1e-9, 100 * mean / b->best_product);
    printf("model FLOPs, best     %8.1f GFLOP/s  %5.1f%%\n", best * 1e-9, 100 * best / b->best_product);
    printf("memory of rank 0      %8.2f GiB, and %.2f GiB of the host's\n",
           (double)device_bytes_peak(b->engine->dev, MEMORY_DEVICE) / (1 << 30),
           (double)device_bytes_peak(b->engine->dev, MEMORY_HOST) / (1 << 30));
}

/* Of the steps' time: gaps between operations, transfers and communication are the rest. */
static void print_profile(const struct bench *b)
{
    struct profile_row rows[PROFILE_LINES];
    size_t count = profile_read(b->engine->dev, rows, PROFILE_LINES);
    double sum = 0;

    if (!b->profiled)
        return;
    printf("\n%-44s %8s %10s %7s %9s %9s\n", "operation", "calls", "ms a step", "share", "TFLOP/s", "GB/s");
    for (size_t i = 0; i < count; i++) {
        const struct profile_row *r = &rows[i];

        sum += r->seconds;
        printf("%-44s %8.1f %10.3f %6.1f%%", r->name, (double)r->calls / b->options.steps,
               1e3 * r->seconds / b->options.steps, 100 * r->seconds / b->total_seconds);
        if (r->flops > 0 && r->seconds > 0)
            printf(" %9.1f", r->flops / r->seconds * 1e-12);
        else
            printf(" %9s", "");
        printf(" %9.0f\n", r->seconds > 0 ? r->bytes / r->seconds * 1e-9 : 0);
    }
    printf("%-44s %8s %10.3f %6.1f%%\n", "no operation", "", 1e3 * (b->total_seconds - sum) / b->options.steps,
           100 * (1 - sum / b->total_seconds));
}

static int run(struct bench *b, struct error *err)
{
    double tokens = (double)b->job.batch.global_batch * b->job.model.seq_length;
    double flops = flops_model(&b->job.model, tokens);
    bool leader = comm_rank(b->world) == 0;

    if (leader)
        print_head(b, flops);
    for (int step = 0; step <= b->options.steps; step++) {
        struct step_result result;
        double elapsed;

        if (timed_step(b, &result, &elapsed, err) < 0)
            return -1;
        if (leader)
            printf("%5s %9.3f %10.1f %12.1f %10.4f\n", step ? "" : "warm", elapsed, tokens / elapsed,
                   flops / elapsed * 1e-9, result.loss.all);
        fflush(stdout);
        if (step == 0) {
            struct profile_row row;

            b->profiled = profile_read(b->engine->dev, &row, 1) > 0;
            profile_reset(b->engine->dev);
            continue;
        }
        b->total_seconds += elapsed;
        if (b->best_seconds == 0 || elapsed < b->best_seconds)
            b->best_seconds = elapsed;
    }
    if (leader) {
        print_end(b, flops);
        print_profile(b);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option longopts[] = {
        {"steps", required_argument, NULL, 'n'}, {"preset", required_argument, NULL, 'p'},
        {"batch", required_argument, NULL, 'b'}, {"seq", required_argument, NULL, 's'},
        {"set", required_argument, NULL, 'k'},   {0},
    };
    struct bench bench = {.options = {.steps = 5, .batch = 4, .seq = 512, .preset = "gpt-125m"}};
    struct options *o = &bench.options;
    struct error err = {0};
    int option, code;

    while ((option = getopt_long(argc, argv, "", longopts, NULL)) != -1) {
        if (option == 'n')
            o->steps = atoi(optarg);
        else if (option == 'b')
            o->batch = atoi(optarg);
        else if (option == 's')
            o->seq = atoi(optarg);
        else if (option == 'p')
            o->preset = optarg;
        else if (option == 'k' && o->nsets < MOST_SETS)
            o->sets[o->nsets++] = optarg;
        else
            return CODE_USAGE;
    }
    if (o->steps < 1 || o->batch < 1 || o->seq < 1) {
        fputs("step: every number must be at least 1\n", stderr);
        return CODE_USAGE;
    }
    code = create(&bench, &err) < 0 || run(&bench, &err) < 0 ? error_report(&err) : CODE_OK;
    if (code != CODE_OK && bench.world) {
        comm_world_fail(bench.world, &err);
        code = (int)err.code;
    }
    destroy(&bench);
    return code;
}

/*
 * kernels - times every operation of kernels.h at the shapes of gpt-125m (batch 4 x 512), against two ceilings that are
 * measured in the same run: the rate of a large product, and the bandwidth of a copy. Then adds up one layer.
 *
 *     bench/kernels [THREADS]
 *
 * Each time is the best of several, since whatever else the machine does only makes a run slower. Ratios travel between
 * machines better than times do. More than 100% is no mistake: what fits in the cache is faster than the copy, which
 * does not, and attention is credited with the whole square of scores, of which causality spares it half.
 */
#include "bench/kernels_operations.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/philox.h"

#define REPEATS 7

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double time_of(const struct bench *b, void (*run)(const struct bench *))
{
    double best = 1e9;

    run(b);
    for (int i = 0; i < REPEATS; i++) {
        double start = now(), seconds;

        run(b);
        device_wait(b->dev);
        seconds = now() - start;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static void copy_table(const struct bench *b)
{
    b->k->copy(b->dev, b->logits, b->table, (size_t)VOCAB * D * sizeof(float));
}

static void print_entry(const struct bench *b, const struct bench_entry *e, double seconds)
{
    if (e->flops > 0)
        printf("%-30s %9.3f %9.1f GFLOP/s %6.0f%%\n", e->name, seconds * 1e3, e->flops / seconds * 1e-9,
               100 * e->flops / seconds / b->peak);
    else
        printf("%-30s %9.3f %9.1f GB/s    %6.0f%%\n", e->name, seconds * 1e3, e->bytes / seconds * 1e-9,
               100 * e->bytes / seconds / b->bandwidth);
}

/* gelu has no line of its own: it is what the fused products take beyond the plain ones. */
static double print_table(const struct bench *b, double *matmul, double *flops)
{
    double other = 0, gelu = 0;

    for (int i = 0; i < bench_entry_count; i++) {
        const struct bench_entry *e = &bench_entries[i];
        double seconds = time_of(b, e->run);

        print_entry(b, e, seconds);
        *(e->matmul ? matmul : &other) += e->in_layer * seconds;
        *flops += e->in_layer * e->flops;
        gelu += e->gelu * seconds;
    }
    return other + (gelu > 0 ? gelu : 0);
}

static float *allocate(const struct bench *b, size_t count)
{
    struct error err = {0};
    float *x = device_alloc(b->dev, MEMORY_DEVICE, count * sizeof *x, &err);

    if (!x)
        exit(error_report(&err));
    for (size_t i = 0; i < count; i++)
        x[i] = (float)((i * 2654435761u >> 8 & 0xffff) / 65536.0 - 0.5);
    return x;
}

static void make_buffers(struct bench *b)
{
    struct philox_stream stream = {.seed = 1, .site = philox_site("bench/kernels")};
    size_t wide = (size_t)ROWS * 4 * D;

    b->x = allocate(b, wide);
    b->y = allocate(b, wide);
    b->z = allocate(b, wide);
    b->wide = allocate(b, wide);
    b->d_wide = allocate(b, wide);
    b->weight = allocate(b, (size_t)4 * D * D);
    b->d_weight = allocate(b, (size_t)4 * D * D);
    b->bias = allocate(b, 4 * D);
    b->bias2 = allocate(b, 4 * D);
    for (int i = 0; i < 4; i++)
        b->row[i] = allocate(b, (size_t)ROWS * HEADS);
    b->logits = allocate(b, (size_t)ROWS * STRIDE);
    b->table = allocate(b, (size_t)STRIDE * D);
    b->tokens = (int32_t *)allocate(b, ROWS);
    for (int i = 0; i < ROWS; i++)
        b->tokens[i] = (int32_t)(philox_uniform(stream, i) * VOCAB);
    b->document_start = (int32_t *)allocate(b, ROWS);
    for (int i = 0; i < ROWS; i++)
        b->document_start[i] = i % SEQ / DOCUMENT * DOCUMENT;
}

int main(int argc, char **argv)
{
    struct error err = {0};
    struct bench b = {.dev = device_create("cpu", argc > 1 ? atoi(argv[1]) : 0, &err)};
    double matmul = 0, flops = 0, other;

    if (!b.dev)
        return error_report(&err);
    b.k = device_kernels(b.dev);
    make_buffers(&b);
    b.peak = device_measure_peak(b.dev, DTYPE_F32);
    b.bandwidth = 8.0 * VOCAB * D / time_of(&b, copy_table);
    printf("%s: product of 2048^3 %.1f GFLOP/s, copy %.1f GB/s\n\n", device_describe(b.dev), b.peak * 1e-9,
           b.bandwidth * 1e-9);
    printf("%-30s %9s %17s %7s\n", "operation", "ms", "rate", "ceiling");
    other = print_table(&b, &matmul, &flops);
    printf("\none layer, forward and backward: matmul %.1f ms at %.0f%% of the ceiling, all else %.1f ms (%.1f%% of "
           "matmul)\n",
           matmul * 1e3, 100 * (flops - 3 * ATTENTION_FLOPS) / matmul / b.peak, other * 1e3, 100 * other / matmul);
    printf("model FLOPs %.1f%% of the ceiling\n", 100 * flops / (matmul + other) / b.peak);
    if (device_status(b.dev, &err) < 0)
        return error_report(&err);
    device_destroy(b.dev);
    return 0;
}

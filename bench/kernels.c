/*
 * kernels - times every operation of kernels.h at the shapes of gpt-125m (batch 4 x 512), against two ceilings that are
 * measured in the same run: the rate of a large product, and the bandwidth of a copy. Then adds up one layer.
 *
 *     bench/kernels [THREADS]
 *     bench/machine [RANKS [THREADS]] >NAME.cfg
 *
 * Each time is the best of several, since whatever else the machine does only makes a run slower. Ratios travel between
 * machines better than times do. More than 100% is no mistake: what fits in the cache is faster than the copy, which
 * does not, and attention is credited with the whole square of scores, of which causality spares it half.
 *
 * bench/machine calls it with --machine on all ranks at once, and rank 0 prints what plan/plan_machine.h wants to know of such
 * a rank: the rates of the same operations, of memory and of exchanges while all ranks are busy.
 */
#include "bench/kernels_operations.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/philox.h"
#include "plan/plan_machine.h"
#include "plan/cost.h"
#include "trainer/comm/comm.h"

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

/* What one layer takes, forward and backward, and what the rest of a step takes an element. */
struct sums {
    double matmul, matmul_flops, gelu, attention, rows, adamw, squares;
};

/* gelu has no line of its own: it is what the fused products take beyond the plain ones. */
static struct sums time_all(const struct bench *b, bool print)
{
    struct sums sums = {0};

    for (int i = 0; i < bench_entry_count; i++) {
        const struct bench_entry *e = &bench_entries[i];
        double seconds = time_of(b, e->run);

        if (print)
            print_entry(b, e, seconds);
        if (e->matmul)
            sums.matmul_flops += e->in_layer * e->flops;
        *(e->matmul ? &sums.matmul : e->flops > 0 ? &sums.attention : &sums.rows) += e->in_layer * seconds;
        sums.gelu += e->gelu * seconds;
        if (strcmp(e->name, "adamw") == 0)
            sums.adamw = seconds / PARAMETERS;
        else if (strcmp(e->name, "sum_of_squares") == 0)
            sums.squares = seconds / (4 * PARAMETERS);
    }
    return sums;
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

static void print_table(const struct bench *b)
{
    struct sums sums;
    double other;

    printf("%s: product of 2048^3 %.1f GFLOP/s, copy %.1f GB/s\n\n", device_describe(b->dev), b->peak * 1e-9,
           b->bandwidth * 1e-9);
    printf("%-30s %9s %17s %7s\n", "operation", "ms", "rate", "ceiling");
    sums = time_all(b, true);
    other = sums.attention + sums.rows + fmax(sums.gelu, 0);
    printf("\none layer, forward and backward: matmul %.1f ms at %.0f%% of the ceiling, all else %.1f ms (%.1f%% of "
           "matmul)\n",
           sums.matmul * 1e3, 100 * sums.matmul_flops / sums.matmul / b->peak, other * 1e3, 100 * other / sums.matmul);
    printf("model FLOPs %.1f%% of the ceiling\n",
           100 * (sums.matmul_flops + 3 * ATTENTION_FLOPS) / (sums.matmul + other) / b->peak);
}

/* Seconds of a reduce-scatter and an all-gather of `count` floats in all; the best of several. */
static double exchange_seconds(const struct bench *b, struct comm *world, size_t count, struct error *err)
{
    size_t share = count / (size_t)comm_size(world);
    double best = 1e9;

    for (int i = 0; i < REPEATS; i++) {
        double start;

        if (comm_barrier(world, err) < 0)
            return -1;
        start = now();
        if (comm_wait(comm_start_reduce_scatter(world, DTYPE_F32, b->y, b->logits, share, share, b->wide, err), err) <
                0 ||
            comm_wait(comm_start_all_gather(world, DTYPE_F32, b->logits, share, err), err) < 0)
            return -1;
        best = fmin(best, now() - start);
    }
    return best;
}

static int print_machine(const struct bench *b, struct comm *world, struct error *err)
{
    const struct model_shape shape = {.seq_length = SEQ, .hidden = D, .heads = HEADS};
    double elements = (double)ROWS * D, ranks = comm_size(world), attention, large = 0, small = 0;
    size_t count = (size_t)ROWS * 4 * D;
    struct sums sums = time_all(b, false);
    double products = sums.matmul_flops / (sums.matmul + sums.gelu), peak = fmax(b->peak, products);
    struct stack stack;

    if (stack_read(&stack, "muster-cpu", err) < 0)
        return -1;
    attention = cost_attention_flops(&shape, BATCH, false, false) + cost_attention_flops(&shape, BATCH, false, true);
    if (ranks > 1) {
        large = exchange_seconds(b, world, count, err);
        small = exchange_seconds(b, world, (size_t)ranks, err);
        if (large < 0 || small < 0)
            return -1;
    }
    if (comm_rank(world) > 0)
        return 0;
    printf("# Measured by bench/machine on %s; %.0f rank%s a node.\n", device_describe(b->dev), ranks,
           ranks > 1 ? "s" : "");
    printf("gpu = false;\npeak_fp32 = %.4g;\npeak_bf16 = %.4g;\n", peak,
           fmax(peak, device_measure_peak(b->dev, DTYPE_BF16)));
    printf("product   = %.3f; # with gelu\nattention = %.3f;\n", products / peak, attention / sums.attention / peak);
    printf("memory    = %.4g; # of this node, divided among its ranks\n",
           (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / ranks);
    printf("bandwidth = %.4g;\nrow_bandwidth = %.4g;\n", b->bandwidth,
           stack.rows * sizeof(float) / 2 * elements / sums.rows);
    printf("host_rate = %.4g;\n", 32 * ranks / (sums.adamw + sums.squares));
    if (ranks > 1)
        printf("levels = ( { ranks = %.0f; bandwidth = %.4g; latency = %.2g; },\n", ranks,
               2 * (ranks - 1) / ranks * (double)count * sizeof(float) / large, small / 2 / (ranks - 1));
    else
        printf("levels = ( { ranks = 1; bandwidth = 1e9; latency = 1e-5; },\n");
    printf("           { bandwidth = 1e9; latency = 2e-5; } ); # assumed: correct it for the cluster's network\n");
    return 0;
}

int main(int argc, char **argv)
{
    bool machine = argc > 1 && strcmp(argv[1], "--machine") == 0;
    int threads = argc > 1 + machine ? atoi(argv[1 + machine]) : 0, code = CODE_OK;
    struct error err = {0};
    struct comm *world = machine ? comm_world_create(&err) : comm_alone_create(&err);
    struct bench b = {.dev = world ? device_create("cpu", threads, &err) : NULL};

    if (!b.dev)
        return error_report(&err);
    b.k = device_kernels(b.dev);
    make_buffers(&b);
    b.peak = device_measure_peak(b.dev, DTYPE_F32);
    b.bandwidth = 8.0 * VOCAB * D / time_of(&b, copy_table);
    if (!machine)
        print_table(&b);
    else if (print_machine(&b, world, &err) < 0)
        code = error_report(&err);
    if (device_status(b.dev, &err) < 0)
        code = error_report(&err);
    device_destroy(b.dev);
    comm_destroy(world);
    return code;
}

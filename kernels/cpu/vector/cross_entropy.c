#include "kernels/cpu/vector/vector.h"

#include <math.h>

/* Logits read from memory once for their maximum, and again, from the nearest cache, for the sum. */
#define BLOCK 2048

INLINE float block_max(enum dtype T, const void *x, size_t n)
{
    size_t whole = n / LANES * LANES;
    vec high = vec_all(-INFINITY);
    float best;

    for (size_t i = 0; i < whole; i += LANES)
        high = vec_max(high, typed_load(T, x, i));
    best = vec_highest(high);
    for (size_t i = whole; i < n; i++)
        best = typed_get(T, x, i) > best ? typed_get(T, x, i) : best;
    return best;
}

INLINE float block_sum(enum dtype T, const void *x, float max, size_t n)
{
    size_t whole = n / LANES * LANES;
    vec total = {0};

    for (size_t i = 0; i < whole; i += LANES)
        total += vec_exp2((typed_load(T, x, i) - max) * LOG2_E);
    if (whole < n) {
        vec last = vec_exp2((typed_load_part(T, x, whole, n - whole) - max) * LOG2_E);

        total += vec_select(vec_iota() < (float)(n - whole), last, (vec){0});
    }
    return vec_sum(total);
}

/* The online softmax's normaliser (Milakov and Gimelshein, arXiv 1805.02867), a block at a time. */
INLINE void row_stats(enum dtype T, const void *x, size_t vocab, float *max_out, float *sum_out)
{
    float max = -INFINITY, sum = 0;

    for (size_t first = 0; first < vocab; first += BLOCK) {
        size_t n = vocab - first < BLOCK ? vocab - first : BLOCK;
        float high = block_max(T, typed_at(T, x, first), n);

        if (high > max) {
            sum *= expf(max - high);
            max = high;
        }
        sum += block_sum(T, typed_at(T, x, first), max, n);
    }
    *max_out = max;
    *sum_out = sum;
}

/* The target's column in this slice of the vocabulary, or -1. */
static int64_t target_column(const struct cross_entropy *op, int row)
{
    int64_t column = (int64_t)op->targets[row] - op->vocab_first;

    return column >= 0 && column < op->vocab ? column : -1;
}

INLINE void stats_of(enum dtype T, const struct cross_entropy *op, int row)
{
    const void *x = typed_at(T, op->logits, (size_t)row * op->stride);
    int64_t column = target_column(op, row);

    row_stats(T, x, op->vocab, &op->max[row], &op->sum[row]);
    op->target[row] = column >= 0 ? typed_get(T, x, column) : 0;
}

void ISA(cross_entropy_stats)(struct device *dev, const struct cross_entropy *op)
{
    if (!device_ready(dev, op->dtype, "cross_entropy_stats"))
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < op->rows; row++)
        WITH_DTYPE(op->dtype, T, stats_of(T, op, row));
}

/* The target's gradient is close to 0 where the model is sure: the difference is made before it is rounded. */
INLINE void row_gradient(enum dtype T, void *x, size_t vocab, float max, float factor)
{
    for (size_t i = 0; i < vocab; i += LANES) {
        size_t count = vec_count(i, vocab);
        vec p = vec_exp2((typed_load_part(T, x, i, count) - max) * LOG2_E);

        typed_store_part(T, x, i, p * factor, count);
    }
}

INLINE void finish_row(enum dtype T, const struct cross_entropy *op, int row)
{
    void *x = typed_at(T, op->logits, (size_t)row * op->stride);
    size_t used = op->targets[row] >= 0 ? op->vocab : 0;
    int64_t column = target_column(op, row);
    float factor = op->scale / op->sum[row], at_target[LANES] = {0};

    if (column >= 0) {
        at_target[0] = typed_get(T, x, column);
        row_gradient(DTYPE_F32, at_target, 1, op->max[row], factor);
    }
    op->loss[row] = op->targets[row] >= 0 ? logf(op->sum[row]) + op->max[row] - op->target[row] : 0;
    row_gradient(T, x, used, op->max[row], factor);
    if (column >= 0)
        typed_set(T, x, column, at_target[0] - op->scale);
    memset(typed_at(T, x, used), 0, (op->stride - used) * dtype_size(T));
}

void ISA(cross_entropy_finish)(struct device *dev, const struct cross_entropy *op)
{
    if (!device_ready(dev, op->dtype, "cross_entropy_finish"))
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < op->rows; row++)
        WITH_DTYPE(op->dtype, T, finish_row(T, op, row));
}

void ISA(cross_entropy)(struct device *dev, const struct cross_entropy *op)
{
    ISA(cross_entropy_stats)(dev, op);
    ISA(cross_entropy_finish)(dev, op);
}

/* A part without columns has a maximum of minus infinity, which exp would turn into NaN if all parts were so. */
static void combine_row(const struct cross_entropy_combine *op, size_t row)
{
    size_t rows = (size_t)op->rows;
    float max = -INFINITY, sum = 0, target = 0;

    for (int part = 0; part < op->parts; part++) {
        float here = op->stats[(size_t)part * 3 * rows + row];

        max = here > max || isnan(here) ? here : max;
    }
    for (int part = 0; part < op->parts; part++) {
        const float *stats = op->stats + (size_t)part * 3 * rows + row;

        if (stats[0] != -INFINITY)
            sum += stats[rows] * expf(stats[0] - max);
        target += stats[2 * rows];
    }
    op->max[row] = max;
    op->sum[row] = sum;
    op->target[row] = target;
}

void ISA(cross_entropy_combine)(struct device *dev, const struct cross_entropy_combine *op)
{
    if (!device_ready(dev, DTYPE_F32, "cross_entropy_combine"))
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < op->rows; row++)
        combine_row(op, (size_t)row);
}

#include "kernels/cpu/vector/vector.h"

#include <math.h>

#define BLOCK                                                                                                          \
    2048 /* logits read from memory once for their maximum, and again, from the nearest cache, for the sum             \
          */

static float block_max(const float *x, size_t n)
{
    size_t whole = n / LANES * LANES;
    vec high = vec_all(-INFINITY);
    float best;

    for (size_t i = 0; i < whole; i += LANES)
        high = vec_max(high, vec_load(x + i));
    best = vec_highest(high);
    for (size_t i = whole; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

static float block_sum(const float *x, float max, size_t n)
{
    size_t whole = n / LANES * LANES;
    vec total = {0};

    for (size_t i = 0; i < whole; i += LANES)
        total += vec_exp2((vec_load(x + i) - max) * LOG2_E);
    if (whole < n) {
        vec last = vec_exp2((vec_load_part(x + whole, n - whole) - max) * LOG2_E);

        total += vec_select(vec_iota() < (float)(n - whole), last, (vec){0});
    }
    return vec_sum(total);
}

/* The online softmax's normaliser (Milakov and Gimelshein, arXiv 1805.02867), a block at a time. */
static void row_stats(const float *x, size_t vocab, float *max_out, float *sum_out)
{
    float max = -INFINITY, sum = 0;

    for (size_t first = 0; first < vocab; first += BLOCK) {
        size_t n = vocab - first < BLOCK ? vocab - first : BLOCK;
        float high = block_max(x + first, n);

        if (high > max) {
            sum *= expf(max - high);
            max = high;
        }
        sum += block_sum(x + first, max, n);
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

void ISA(cross_entropy_stats)(struct device *dev, const struct cross_entropy *op)
{
    if (!device_ready(dev, op->dtype, "cross_entropy_stats"))
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < op->rows; row++) {
        const float *x = (const float *)op->logits + (size_t)row * op->stride;
        int64_t column = target_column(op, row);

        row_stats(x, op->vocab, &op->max[row], &op->sum[row]);
        op->target[row] = column >= 0 ? x[column] : 0;
    }
}

static void row_gradient(float *x, size_t vocab, float max, float factor)
{
    for (size_t i = 0; i < vocab; i += LANES) {
        size_t count = vec_count(i, vocab);

        vec_store_part(x + i, vec_exp2((vec_load_part(x + i, count) - max) * LOG2_E) * factor, count);
    }
}

void ISA(cross_entropy_finish)(struct device *dev, const struct cross_entropy *op)
{
    if (!device_ready(dev, op->dtype, "cross_entropy_finish"))
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < op->rows; row++) {
        float *x = (float *)op->logits + (size_t)row * op->stride;
        int64_t column = target_column(op, row);
        int used = op->targets[row] >= 0 ? op->vocab : 0;

        op->loss[row] = op->targets[row] >= 0 ? logf(op->sum[row]) + op->max[row] - op->target[row] : 0;
        row_gradient(x, used, op->max[row], op->scale / op->sum[row]);
        if (column >= 0)
            x[column] -= op->scale;
        memset(x + used, 0, (op->stride - used) * sizeof *x);
    }
}

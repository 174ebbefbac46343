#include <math.h>

#include "kernels/cpu/vector/dropout.h"

/* What is added to x in the columns from i on of the row that begins at element `at`. */
INLINE vec residual_part(enum dtype T, const struct residual *op, struct dropout_run *run, size_t at, size_t i,
                         size_t count)
{
    vec v = typed_load_part(T, op->branch, at + i, count);

    if (op->bias)
        v += typed_load_part(T, op->bias, i, count);
    return run ? dropout_apply(run, v, op->dropout.first + at + i) : v;
}

/* Writes sum and adds it up: the one pass over memory. What follows finds the row in the nearest cache. run NULL: no
 * dropout. */
INLINE float add_residual(enum dtype T, const struct residual *op, struct dropout_run *run, size_t at)
{
    size_t n = (size_t)op->cols;
    vec total = {0};

    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec v = op->x ? typed_load_part(T, op->x, at + i, count) : (vec){0};

        if (op->branch) {
            v = typed_round(T, v + residual_part(T, op, run, at, i, count));
            typed_store_part(T, op->sum, at + i, v, count);
        }
        total += v;
    }
    return vec_sum(total);
}

/* Two passes, and not the mean of squares less the square of the mean, which cancels when the mean is large. */
INLINE float variance(enum dtype T, const void *s, float mean, size_t n)
{
    size_t whole = n / LANES * LANES;
    vec total = {0};
    float rest = 0;

    for (size_t i = 0; i < whole; i += LANES) {
        vec d = typed_load(T, s, i) - mean;

        total += d * d;
    }
    for (size_t i = whole; i < n; i++) {
        float d = typed_get(T, s, i) - mean;

        rest += d * d;
    }
    return (vec_sum(total) + rest) / (float)n;
}

INLINE void normalise(enum dtype T, void *y, const void *s, const struct norm *op, float mean, float rstd)
{
    size_t n = (size_t)op->cols;

    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec normal = (typed_load_part(T, s, i, count) - mean) * rstd;
        vec beta = op->beta ? typed_load_part(T, op->beta, i, count) : (vec){0};

        typed_store_part(T, y, i, normal * typed_load_part(T, op->gamma, i, count) + beta, count);
    }
}

INLINE void forward_row(enum dtype T, const struct norm *op, const struct residual *part, struct dropout_run *run,
                        int index)
{
    size_t n = (size_t)op->cols, at = (size_t)index * n;
    float total = add_residual(T, part, run, at), mean = op->mean ? total / (float)n : 0;
    const void *s = typed_at(T, op->branch ? op->sum : op->x, at);
    float rstd = 1.0f / sqrtf(variance(T, s, mean, n) + op->eps);

    normalise(T, typed_at(T, op->y, at), s, op, mean, rstd);
    if (op->mean)
        op->mean[index] = mean;
    op->rstd[index] = rstd;
}

void ISA(norm_forward)(struct device *dev, const struct norm *op)
{
    const struct residual part = {op->rows, op->cols, op->dtype, op->x, op->branch, op->bias, op->dropout, op->sum};

    if (!device_ready(dev, op->dtype, "norm_forward"))
        return;
#pragma omp parallel num_threads(dev->threads)
    {
        struct dropout_run bits, *run = op->branch && dropout_begin(&bits, &op->dropout) ? &bits : NULL;

#pragma omp for schedule(static)
        for (int row = 0; row < op->rows; row++)
            WITH_DTYPE(op->dtype, T, forward_row(T, op, &part, run, row));
    }
}

void ISA(residual)(struct device *dev, const struct residual *op)
{
    if (!device_ready(dev, op->dtype, "residual"))
        return;
#pragma omp parallel num_threads(dev->threads)
    {
        struct dropout_run bits, *run = dropout_begin(&bits, &op->dropout) ? &bits : NULL;

#pragma omp for schedule(static)
        for (int row = 0; row < op->rows; row++)
            WITH_DTYPE(op->dtype, T, add_residual(T, op, run, (size_t)row * (size_t)op->cols));
    }
}

struct moments {
    float g, g_xhat; /* means over the row; g: 0 of an RMSNorm */
};

/* dgamma and dbeta are partial sums of a block of rows; dbeta may be NULL. */
INLINE struct moments row_moments(enum dtype T, const struct norm_backward *op, size_t row, float *dgamma, float *dbeta)
{
    size_t n = (size_t)op->cols, at = row * n;
    float mean = op->mean ? op->mean[row] : 0, rstd = op->rstd[row];
    vec g_total = {0}, g_xhat_total = {0};

    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec dy = typed_load_part(T, op->dy, at + i, count);
        vec g = dy * typed_load_part(T, op->gamma, i, count);
        vec xhat = (typed_load_part(T, op->sum, at + i, count) - mean) * rstd;

        g_total += g;
        g_xhat_total += g * xhat;
        vec_store_part(dgamma + i, vec_load_part(dgamma + i, count) + dy * xhat, count);
        if (dbeta)
            vec_store_part(dbeta + i, vec_load_part(dbeta + i, count) + dy, count);
    }
    return (struct moments){op->mean ? vec_sum(g_total) / (float)n : 0, vec_sum(g_xhat_total) / (float)n};
}

INLINE void row_gradient(enum dtype T, const struct norm_backward *op, size_t row, struct moments means)
{
    size_t n = (size_t)op->cols, at = row * n;
    float mean = op->mean ? op->mean[row] : 0, rstd = op->rstd[row];

    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec g = typed_load_part(T, op->dy, at + i, count) * typed_load_part(T, op->gamma, i, count);
        vec xhat = (typed_load_part(T, op->sum, at + i, count) - mean) * rstd;
        vec dx = rstd * (g - means.g - xhat * means.g_xhat);

        if (op->dresidual)
            dx += typed_load_part(T, op->dresidual, at + i, count);
        typed_store_part(T, op->dx, at + i, dx, count);
    }
}

INLINE void block_backward(enum dtype T, const struct norm_backward *op, int first, int end, float *dgamma,
                           float *dbeta)
{
    const struct norm_backward own = *op; /* which no store may change: its members stay in registers */

    memset(dgamma, 0, (size_t)op->cols * sizeof *dgamma);
    if (dbeta)
        memset(dbeta, 0, (size_t)op->cols * sizeof *dbeta);
    for (int row = first; row < end; row++)
        row_gradient(T, &own, (size_t)row, row_moments(T, &own, (size_t)row, dgamma, dbeta));
}

void ISA(norm_backward)(struct device *dev, const struct norm_backward *op)
{
    struct row_blocks blocks = row_blocks(op->rows);
    size_t stride, n = op->cols;
    float *partial;

    if (!device_ready(dev, op->dtype, "norm_backward"))
        return;
    partial = cpu_scratch_parts(dev, blocks.count, 2 * n, &stride);
    if (!partial)
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int block = 0; block < blocks.count; block++) {
        int first = block * blocks.rows;
        int end = op->rows - first < blocks.rows ? op->rows : first + blocks.rows;
        float *sums = partial + block * stride;

        WITH_DTYPE(op->dtype, T, block_backward(T, op, first, end, sums, op->dbeta ? sums + n : NULL));
    }
    ISA(add_partial_sums)(dev, op->dgamma, partial, blocks.count, stride, op->cols, false);
    if (op->dbeta)
        ISA(add_partial_sums)(dev, op->dbeta, partial + n, blocks.count, stride, op->cols, false);
}

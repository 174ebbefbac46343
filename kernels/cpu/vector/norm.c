#include <math.h>

#include "kernels/cpu/vector/dropout.h"

struct norm_row {
    const void *x, *branch, *bias;
    void *sum;
    uint64_t element;        /* of the first column, for dropout */
    struct dropout_run *run; /* NULL: no dropout */
};

/* What is added to x in the columns from i on. */
INLINE vec residual_part(enum dtype T, const struct norm_row *r, size_t i, size_t count)
{
    vec v = typed_load_part(T, r->branch, i, count);

    if (r->bias)
        v += typed_load_part(T, r->bias, i, count);
    return r->run ? dropout_apply(r->run, v, r->element + i) : v;
}

/* Writes sum and adds it up: the one pass over memory. What follows finds the row in the nearest cache. */
INLINE float add_residual(enum dtype T, const struct norm_row *r, size_t n)
{
    vec total = {0};

    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec v = r->x ? typed_load_part(T, r->x, i, count) : (vec){0};

        if (r->branch) {
            v = typed_round(T, v + residual_part(T, r, i, count));
            typed_store_part(T, r->sum, i, v, count);
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

INLINE struct norm_row row_at(enum dtype T, const struct residual *op, struct dropout_run *run, int index)
{
    size_t at = (size_t)index * (size_t)op->cols;

    return (struct norm_row){
        .x = op->x ? typed_at(T, op->x, at) : NULL,
        .branch = op->branch ? typed_at(T, op->branch, at) : NULL,
        .bias = op->bias,
        .sum = op->branch ? typed_at(T, op->sum, at) : NULL,
        .element = op->dropout.first + at,
        .run = run,
    };
}

INLINE void forward_row(enum dtype T, const struct norm *op, const struct residual *part, struct dropout_run *run,
                        int index)
{
    size_t n = (size_t)op->cols;
    struct norm_row r = row_at(T, part, run, index);
    float total = add_residual(T, &r, n), mean = op->mean ? total / (float)n : 0;
    const void *s = r.sum ? r.sum : r.x;
    float rstd = 1.0f / sqrtf(variance(T, s, mean, n) + op->eps);

    normalise(T, typed_at(T, op->y, (size_t)index * n), s, op, mean, rstd);
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

INLINE void residual_row(enum dtype T, const struct residual *op, struct dropout_run *run, int index)
{
    struct norm_row r = row_at(T, op, run, index);

    add_residual(T, &r, (size_t)op->cols);
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
            WITH_DTYPE(op->dtype, T, residual_row(T, op, run, row));
    }
}

/*
 * With xhat = (s - mean) * rstd and g = dy * gamma, of each row:
 *   dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) (+ dresidual)
 *   dgamma = sum over rows of dy * xhat,  dbeta = sum over rows of dy
 * An RMSNorm has neither mean nor mean(g): both are 0.
 */
struct gradient_row {
    const void *dy, *sum, *gamma, *dresidual;
    void *dx;
    float *dgamma, *dbeta; /* partial sums of this block of rows; dbeta may be NULL */
    float mean, rstd;
    bool centred; /* a LayerNorm */
};

struct moments {
    float g, g_xhat; /* means over the row */
};

INLINE struct moments row_moments(enum dtype T, const struct gradient_row *r, size_t n)
{
    vec g_total = {0}, g_xhat_total = {0};

    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec dy = typed_load_part(T, r->dy, i, count);
        vec g = dy * typed_load_part(T, r->gamma, i, count);
        vec xhat = (typed_load_part(T, r->sum, i, count) - r->mean) * r->rstd;

        g_total += g;
        g_xhat_total += g * xhat;
        vec_store_part(r->dgamma + i, vec_load_part(r->dgamma + i, count) + dy * xhat, count);
        if (r->dbeta)
            vec_store_part(r->dbeta + i, vec_load_part(r->dbeta + i, count) + dy, count);
    }
    return (struct moments){r->centred ? vec_sum(g_total) / (float)n : 0, vec_sum(g_xhat_total) / (float)n};
}

INLINE void row_gradient(enum dtype T, const struct gradient_row *r, struct moments mean, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec g = typed_load_part(T, r->dy, i, count) * typed_load_part(T, r->gamma, i, count);
        vec xhat = (typed_load_part(T, r->sum, i, count) - r->mean) * r->rstd;
        vec dx = r->rstd * (g - mean.g - xhat * mean.g_xhat);

        if (r->dresidual)
            dx += typed_load_part(T, r->dresidual, i, count);
        typed_store_part(T, r->dx, i, dx, count);
    }
}

INLINE void block_backward(enum dtype T, const struct norm_backward *op, int first, int end, float *dgamma,
                           float *dbeta)
{
    size_t n = op->cols;

    memset(dgamma, 0, n * sizeof *dgamma);
    if (dbeta)
        memset(dbeta, 0, n * sizeof *dbeta);
    for (int row = first; row < end; row++) {
        struct gradient_row r = {
            .dy = typed_at(T, op->dy, row * n),
            .sum = typed_at(T, op->sum, row * n),
            .gamma = op->gamma,
            .dresidual = op->dresidual ? typed_at(T, op->dresidual, row * n) : NULL,
            .dx = typed_at(T, op->dx, row * n),
            .dgamma = dgamma,
            .dbeta = dbeta,
            .mean = op->mean ? op->mean[row] : 0,
            .rstd = op->rstd[row],
            .centred = op->mean,
        };

        row_gradient(T, &r, row_moments(T, &r, n), n);
    }
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

#include "kernels/cpu/vector/typed.h"
#include "kernels/cpu/vector/vector.h"

/*
 * With xhat = (s - mean) * rstd and g = dy * gamma, of each row:
 *   dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) (+ dresidual)
 *   dgamma = sum over rows of dy * xhat,  dbeta = sum over rows of dy
 */
struct norm_row {
    const void *dy, *sum, *gamma, *dresidual;
    void *dx;
    float *dgamma, *dbeta; /* partial sums of this block of rows */
    float mean, rstd;
};

struct moments {
    float g, g_xhat; /* means over the row */
};

INLINE struct moments row_moments(enum dtype T, const struct norm_row *r, size_t n)
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
        vec_store_part(r->dbeta + i, vec_load_part(r->dbeta + i, count) + dy, count);
    }
    return (struct moments){vec_sum(g_total) / (float)n, vec_sum(g_xhat_total) / (float)n};
}

INLINE void row_gradient(enum dtype T, const struct norm_row *r, struct moments mean, size_t n)
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

INLINE void block_backward(enum dtype T, const struct layernorm_backward *op, int first, int end, float *dgamma,
                           float *dbeta)
{
    size_t n = op->cols;

    memset(dgamma, 0, n * sizeof *dgamma);
    memset(dbeta, 0, n * sizeof *dbeta);
    for (int row = first; row < end; row++) {
        struct norm_row r = {
            .dy = typed_at(T, op->dy, row * n),
            .sum = typed_at(T, op->sum, row * n),
            .gamma = op->gamma,
            .dresidual = op->dresidual ? typed_at(T, op->dresidual, row * n) : NULL,
            .dx = typed_at_mutable(T, op->dx, row * n),
            .dgamma = dgamma,
            .dbeta = dbeta,
            .mean = op->mean[row],
            .rstd = op->rstd[row],
        };

        row_gradient(T, &r, row_moments(T, &r, n), n);
    }
}

void ISA(layernorm_backward)(struct device *dev, const struct layernorm_backward *op)
{
    struct row_blocks blocks = row_blocks(op->rows);
    size_t stride, n = op->cols;
    float *partial;

    if (!device_ready(dev, op->dtype, "layernorm_backward"))
        return;
    if (op->rows == 0) {
        memset(op->dgamma, 0, n * sizeof(float));
        memset(op->dbeta, 0, n * sizeof(float));
        return;
    }
    partial = cpu_scratch_parts(dev, blocks.count, 2 * n, &stride);
    if (!partial)
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int block = 0; block < blocks.count; block++) {
        int first = block * blocks.rows;
        int end = op->rows - first < blocks.rows ? op->rows : first + blocks.rows;
        float *sums = partial + block * stride;

        WITH_DTYPE(op->dtype, T, block_backward(T, op, first, end, sums, sums + n));
    }
    ISA(add_partial_sums)(dev, op->dgamma, partial, blocks.count, stride, op->cols, false);
    ISA(add_partial_sums)(dev, op->dbeta, partial + n, blocks.count, stride, op->cols, false);
}

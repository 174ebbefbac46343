#include "kernels/cuda/gpu/dropout_mask.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/gpu/reduce.h"
#include "kernels/cuda/gpu/rows.h"

#define EPSILON 1e-5f

/*
 * sum = x + dropout(residual + bias), rounded to T;  y = (sum - mean) * rstd * gamma + beta
 *
 * A row is read once, stays in registers while its mean and then its variance are made (the mean of squares less the
 * square of the mean would cancel), and is written once.
 */
template <class T>
static inline __device__ struct pack add_residual(const struct layernorm &op, const struct mask &mask, size_t row,
                                                  int col)
{
    size_t at = row * static_cast<size_t>(op.cols) + static_cast<size_t>(col);
    int n = pack_count(static_cast<size_t>(col), static_cast<size_t>(op.cols));
    struct pack v = pack_load(static_cast<const T *>(op.x) + at, n), part;

    if (!op.residual)
        return v;
    part = pack_load(static_cast<const T *>(op.residual) + at, n);
    if (op.bias)
        pack_add(part, pack_load(static_cast<const T *>(op.bias) + col, n));
    mask_apply(mask, part, at);
#pragma unroll
    for (int j = 0; j < PACK; j++)
        v.v[j] = round_to<T>(v.v[j] + part.v[j]);
    pack_store(static_cast<T *>(op.sum) + at, v, n);
    return v;
}

/* Squares of the differences from the mean, of the columns that there are. */
static inline __device__ float sum_squares(const struct pack &v, float mean, int n)
{
    float total = 0;

#pragma unroll
    for (int j = 0; j < PACK; j++) {
        float d = j < n ? v.v[j] - mean : 0.0f;

        total += d * d;
    }
    return total;
}

template <class T>
static inline __device__ void normalise_row(const struct layernorm &op, struct pack v, size_t row, int col, float mean,
                                            float rstd)
{
    int n = pack_count(static_cast<size_t>(col), static_cast<size_t>(op.cols));
    struct pack gamma = pack_load(static_cast<const T *>(op.gamma) + col, n);
    struct pack beta = pack_load(static_cast<const T *>(op.beta) + col, n);

#pragma unroll
    for (int j = 0; j < PACK; j++)
        v.v[j] = (v.v[j] - mean) * rstd * gamma.v[j] + beta.v[j];
    pack_store(static_cast<T *>(op.y) + row * static_cast<size_t>(op.cols) + col, v, n);
}

template <class T, int PACKS>
static __global__ void __launch_bounds__(ROW_THREADS)
    layernorm_forward(struct layernorm op, struct mask mask, int warps)
{
    __shared__ float2 scratch[MOST_WARPS];
    int row = static_cast<int>(blockIdx.x) * rows_of_block(warps) + row_in_block(warps);
    float total = 0, mean, rstd;
    struct pack v[PACKS];

    if (row >= op.rows)
        return; /* a whole warp, and there is no barrier then */
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (row_column(p, warps) < op.cols) {
            v[p] = add_residual<T>(op, mask, static_cast<size_t>(row), row_column(p, warps));
#pragma unroll
            for (int j = 0; j < PACK; j++)
                total += v[p].v[j];
        }
    mean = row_sum(total, scratch, warps) / static_cast<float>(op.cols);
    total = 0;
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (row_column(p, warps) < op.cols)
            total += sum_squares(v[p], mean, op.cols - row_column(p, warps));
    rstd = 1.0f / sqrtf(row_sum(total, scratch, warps) / static_cast<float>(op.cols) + EPSILON);
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (row_column(p, warps) < op.cols)
            normalise_row<T>(op, v[p], static_cast<size_t>(row), row_column(p, warps), mean, rstd);
    if (row_column(0, warps) == 0) {
        op.mean[row] = mean;
        op.rstd[row] = rstd;
    }
}

void cuda_layernorm_forward(struct device *dev, const struct layernorm *op)
{
    struct row_shape shape = row_shape(op->cols);

    if (!device_ready(dev, op->dtype, "layernorm_forward") || op->rows == 0 ||
        !row_fits(dev, op->cols, "layernorm_forward"))
        return;
    WITH_TYPE(op->dtype, T,
              WITH_PACKS(shape.packs, PACKS,
                         LAUNCH(dev, (layernorm_forward<T, PACKS>), row_blocks(op->rows, shape.warps),
                                row_threads(shape.warps), 0, *op, mask_of(&op->dropout), shape.warps)));
}

/* sum = x + dropout(residual + bias); sum may be x or residual, so a pack is read before it is written. */
template <class T>
static __global__ void __launch_bounds__(ROW_WARPS *WARP) residual(struct residual op, struct mask mask)
{
    size_t row = static_cast<size_t>(blockIdx.x) * ROW_WARPS + threadIdx.x / WARP, cols = static_cast<size_t>(op.cols);

    if (row >= static_cast<size_t>(op.rows))
        return;
    for (size_t col = threadIdx.x % WARP * PACK; col < cols; col += WARP * PACK) {
        size_t at = row * cols + col;
        int n = pack_count(col, cols);
        struct pack v = pack_load(static_cast<const T *>(op.residual) + at, n), x = {};

        if (op.x)
            x = pack_load(static_cast<const T *>(op.x) + at, n);
        if (op.bias)
            pack_add(v, pack_load(static_cast<const T *>(op.bias) + col, n));
        mask_apply(mask, v, at);
        pack_add(v, x);
        pack_store(static_cast<T *>(op.sum) + at, v, n);
    }
}

void cuda_residual(struct device *dev, const struct residual *op)
{
    if (!device_ready(dev, op->dtype, "residual") || op->rows == 0 || !op->residual)
        return;
    WITH_TYPE(op->dtype, T,
              LAUNCH(dev, residual<T>, row_blocks(op->rows, 1), row_threads(1), 0, *op, mask_of(&op->dropout)));
}

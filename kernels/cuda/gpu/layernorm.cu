#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gpu/dropout_mask.h"
#include "kernels/cuda/gpu/rows.h"

#define EPSILON 1e-5f

/*
 * sum = x + dropout(branch + bias), rounded to T;  y = (sum - mean) * rstd * gamma + beta
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

    if (!op.branch)
        return v;
    part = pack_load(static_cast<const T *>(op.branch) + at, n);
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
                         LAUNCH(dev, (layernorm_forward<T, PACKS>), grid_of_rows(op->rows, shape.warps),
                                row_threads(shape.warps), 0, *op, mask_of(&op->dropout), shape.warps)));
}

/* sum = x + dropout(branch + bias); sum may be x or branch, so a pack is read before it is written. */
template <class T>
static __global__ void __launch_bounds__(ROW_WARPS *WARP) residual(struct residual op, struct mask mask)
{
    size_t row = static_cast<size_t>(blockIdx.x) * ROW_WARPS + threadIdx.x / WARP, cols = static_cast<size_t>(op.cols);

    if (row >= static_cast<size_t>(op.rows))
        return;
    for (size_t col = threadIdx.x % WARP * PACK; col < cols; col += WARP * PACK) {
        size_t at = row * cols + col;
        int n = pack_count(col, cols);
        struct pack v = pack_load(static_cast<const T *>(op.branch) + at, n), x = {};

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
    if (!device_ready(dev, op->dtype, "residual") || op->rows == 0 || !op->branch)
        return;
    WITH_TYPE(op->dtype, T,
              LAUNCH(dev, residual<T>, grid_of_rows(op->rows, 1), row_threads(1), 0, *op, mask_of(&op->dropout)));
}

/*
 * With xhat = (s - mean) * rstd and g = dy * gamma, of each row:
 *   dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) (+ dresidual)
 *   dgamma = sum over rows of dy * xhat,  dbeta = sum over rows of dy
 *
 * A block takes many rows, a stride apart, and keeps its part of dgamma and dbeta meanwhile: in registers, or where the
 * row takes more than NARROW warps, which leaves too few of these to each thread, in shared memory. A second kernel
 * adds the blocks' parts in order. Each row is read once and written once.
 */
#define NARROW 8 /* warps */

static_assert(NORM_ROW_WARPS == ROW_WARPS && NORM_WARP_LIMIT == MOST_PACKS * WARP * PACK, "as it is predicted");

/* around: what flows around the norm. It is needed last and loaded EARLY, so that a block's few warps wait for memory
 * once a row; but not where registers are short. */
struct row_gradient {
    struct pack dy, xhat, around;
};

/* Of the columns from col on: also g and g * xhat, added to sums. */
template <class T, bool EARLY>
static inline __device__ struct row_gradient row_load(const struct layernorm_backward &op, size_t at, int col,
                                                      float mean, float rstd, float2 &sums)
{
    int n = min(op.cols - col, PACK);
    struct row_gradient r = {
        pack_load(static_cast<const T *>(op.dy) + at, n), pack_load(static_cast<const T *>(op.sum) + at, n), {}};
    struct pack gamma = pack_load(static_cast<const T *>(op.gamma) + col, n);

    if (EARLY && op.dresidual)
        r.around = pack_load(static_cast<const T *>(op.dresidual) + at, n);
#pragma unroll
    for (int j = 0; j < PACK; j++) {
        float g = r.dy.v[j] * gamma.v[j]; /* 0 beyond the row's end */

        r.xhat.v[j] = (r.xhat.v[j] - mean) * rstd;
        sums.x += g;
        sums.y += g * r.xhat.v[j];
    }
    return r;
}

template <class T, bool EARLY>
static inline __device__ void row_store(const struct layernorm_backward &op, const struct row_gradient &r, size_t at,
                                        int col, float2 means, float rstd)
{
    int n = min(op.cols - col, PACK);
    struct pack gamma = pack_load(static_cast<const T *>(op.gamma) + col, n), dx = r.around;

    if (!EARLY && op.dresidual)
        dx = pack_load(static_cast<const T *>(op.dresidual) + at, n);
#pragma unroll
    for (int j = 0; j < PACK; j++)
        dx.v[j] += rstd * (r.dy.v[j] * gamma.v[j] - means.x - r.xhat.v[j] * means.y);
    pack_store(static_cast<T *>(op.dx) + at, dx, n);
}

/* Where a block has a row a warp, its warps add their sums in order; shared [cols]. Then to this block's part. */
template <int PACKS>
static inline __device__ void store_sums(float *part, float *shared, const struct pack sums[PACKS], int cols, int warps)
{
    for (int turn = 0; turn < rows_of_block(warps); turn++) {
        bool last = turn == rows_of_block(warps) - 1;

        if (row_in_block(warps) == turn)
#pragma unroll
            for (int p = 0; p < PACKS; p++) {
                int col = row_column(p, warps), n = min(cols - col, PACK);
                struct pack total = sums[p];

                if (n > 0 && turn > 0)
                    pack_add(total, pack_load(shared + col, n));
                if (n > 0)
                    pack_store((last ? part : shared) + col, total, n);
            }
        __syncthreads();
    }
}

static inline __device__ void add_narrow(struct pack &dgamma, struct pack &dbeta, const struct row_gradient &r)
{
#pragma unroll
    for (int j = 0; j < PACK; j++) {
        dgamma.v[j] += r.dy.v[j] * r.xhat.v[j];
        dbeta.v[j] += r.dy.v[j];
    }
}

/* A block's sums of the columns from col on: shared [2][cols], each thread its own. */
static inline __device__ void add_wide(float *shared, const struct row_gradient &r, int cols, int col)
{
    int n = min(cols - col, PACK);
    struct pack dgamma = pack_load(shared + col, n), dbeta = pack_load(shared + cols + col, n);

#pragma unroll
    for (int j = 0; j < PACK; j++)
        dgamma.v[j] += r.dy.v[j] * r.xhat.v[j];
    pack_add(dbeta, r.dy);
    pack_store(shared + col, dgamma, n);
    pack_store(shared + cols + col, dbeta, n);
}

/* shared: zeroed or, at the end, copied to the block's part. */
template <int PACKS> static inline __device__ void wide_sums(float *to, const float *from, int cols, int warps)
{
    for (int i = 0; i < 2 * PACKS; i++) {
        int col = row_column(i / 2, warps), n = min(cols - col, PACK), at = i % 2 * cols + col;

        if (n > 0)
            pack_store(to + at, from ? pack_load(from + at, n) : pack(), n);
    }
}

/* partial[block][2][cols]: dgamma, dbeta */
template <class T, int PACKS, bool WIDE>
static __global__ void __launch_bounds__(WIDE ? ROW_THREADS : NARROW *WARP)
    layernorm_backward(struct layernorm_backward op, float *partial, int warps)
{
    __shared__ float2 scratch[MOST_WARPS];
    DYNAMIC_SHARED(float, shared);
    int step = static_cast<int>(gridDim.x) * rows_of_block(warps), cols = op.cols;
    float *part = partial + static_cast<size_t>(blockIdx.x) * 2 * cols;
    struct pack dgamma[PACKS] = {}, dbeta[PACKS] = {};

    if constexpr (WIDE)
        wide_sums<PACKS>(shared, NULL, cols, warps);
    for (int row = static_cast<int>(blockIdx.x) * rows_of_block(warps) + row_in_block(warps); row < op.rows;
         row += step) {
        size_t at = static_cast<size_t>(row) * cols;
        float mean = op.mean[row], rstd = op.rstd[row];
        struct row_gradient r[PACKS];
        float2 sums = make_float2(0, 0);

#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            int col = row_column(p, warps);

            if (col >= cols)
                continue;
            r[p] = row_load<T, !WIDE>(op, at + col, col, mean, rstd, sums);
            if constexpr (WIDE)
                add_wide(shared, r[p], cols, col);
            else
                add_narrow(dgamma[p], dbeta[p], r[p]);
        }
        sums = row_sums(sums, scratch, warps);
        sums = make_float2(sums.x / static_cast<float>(cols), sums.y / static_cast<float>(cols));
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            if (row_column(p, warps) < cols)
                row_store<T, !WIDE>(op, r[p], at + row_column(p, warps), row_column(p, warps), sums, rstd);
    }
    if constexpr (WIDE) {
        wide_sums<PACKS>(part, shared, cols, warps);
    } else {
        store_sums<PACKS>(part, shared, dgamma, cols, warps);
        store_sums<PACKS>(part + cols, shared, dbeta, cols, warps);
    }
}

template <class T>
static void launch_backward(struct device *dev, const struct layernorm_backward *op, float *partial, int blocks)
{
    struct row_shape shape = row_shape(op->cols);
    /* Whole packs: the compiler loads four elements at once where the first of them exists. */
    size_t row = static_cast<size_t>((op->cols + PACK - 1) / PACK * PACK) * sizeof(float);
    unsigned grid = static_cast<unsigned>(blocks), threads = row_threads(shape.warps);

    if (shape.warps > NARROW)
        WITH_PACKS(
            shape.packs, PACKS,
            LAUNCH(dev, (layernorm_backward<T, PACKS, true>), grid, threads, 2 * row, *op, partial, shape.warps));
    else
        WITH_PACKS(shape.packs, PACKS,
                   LAUNCH(dev, (layernorm_backward<T, PACKS, false>), grid, threads, shape.warps == 1 ? row : 0, *op,
                          partial, shape.warps));
}

void cuda_layernorm_backward(struct device *dev, const struct layernorm_backward *op)
{
    int blocks = norm_blocks(op->rows, op->cols);
    size_t cols = static_cast<size_t>(op->cols);
    float *partial;

    if (!device_ready(dev, op->dtype, "layernorm_backward") || !row_fits(dev, op->cols, "layernorm_backward"))
        return;
    if (op->rows == 0) {
        cuda_zero(dev, op->dgamma, cols * sizeof(float));
        cuda_zero(dev, op->dbeta, cols * sizeof(float));
        return;
    }
    partial = static_cast<float *>(cuda_workspace(dev, workspace_layernorm_backward(op->rows, op->cols)));
    if (!partial)
        return;
    WITH_TYPE(op->dtype, T, launch_backward<T>(dev, op, partial, blocks));
    cuda_add_partial_sums(dev, op->dgamma, partial, blocks, 2 * cols, op->cols, false);
    cuda_add_partial_sums(dev, op->dbeta, partial + cols, blocks, 2 * cols, op->cols, false);
}

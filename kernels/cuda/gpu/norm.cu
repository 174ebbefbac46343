#include "kernels/cuda/gpu/dropout_mask.h"
#include "kernels/cuda/gpu/rows.h"

/*
 * LAYER, of a kernel: it has a mean and beta, as a LayerNorm has. Else either may be missing, as of an RMSNorm; asked at
 * run time, this would cost the LayerNorm's kernels registers.
 *
 * A row is read once, stays in registers while its mean and then its variance are made (the mean of squares less the
 * square of the mean would cancel), and is written once.
 */
template <class T, bool WHOLE>
static inline __device__ struct raw_pack<T> add_branch(const struct norm &op, const struct mask &mask,
                                                       const struct raw_pack<T> &x, const struct raw_pack<T> &branch,
                                                       size_t row, int col) {
    size_t at = row * static_cast<size_t>(op.cols) + static_cast<size_t>(col);
    int n = min(op.cols - col, PACK);
    struct pack part = raw_widen(branch);
    struct raw_pack<T> sum;

    if (op.bias)
        pack_add(part, raw_widen(raw_load<WHOLE>(static_cast<const T *>(op.bias) + col, n)));
    mask_apply(mask, part, at);
    pack_add(part, raw_widen(x));
    sum = raw_narrow<T>(part);
    raw_store<WHOLE>(static_cast<T *>(op.sum) + at, sum, n);
    return sum;
}

/* The row's packs of this thread: all loads are on their way before the first is used. */
template <class T, int PACKS, bool WHOLE>
static inline __device__ void load_row(struct raw_pack<T> v[PACKS], const struct norm &op, const struct mask &mask,
                                       size_t row, int warps)
{
    size_t at = row * static_cast<size_t>(op.cols);
    struct raw_pack<T> branch[PACKS];

#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int col = row_column(p, warps), n = min(op.cols - col, PACK);

        if (n > 0)
            v[p] = raw_load<WHOLE>(static_cast<const T *>(op.x) + at + col, n);
        if (n > 0 && op.branch)
            branch[p] = raw_load<WHOLE>(static_cast<const T *>(op.branch) + at + col, n);
    }
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (row_column(p, warps) < op.cols && op.branch)
            v[p] = add_branch<T, WHOLE>(op, mask, v[p], branch[p], row, row_column(p, warps));
}

template <class T, int PACKS>
static inline __device__ float sum_packs(const struct raw_pack<T> v[PACKS], int cols, int warps)
{
    float total = 0;

#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (row_column(p, warps) < cols) {
            struct pack x = raw_widen(v[p]);

#pragma unroll
            for (int j = 0; j < PACK; j++)
                total += x.v[j];
        }
    return total;
}

/* Squares of the differences from the mean, of the columns that there are. */
static inline __device__ float sum_squares(const struct pack &v, float mean, int n)
{
    float total = 0;

#pragma unroll
    for (int j = 0; j < PACK; j++) {
        float d = j < n ? v.v[j] - mean : 0.0f;

        total = fmaf(d, d, total);
    }
    return total;
}

template <class T, bool WHOLE, bool LAYER>
static inline __device__ void normalise_row(const struct norm &op, struct pack v, size_t row, int col, float mean,
                                            float rstd)
{
    int n = min(op.cols - col, PACK);
    struct pack gamma = raw_widen(raw_load<WHOLE>(static_cast<const T *>(op.gamma) + col, n));
    struct pack beta = {};

    if (LAYER || op.beta)
        beta = raw_widen(raw_load<WHOLE>(static_cast<const T *>(op.beta) + col, n));
#pragma unroll
    for (int j = 0; j < PACK; j++)
        v.v[j] = fmaf(__fmul_rn(v.v[j] - mean, rstd), gamma.v[j], beta.v[j]);
    raw_store<WHOLE>(static_cast<T *>(op.y) + row * static_cast<size_t>(op.cols) + col, raw_narrow<T>(v), n);
}

/* Only rows of MOST_PACKS packs a thread take more than ROW_WARPS warps. In 16 bits the registers of the other kernels
 * are bounded so that six blocks fit on a multiprocessor. */
template <class T, int PACKS, bool WHOLE, bool LAYER>
static __global__ void __launch_bounds__(PACKS < MOST_PACKS ? ROW_WARPS * WARP : ROW_THREADS,
                                         PACKS < MOST_PACKS && sizeof(T) == 2 ? 6 : 1)
    norm_forward(struct norm op, struct mask mask, int warps)
{
    __shared__ float2 scratch[MOST_WARPS];
    int row = static_cast<int>(blockIdx.x) * rows_of_block(warps) + row_in_block(warps);
    float total = 0, inverse = 1.0f / static_cast<float>(op.cols), mean = 0, rstd;
    struct raw_pack<T> v[PACKS];

    if (row >= op.rows)
        return; /* a whole warp, and there is no barrier then */
    load_row<T, PACKS, WHOLE>(v, op, mask, static_cast<size_t>(row), warps);
    if (LAYER || op.mean)
        mean = row_sum(sum_packs<T, PACKS>(v, op.cols, warps), scratch, warps) * inverse;
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (row_column(p, warps) < op.cols)
            total += sum_squares(raw_widen(v[p]), mean, WHOLE ? PACK : op.cols - row_column(p, warps));
    rstd = 1.0f / sqrtf(fmaf(row_sum(total, scratch, warps), inverse, op.eps));
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (row_column(p, warps) < op.cols)
            normalise_row<T, WHOLE, LAYER>(op, raw_widen(v[p]), static_cast<size_t>(row), row_column(p, warps), mean,
                                           rstd);
    if (row_column(0, warps) == 0) {
        if (LAYER || op.mean)
            op.mean[row] = mean;
        op.rstd[row] = rstd;
    }
}

void cuda_norm_forward(struct device *dev, const struct norm *op)
{
    struct row_shape shape = row_shape(op->cols);
    bool whole = rows_are_whole(op->cols, {op->x, op->branch, op->bias, op->gamma, op->beta, op->sum, op->y});

    if (!device_ready(dev, op->dtype, "norm_forward") || op->rows == 0 || !row_fits(dev, op->cols, "norm_forward"))
        return;
    WITH_TYPE(op->dtype, T,
              WITH_PACKS(shape.packs, PACKS,
                         WITH_BOOL(whole, WHOLE,
                                   WITH_BOOL(op->mean && op->beta, LAYER,
                                             LAUNCH(dev, (norm_forward<T, PACKS, WHOLE, LAYER>),
                                                    grid_of_rows(op->rows, shape.warps), row_threads(shape.warps), 0,
                                                    *op, mask_of(&op->dropout), shape.warps)))));
}

/* sum may be x or branch, so a pack is read before it is written. */
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
 * A block takes every gridDim.x-th row. A thread has one pack of its columns, so that it needs few registers: more only
 * if a row is wider than NORM_WARPS warps, and then each row is read twice. A second kernel adds the blocks' parts of
 * dgamma and dbeta in order.
 */
static_assert(COLUMN_STRIP == WARP * PACK && NORM_WARPS == MOST_WARPS, "as it is predicted");

/* A pack of each. Of what is beyond the row's end, dy is 0. */
template <class T> struct row_gradient {
    struct raw_pack<T> dy, sum;
};

template <class T, bool WHOLE>
static inline __device__ struct row_gradient<T> row_load(const struct norm_backward &op, size_t at, int col) {
    int n = min(op.cols - col, PACK);

    return {raw_load<WHOLE>(static_cast<const T *>(op.dy) + at + col, n),
            raw_load<WHOLE>(static_cast<const T *>(op.sum) + at + col, n)};
}

/* Loaded twice for each row, from the nearest cache: no registers are left to keep it. */
template <class T, bool WHOLE>
static inline __device__ struct pack load_gamma(const struct norm_backward &op, int col)
{
    return raw_widen(raw_load<WHOLE>(static_cast<const T *>(op.gamma) + col, min(op.cols - col, PACK)));
}

template <class T>
static inline __device__ float2 add_terms(struct pack &dgamma, struct pack &dbeta, const struct row_gradient<T> &r,
                                          const struct pack &gamma, float mean, float rstd)
{
    struct pack dy = raw_widen(r.dy), sum = raw_widen(r.sum);
    float2 sums = make_float2(0, 0); /* of g and g * xhat */

#pragma unroll
    for (int j = 0; j < PACK; j++) {
        float xhat = __fmul_rn(sum.v[j] - mean, rstd), g = __fmul_rn(dy.v[j], gamma.v[j]);

        sums.x += g;
        sums.y = fmaf(g, xhat, sums.y);
        dgamma.v[j] = fmaf(dy.v[j], xhat, dgamma.v[j]);
        dbeta.v[j] += dy.v[j];
    }
    return sums;
}

/* g - mean(g) - xhat * mean(g * xhat) */
template <class T>
static inline __device__ struct pack row_result(const struct row_gradient<T> &r, const struct pack &gamma, float2 means,
                                                float mean, float rstd)
{
    struct pack dy = raw_widen(r.dy), sum = raw_widen(r.sum), result;

#pragma unroll
    for (int j = 0; j < PACK; j++)
        result.v[j] = fmaf(-__fmul_rn(sum.v[j] - mean, rstd), means.y, fmaf(dy.v[j], gamma.v[j], -means.x));
    return result;
}

template <class T, bool WHOLE>
static inline __device__ void row_store(const struct norm_backward &op, const struct pack &result,
                                        const struct raw_pack<T> &around, size_t at, int col, float rstd)
{
    struct pack dx = raw_widen(around);

#pragma unroll
    for (int j = 0; j < PACK; j++)
        dx.v[j] = fmaf(rstd, result.v[j], dx.v[j]);
    raw_store<WHOLE>(static_cast<T *>(op.dx) + at + col, raw_narrow<T>(dx), min(op.cols - col, PACK));
}

template <class T, bool WHOLE>
static inline __device__ struct raw_pack<T> load_around(const struct norm_backward &op, size_t at, int col) {
    if (!op.dresidual)
        return raw_narrow<T>(pack());
    return raw_load<WHOLE>(static_cast<const T *>(op.dresidual) + at + col, min(op.cols - col, PACK));
}

/* What is behind this is not loaded before it: with several packs, registers are short. */
static inline __device__ void
load_later(void)
{
    asm volatile("" ::: "memory");
}

/* The column of the thread's pack number p, of a block that has one row. */
template <int PACKS> static inline __device__ int pack_column(int p, int warps)
{
    return (p * warps * WARP + static_cast<int>(PACKS > 1 ? thread_anew() : threadIdx.x)) * PACK;
}

/* MEAN: of a LayerNorm. partial[block][1 or 2][cols]: dgamma, and dbeta if it is asked for. */
template <class T, int PACKS, bool WHOLE, bool MEAN>
static __global__ void __launch_bounds__(NORM_WARPS *WARP, PACKS == 1 && sizeof(T) == 2 ? 2 : 1)
    norm_backward(struct norm_backward op, float *partial, int warps)
{
    __shared__ float2 scratch[NORM_WARPS];
    float *part = partial + static_cast<size_t>(blockIdx.x) * (op.dbeta ? 2 : 1) * op.cols;
    struct pack dgamma[PACKS] = {}, dbeta[PACKS] = {};
    float inverse = 1.0f / static_cast<float>(op.cols);

    for (int row = static_cast<int>(blockIdx.x); row < op.rows; row += static_cast<int>(gridDim.x)) {
        float mean = MEAN ? op.mean[row] : 0.0f, rstd = op.rstd[row];
        size_t at = static_cast<size_t>(row) * op.cols;
        float2 means = make_float2(0, 0);
        struct raw_pack<T> around;
        struct row_gradient<T> r;

#pragma unroll
        for (int p = 0; p < PACKS; p++)
            if (pack_column<PACKS>(p, warps) < op.cols) {
                r = row_load<T, WHOLE>(op, at, pack_column<PACKS>(p, warps));
                if (PACKS == 1)
                    around = load_around<T, WHOLE>(op, at, pack_column<PACKS>(p, warps));
                float2 terms = add_terms(dgamma[p], dbeta[p], r, load_gamma<T, WHOLE>(op, pack_column<PACKS>(p, warps)),
                                         mean, rstd);

                means = make_float2(means.x + terms.x, means.y + terms.y);
                if (PACKS > 1)
                    load_later();
            }
        means = row_sums(means, scratch, warps);
        means = make_float2(MEAN ? means.x * inverse : 0.0f, means.y * inverse);
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            if (pack_column<PACKS>(p, warps) < op.cols) {
                if (PACKS > 1)
                    r = row_load<T, WHOLE>(op, at, pack_column<PACKS>(p, warps));
                struct pack result =
                    row_result(r, load_gamma<T, WHOLE>(op, pack_column<PACKS>(p, warps)), means, mean, rstd);

                if (PACKS > 1) {
                    load_later();
                    around = load_around<T, WHOLE>(op, at, pack_column<PACKS>(p, warps));
                }
                row_store<T, WHOLE>(op, result, around, at, pack_column<PACKS>(p, warps), rstd);
            }
    }
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (pack_column<PACKS>(p, warps) < op.cols) {
            int col = pack_column<PACKS>(p, warps), n = min(op.cols - col, PACK);

            pack_store(part + col, dgamma[p], n);
            if (op.dbeta)
                pack_store(part + op.cols + col, dbeta[p], n);
        }
}

void cuda_norm_backward(struct device *dev, const struct norm_backward *op)
{
    int warps = norm_warps(op->cols), blocks = norm_blocks(op->rows, op->cols);
    int packs = (op->cols + warps * COLUMN_STRIP - 1) / (warps * COLUMN_STRIP);
    bool whole = rows_are_whole(op->cols, {op->dy, op->sum, op->gamma, op->dresidual, op->dx});
    float *partial;

    if (!device_ready(dev, op->dtype, "norm_backward") || !row_fits(dev, op->cols, "norm_backward"))
        return;
    partial = static_cast<float *>(cuda_workspace(dev, workspace_norm_backward(op->rows, op->cols)));
    if (!partial)
        return;
    WITH_TYPE(op->dtype, T,
              WITH_PACKS(
                  packs, PACKS,
                  WITH_BOOL(whole, WHOLE,
                            WITH_BOOL(op->mean != NULL, MEAN,
                                      LAUNCH(dev, (norm_backward<T, PACKS, WHOLE, MEAN>), static_cast<unsigned>(blocks),
                                             static_cast<unsigned>(warps * WARP), 0, *op, partial, warps)))));
    cuda_add_partial_sums(dev, op->dgamma, op->dbeta, partial, blocks, op->cols, false);
}

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gpu/pack.h"
#include "kernels/cuda/gpu/rows.h"

/*
 * Softmax's statistics and the gradient of its loss, a block a row. The statistics are made in one pass (the online
 * normaliser of Milakov and Gimelshein, arXiv 1805.02867):
 *   max' = maximum of max and x;  sum' = sum * exp(max - max') + exp(x - max')
 */
#define THREADS 256
#define BOTH    1024 /* for both passes: so few blocks that their rows stay in the L2 cache until the second */

#define LOG2_E 1.44269504088896340736f

/* exp(x - max). With max minus infinity, x is that too, or NaN: 0 or NaN. */
static inline __device__ float power_of(float x, float max)
{
    return exp2f((x - (max == -INFINITY ? 0.0f : max)) * LOG2_E);
}

struct stats {
    float max, sum;
};

static inline __device__ void stats_add(struct stats &s, const struct pack &x, int n)
{
    float high = s.max;

#pragma unroll
    for (int j = 0; j < PACK; j++)
        high = j < n && x.v[j] > high ? x.v[j] : high;
    s.sum *= power_of(s.max, high);
    s.max = high;
#pragma unroll
    for (int j = 0; j < PACK; j++)
        s.sum += j < n ? power_of(x.v[j], high) : 0.0f;
}

/* Of the warp, for each of its lanes. The maximum first, so that a lane takes one power and not one a step. */
static inline __device__ struct stats warp_stats(struct stats s)
{
    float high = warp_max(s.max);

    return {high, warp_sum(s.sum * power_of(s.max, high))};
}

/* Of the block, for each of its threads. */
template <int BLOCK> static inline __device__ struct stats block_stats(struct stats s)
{
    __shared__ float max_of[BLOCK / WARP], sum_of[BLOCK / WARP];
    unsigned lane = threadIdx.x % WARP;

    s = warp_stats(s);
    if (lane == 0) {
        max_of[threadIdx.x / WARP] = s.max;
        sum_of[threadIdx.x / WARP] = s.sum;
    }
    __syncthreads();
    s = {-INFINITY, 0};
    if (lane < BLOCK / WARP)
        s = {max_of[lane], sum_of[lane]};
    return warp_stats(s);
}

/* The target's column in this slice of the vocabulary, or -1. */
static inline __device__ int target_column(const struct cross_entropy &op, size_t row)
{
    int64_t column = static_cast<int64_t>(op.targets[row]) - op.vocab_first;

    return column >= 0 && column < op.vocab ? static_cast<int>(column) : -1;
}

template <class T, int BLOCK>
static inline __device__ struct stats row_stats(const struct cross_entropy &op, const T *x)
{
    struct stats s = {-INFINITY, 0};

#pragma unroll 2
    for (int col = static_cast<int>(threadIdx.x) * PACK; col < op.vocab; col += BLOCK * PACK) {
        int n = min(op.vocab - col, PACK);

        stats_add(s, pack_load(x + col, n), n);
    }
    return block_stats<BLOCK>(s);
}

template <class T> static __global__ void __launch_bounds__(THREADS) cross_entropy_stats(struct cross_entropy op)
{
    size_t row = blockIdx.x;
    const T *x = static_cast<const T *>(op.logits) + row * static_cast<size_t>(op.stride);
    struct stats s = row_stats<T, THREADS>(op, x);

    if (threadIdx.x == 0) {
        int column = target_column(op, row);

        op.max[row] = s.max;
        op.sum[row] = s.sum;
        op.target[row] = column >= 0 ? widen_value(x[column]) : 0.0f;
    }
}

void cuda_cross_entropy_stats(struct device *dev, const struct cross_entropy *op)
{
    if (device_ready(dev, op->dtype, "cross_entropy_stats") && op->rows > 0)
        WITH_TYPE(op->dtype, T, LAUNCH(dev, cross_entropy_stats<T>, static_cast<unsigned>(op->rows), THREADS, 0, *op));
}

/*
 * loss = log(sum) + max - target;  logits <- (exp(x - max) / sum - onehot) * scale, over the logits. The target's
 * gradient is close to 0 where the model is sure: the difference is made before it is rounded.
 */
template <class T, int BLOCK>
static inline __device__ void row_finish(const struct cross_entropy &op, T *x, size_t row, struct stats s, float target)
{
    bool counts = op.targets[row] >= 0;
    int used = counts ? op.vocab : 0, column = target_column(op, row);
    float factor = op.scale / s.sum;

#pragma unroll 2
    for (int col = static_cast<int>(threadIdx.x) * PACK; col < op.stride; col += BLOCK * PACK) {
        struct pack p = {};

        if (col < used)
            p = pack_load(x + col, min(used - col, PACK));
#pragma unroll
        for (int j = 0; j < PACK; j++) {
            p.v[j] = col + j < used ? power_of(p.v[j], s.max) * factor : 0.0f;
            p.v[j] -= col + j == column ? op.scale : 0.0f;
        }
        pack_store(x + col, p, min(op.stride - col, PACK));
    }
    if (threadIdx.x == 0)
        op.loss[row] = counts ? logf(s.sum) + s.max - target : 0.0f;
}

template <class T> static __global__ void __launch_bounds__(THREADS) cross_entropy_finish(struct cross_entropy op)
{
    size_t row = blockIdx.x;
    T *x = static_cast<T *>(op.logits) + row * static_cast<size_t>(op.stride);

    row_finish<T, THREADS>(op, x, row, {op.max[row], op.sum[row]}, op.target[row]);
}

void cuda_cross_entropy_finish(struct device *dev, const struct cross_entropy *op)
{
    if (device_ready(dev, op->dtype, "cross_entropy_finish") && op->rows > 0)
        WITH_TYPE(op->dtype, T, LAUNCH(dev, cross_entropy_finish<T>, static_cast<unsigned>(op->rows), THREADS, 0, *op));
}

template <class T> static __global__ void __launch_bounds__(BOTH) cross_entropy_both(struct cross_entropy op)
{
    size_t row = blockIdx.x;
    T *x = static_cast<T *>(op.logits) + row * static_cast<size_t>(op.stride);
    struct stats s = row_stats<T, BOTH>(op, x);
    int column = target_column(op, row);
    float target = threadIdx.x == 0 && column >= 0 ? widen_value(x[column]) : 0.0f;

    if (threadIdx.x == 0) {
        op.max[row] = s.max;
        op.sum[row] = s.sum;
        op.target[row] = target;
    }
    __syncthreads(); /* the target is read; now it may be overwritten */
    row_finish<T, BOTH>(op, x, row, s, target);
}

void cuda_cross_entropy(struct device *dev, const struct cross_entropy *op)
{
    if (device_ready(dev, op->dtype, "cross_entropy") && op->rows > 0)
        WITH_TYPE(op->dtype, T, LAUNCH(dev, cross_entropy_both<T>, static_cast<unsigned>(op->rows), BOTH, 0, *op));
}

/* A thread a row. A part without columns has a maximum of minus infinity, and nothing to add. A NaN must show. */
static __global__ void __launch_bounds__(THREADS) cross_entropy_combine(struct cross_entropy_combine op)
{
    size_t row = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x, rows = static_cast<size_t>(op.rows);
    float max = -INFINITY, sum = 0, target = 0;

    if (row >= rows)
        return;
    for (int part = 0; part < op.parts; part++) {
        float here = op.stats[static_cast<size_t>(part) * 3 * rows + row];

        max = here > max || here != here ? here : max;
    }
    for (int part = 0; part < op.parts; part++) {
        const float *stats = op.stats + static_cast<size_t>(part) * 3 * rows + row;

        if (stats[0] != -INFINITY)
            sum += stats[rows] * expf(stats[0] - max);
        target += stats[2 * rows];
    }
    op.max[row] = max;
    op.sum[row] = sum;
    op.target[row] = target;
}

void cuda_cross_entropy_combine(struct device *dev, const struct cross_entropy_combine *op)
{
    unsigned blocks = static_cast<unsigned>((op->rows + THREADS - 1) / THREADS);

    if (device_ready(dev, DTYPE_F32, "cross_entropy_combine") && op->rows > 0)
        LAUNCH(dev, cross_entropy_combine, blocks, THREADS, 0, *op);
}

#include "kernels/cuda/gpu/mma.h"
#include "kernels/cuda/gpu/rows.h"

/*
 * Softmax's statistics and the gradient of its loss, a block a row. The statistics are made in one pass (the online
 * normaliser of Milakov and Gimelshein, arXiv 1805.02867):
 *   max' = maximum of max and x;  sum' = sum * exp(max - max') + exp(x - max')
 */
#define THREADS 512
#define BLOCKS  2 /* of a multiprocessor at least, so that one loads while another computes */
#define LOADS   4 /* of a thread, in flight at once */

#define LOG2_E 1.44269504088896340736f

/* exp(x - max), where base is max, or 0 if that is minus infinity: then x is that too, or NaN, and this is 0 or NaN. */
static inline __device__ float power_of(float x, float base)
{
    return mma_exp2((x - base) * LOG2_E);
}

static inline __device__ float base_of(float max)
{
    return max == -INFINITY ? 0.0f : max;
}

struct stats {
    float max, sum;
};

static inline __device__ void stats_add(struct stats &s, const struct pack &x)
{
    float high = s.max, base;

#pragma unroll
    for (int j = 0; j < PACK; j++)
        high = fmaxf(high, x.v[j]);
    base = base_of(high);
    s.sum = __fmul_rn(s.sum, power_of(s.max, base));
    s.max = high;
#pragma unroll
    for (int j = 0; j < PACK; j++)
        s.sum += power_of(x.v[j], base);
}

/* Of the warp, for each of its lanes. The maximum first, so that a lane takes one power and not one a step. */
static inline __device__ struct stats warp_stats(struct stats s)
{
    float high = warp_max(s.max);

    return {high, warp_sum(s.sum * power_of(s.max, base_of(high)))};
}

/* Of the block, for each of its threads. */
static inline __device__ struct stats block_stats(struct stats s)
{
    __shared__ float max_of[THREADS / WARP], sum_of[THREADS / WARP];
    unsigned lane = threadIdx.x % WARP;

    s = warp_stats(s);
    if (lane == 0) {
        max_of[threadIdx.x / WARP] = s.max;
        sum_of[threadIdx.x / WARP] = s.sum;
    }
    __syncthreads();
    s = {-INFINITY, 0};
    if (lane < THREADS / WARP)
        s = {max_of[lane], sum_of[lane]};
    return warp_stats(s);
}

/* The target's column in this slice of the vocabulary, or -1. */
static inline __device__ int target_column(const struct cross_entropy &op, size_t row)
{
    int64_t column = static_cast<int64_t>(op.targets[row]) - op.vocab_first;

    return column >= 0 && column < op.vocab ? static_cast<int>(column) : -1;
}

/* The columns of a row in memory, and a copy of the first `kept` of them in shared memory, which the thread that made it
 * reads again. */
template <class T> struct row {
    T *x, *copy;
    int kept;
};

template <class T, bool WHOLE>
static inline __device__ struct stats row_stats(const struct cross_entropy &op, const struct row<T> &row)
{
    struct stats s = {-INFINITY, 0};

    for (int first = static_cast<int>(threadIdx.x) * PACK; first < op.vocab; first += LOADS * THREADS * PACK) {
        struct raw_pack<T> raw[LOADS];

#pragma unroll
        for (int i = 0; i < LOADS; i++)
            if (first + i * THREADS * PACK < op.vocab)
                raw[i] = raw_load<WHOLE>(row.x + first + i * THREADS * PACK,
                                         min(op.vocab - first - i * THREADS * PACK, PACK));
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            int col = first + i * THREADS * PACK;
            struct pack x;

            if (col >= op.vocab)
                break;
            if (col < row.kept)
                raw_store<true>(row.copy + col, raw[i], PACK);
            x = raw_widen(raw[i]);
            if (op.vocab - col < PACK)
#pragma unroll
                for (int j = 0; j < PACK; j++)
                    x.v[j] = j < op.vocab - col ? x.v[j] : -INFINITY;
            stats_add(s, x);
        }
    }
    return block_stats(s);
}

template <class T, bool WHOLE>
static __global__ void __launch_bounds__(THREADS, BLOCKS) cross_entropy_stats(struct cross_entropy op)
{
    size_t row = blockIdx.x;
    T *x = static_cast<T *>(op.logits) + row * static_cast<size_t>(op.stride);
    struct stats s = row_stats<T, WHOLE>(op, {x, NULL, 0});

    if (threadIdx.x == 0) {
        int column = target_column(op, row);

        op.max[row] = s.max;
        op.sum[row] = s.sum;
        op.target[row] = column >= 0 ? widen_value(x[column]) : 0.0f;
    }
}

#define WITH_KERNEL(op, T, WHOLE, ...)                                                                                 \
    WITH_TYPE((op)->dtype, T, WITH_BOOL(rows_are_whole((op)->stride, {(op)->logits}), WHOLE, __VA_ARGS__))

void cuda_cross_entropy_stats(struct device *dev, const struct cross_entropy *op)
{
    if (device_ready(dev, op->dtype, "cross_entropy_stats") && op->rows > 0)
        WITH_KERNEL(op, T, WHOLE,
                    LAUNCH(dev, (cross_entropy_stats<T, WHOLE>), static_cast<unsigned>(op->rows), THREADS, 0, *op));
}

/* The target's gradient is close to 0 where the model is sure: the difference is made before it is rounded. */
template <class T, bool WHOLE>
static inline __device__ void row_finish(const struct cross_entropy &op, const struct row<T> &row, size_t number,
                                         struct stats s, float target)
{
    bool counts = op.targets[number] >= 0;
    int used = counts ? op.vocab : 0, column = target_column(op, number);
    float factor = op.scale / s.sum, base = base_of(s.max);

    for (int col = static_cast<int>(threadIdx.x) * PACK; col < op.stride; col += THREADS * PACK) {
        struct pack p = {};

        if (col < used) {
            p = col < row.kept ? pack_load_whole(row.copy + col)
                               : raw_widen(raw_load<WHOLE>(row.x + col, min(used - col, PACK)));
#pragma unroll
            for (int j = 0; j < PACK; j++)
                p.v[j] = __fmul_rn(power_of(p.v[j], base), factor);
            if (used - col < PACK || static_cast<unsigned>(column - col) < PACK)
#pragma unroll
                for (int j = 0; j < PACK; j++)
                    p.v[j] = j < used - col ? p.v[j] - (col + j == column ? op.scale : 0.0f) : 0.0f;
        }
        raw_store<WHOLE>(row.x + col, raw_narrow<T>(p), min(op.stride - col, PACK));
    }
    if (threadIdx.x == 0)
        op.loss[number] = counts ? logf(s.sum) + s.max - target : 0.0f;
}

template <class T, bool WHOLE>
static __global__ void __launch_bounds__(THREADS, BLOCKS) cross_entropy_finish(struct cross_entropy op)
{
    size_t row = blockIdx.x;
    T *x = static_cast<T *>(op.logits) + row * static_cast<size_t>(op.stride);

    row_finish<T, WHOLE>(op, {x, NULL, 0}, row, {op.max[row], op.sum[row]}, op.target[row]);
}

void cuda_cross_entropy_finish(struct device *dev, const struct cross_entropy *op)
{
    if (device_ready(dev, op->dtype, "cross_entropy_finish") && op->rows > 0)
        WITH_KERNEL(op, T, WHOLE,
                    LAUNCH(dev, (cross_entropy_finish<T, WHOLE>), static_cast<unsigned>(op->rows), THREADS, 0, *op));
}

template <class T, bool WHOLE>
static __global__ void __launch_bounds__(THREADS, BLOCKS) cross_entropy_both(struct cross_entropy op, int kept)
{
    DYNAMIC_SHARED(T, copy);
    size_t number = blockIdx.x;
    struct row<T> row = {
        static_cast<T *>(op.logits) + number *static_cast<size_t>(op.stride), copy, kept
    };
    struct stats s = row_stats<T, WHOLE>(op, row);
    int column = target_column(op, number);
    float target = threadIdx.x == 0 && column >= 0 ? widen_value(row.x[column]) : 0.0f;

    if (threadIdx.x == 0) {
        op.max[number] = s.max;
        op.sum[number] = s.sum;
        op.target[number] = target;
    }
    __syncthreads(); /* the target is read; now it may be overwritten */
    row_finish<T, WHOLE>(op, row, number, s, target);
}

/* The columns whose copies fit in shared memory, of which CUDA takes 1 KiB of each block. */
template <class T> static int kept_columns(const struct device *dev, const struct cross_entropy *op)
{
    int most = static_cast<int>((device_cuda(dev)->shared_limit / BLOCKS - 1024) / sizeof(T)) / PACK * PACK;
    int all = (op->vocab + PACK - 1) / PACK * PACK;

    return all < most ? all : most;
}

void cuda_cross_entropy(struct device *dev, const struct cross_entropy *op)
{
    if (device_ready(dev, op->dtype, "cross_entropy") && op->rows > 0)
        WITH_KERNEL(op, T, WHOLE, int kept = kept_columns<T>(dev, op);
                    LAUNCH(dev, (cross_entropy_both<T, WHOLE>), static_cast<unsigned>(op->rows), THREADS,
                           static_cast<size_t>(kept) * sizeof(T), *op, kept));
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

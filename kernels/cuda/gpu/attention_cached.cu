/*
 * attention_cached.cu - attention of single tokens to the cached keys and values of their sequences.
 *
 * A warp has one head of one row and goes through the keys 32 at a time: a lane computes the score of one of them,
 * which it reads beside its neighbours'; then the columns of the sum, dealt out to the lanes, take up all 32 in order.
 */
#include <math.h>

#include "kernels/cuda/cuda_attention.h"
#include "kernels/cuda/gpu/rows.h"

#define COLUMNS   (ATTENTION_MAX_HEAD_SIZE / WARP) /* of a lane */
#define APPENDERS 256

/* The first element of a head in its slot, of keys and of values. */
static inline __device__ size_t slot_of(const struct cached_attention &op, int row, int head)
{
    return (static_cast<size_t>(op.slots[row]) * static_cast<size_t>(op.heads) + static_cast<size_t>(head)) *
           static_cast<size_t>(op.room) * static_cast<size_t>(op.head_size);
}

static inline __device__ size_t key_element(const struct cached_attention &op, int position, int d)
{
    return (static_cast<size_t>(position / CACHE_GROUP) * static_cast<size_t>(op.head_size) + static_cast<size_t>(d)) *
               CACHE_GROUP +
           static_cast<size_t>(position % CACHE_GROUP);
}

template <class T> static __global__ void __launch_bounds__(APPENDERS) append_rows(struct cached_attention op)
{
    size_t hidden = static_cast<size_t>(op.heads) * static_cast<size_t>(op.head_size);
    size_t i = static_cast<size_t>(blockIdx.x) * APPENDERS + threadIdx.x, column = i % hidden;
    int row = static_cast<int>(i / hidden), size = op.head_size, d = static_cast<int>(column) % size;
    const T *from = static_cast<const T *>(op.qkv) + static_cast<size_t>(row) * 3 * hidden + column;
    size_t slot;

    if (row >= op.rows)
        return;
    slot = slot_of(op, row, static_cast<int>(column) / size);
    static_cast<T *>(op.keys)[slot + key_element(op, op.positions[row], d)] = from[hidden];
    static_cast<T *>(
        op.values)[slot + static_cast<size_t>(op.positions[row]) * static_cast<size_t>(size) + static_cast<size_t>(d)] =
        from[2 * hidden];
}

/* The score of key number `key`; minus infinity where the row does not see it. */
template <class T>
static inline __device__ float score_key(const struct cached_attention &op, const T *q, const T *keys, int key,
                                         int count)
{
    float sum = 0;

    for (int d = 0; d < op.head_size && key < count; d++)
        sum += widen_value(q[d]) * widen_value(keys[key_element(op, key, d)]);
    return key < count ? sum / sqrtf(static_cast<float>(op.head_size)) : -INFINITY;
}

/* sum[] += p of lane j times row j of values, for the `count` (at most 32) rows in order. */
template <class T>
static inline __device__ void add_values(float sum[COLUMNS], float p, const T *values, int count, int size)
{
    int lane = static_cast<int>(threadIdx.x) % WARP;

    for (int j = 0; j < WARP; j++) {
        float w = __shfl_sync(FULL_WARP, p, j);

#pragma unroll
        for (int i = 0; i < COLUMNS; i++)
            if (j < count && i * WARP + lane < size)
                sum[i] += w * widen_value(values[j * size + i * WARP + lane]);
    }
}

template <class T> static __global__ void __launch_bounds__(ROW_WARPS *WARP) attend_rows(struct cached_attention op)
{
    int pair = static_cast<int>(blockIdx.x) * ROW_WARPS + static_cast<int>(threadIdx.x) / WARP, size = op.head_size;
    int row = pair / op.heads, head = pair % op.heads, lane = static_cast<int>(threadIdx.x) % WARP, count;
    size_t hidden = static_cast<size_t>(op.heads) * static_cast<size_t>(size);
    size_t column = static_cast<size_t>(head) * static_cast<size_t>(size), slot;
    float o[COLUMNS] = {}, most = -INFINITY, sum = 0;

    if (row >= op.rows)
        return;
    count = op.positions[row] + 1;
    slot = slot_of(op, row, head);
    for (int first = 0; first < count; first += WARP) {
        float x = score_key(op, static_cast<const T *>(op.qkv) + static_cast<size_t>(row) * 3 * hidden + column,
                            static_cast<const T *>(op.keys) + slot, first + lane, count);
        float top = fmaxf(most, warp_max(x)), shrink = expf(most - top), p = expf(x - top);

        most = top;
        sum = sum * shrink + warp_sum(p);
#pragma unroll
        for (int i = 0; i < COLUMNS; i++)
            o[i] *= shrink;
        add_values(o, p,
                   static_cast<const T *>(op.values) + slot + static_cast<size_t>(first) * static_cast<size_t>(size),
                   count - first, size);
    }
#pragma unroll
    for (int i = 0; i < COLUMNS; i++)
        if (i * WARP + lane < size)
            static_cast<T *>(
                op.out)[static_cast<size_t>(row) * hidden + column + static_cast<size_t>(i * WARP + lane)] =
                narrow_value<T>(o[i] / sum);
}

void cuda_attention_cached(struct device *dev, const struct cached_attention *op)
{
    size_t elements =
        static_cast<size_t>(op->rows) * static_cast<size_t>(op->heads) * static_cast<size_t>(op->head_size);
    unsigned blocks = static_cast<unsigned>((elements + APPENDERS - 1) / APPENDERS);

    if (!device_ready(dev, op->dtype, "attention_cached") || !cached_attention_valid(dev, op) || elements == 0)
        return;
    if (op->head_size > ATTENTION_MAX_HEAD_SIZE) {
        device_fail(dev, CODE_CONFIG, "attention_cached: a head size of %d; on a GPU it can be at most %d",
                    op->head_size, ATTENTION_MAX_HEAD_SIZE);
        return;
    }
    WITH_TYPE(op->dtype, T, LAUNCH(dev, append_rows<T>, blocks, APPENDERS, 0, *op));
    WITH_TYPE(op->dtype, T,
              LAUNCH(dev, attend_rows<T>, static_cast<unsigned>((op->rows * op->heads + ROW_WARPS - 1) / ROW_WARPS),
                     ROW_WARPS * WARP, 0, *op));
}

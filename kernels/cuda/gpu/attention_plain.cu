/*
 * attention_plain.cu - attention in fp32 arithmetic for whatever the tensor cores' tiles do not take: fp32, odd head
 * sizes, operands that are not aligned, dropout at odd places. The same formulas as attention_forward.cu and
 * attention_backward.cu, right rather than fast.
 *
 * A warp owns one row, and goes through the others 32 at a time: a lane computes the score of one of them, and then the
 * row's sums, whose columns are dealt out to the lanes, take up all 32 in order. So each sum has one order.
 */
#include <float.h>

#include "kernels/cuda/gpu/attention_tile.h"
#include "kernels/cuda/gpu/dropout_mask.h"
#include "kernels/cuda/gpu/rows.h"

#define PLAIN_ROWS    8 /* a block's */
#define PLAIN_THREADS (PLAIN_ROWS * WARP)
#define PLAIN_COLUMNS (ATTENTION_MAX_HEAD_SIZE / WARP)

/* tile[rows][size + 1] = rows [first, limit), widened; the rest 0. The odd length keeps lanes in different banks. */
template <class T>
static __device__ inline void load_rows(float *tile, int rows, const void *from, ptrdiff_t at, ptrdiff_t stride,
                                        int first, int limit, int size)
{
    for (int i = (int)threadIdx.x; i < rows * size; i += PLAIN_THREADS) {
        int row = i / size, column = i % size;

        tile[row * (size + 1) + column] =
            first + row < limit ? widen_value(static_cast<const T *>(from)[at + (first + row) * stride + column]) : 0;
    }
}

static __device__ inline float dot_product(const float *x, const float *y, int size)
{
    float sum = 0;

    for (int i = 0; i < size; i++)
        sum += x[i] * y[i];
    return sum;
}

/* What dropout multiplies a probability by. */
static __device__ inline float dropout_factor(const struct attention_call &call, const struct attention_head &head,
                                              int query, int key)
{
    uint64_t i = head.element + (uint64_t)query * (uint64_t)call.seq + (uint64_t)key;
    uint4 random;
    uint32_t word;

    if (!call.drops)
        return 1;
    random = mask_block(call.stream, i / 8);
    word = i & 4 ? (i & 2 ? random.w : random.z) : (i & 2 ? random.y : random.x);
    return (word >> (i & 1) * 16 & 0xffff) >= call.threshold ? call.kept : 0;
}

/* sum[d] += weight of lane j * tile[j][d], for all lanes j in order. */
static __device__ inline void add_rows(float sum[PLAIN_COLUMNS], float weight, const float *tile, int size)
{
    int lane = (int)threadIdx.x % WARP;

    for (int j = 0; j < WARP; j++) {
        float w = __shfl_sync(FULL_WARP, weight, j);

#pragma unroll
        for (int i = 0; i < PLAIN_COLUMNS; i++)
            if (i * WARP + lane < size)
                sum[i] += w * tile[j * (size + 1) + i * WARP + lane];
    }
}

template <class T>
static __device__ inline void put_row(void *to, ptrdiff_t at, const float sum[PLAIN_COLUMNS], float factor, int size)
{
    int lane = (int)threadIdx.x % WARP;

#pragma unroll
    for (int i = 0; i < PLAIN_COLUMNS; i++)
        if (i * WARP + lane < size)
            static_cast<T *>(to)[at + i * WARP + lane] = narrow_value<T>(sum[i] * factor);
}

/* The first key that a query sees; for rows beyond the sequence, that of the last one. */
static __device__ inline int first_key(const struct attention_call &call, int pair, int query)
{
    query = min(query, call.seq - 1);
    return call.bounded ? max(first_seen(call, document_starts_of(call, pair), 0, query), 0) : 0;
}

template <class T>
static __global__ void __launch_bounds__(PLAIN_THREADS) attention_forward_plain(struct attention_call call)
{
    int tiles = (call.seq + PLAIN_ROWS - 1) / PLAIN_ROWS, size = call.head_size;
    struct attention_head head = attention_head_of(call, (int)blockIdx.x / tiles);
    int block_query = (int)blockIdx.x % tiles * PLAIN_ROWS, warp = (int)threadIdx.x / WARP;
    int query = block_query + warp, lane = (int)threadIdx.x % WARP;
    int end = call.causal ? min(head.keys, block_query + PLAIN_ROWS) : head.keys;
    int begin = first_key(call, (int)blockIdx.x / tiles, block_query) / WARP * WARP;
    int least = first_key(call, (int)blockIdx.x / tiles, query);
    float scale = attention_scale(call), o[PLAIN_COLUMNS] = {}, most = -FLT_MAX,
          sum = 0; /* finite: the first keys may all be hidden */
    DYNAMIC_SHARED(float, q);
    float *k = q + PLAIN_ROWS * (size + 1), *v = k + WARP * (size + 1);

    load_rows<T>(q, PLAIN_ROWS, call.qkv, head.at, call.row, block_query, call.seq, size);
    for (int first = begin; first < end; first += WARP) {
        int key = first + lane;
        float x, top, p, shrink;

        __syncthreads();
        load_rows<T>(k, WARP, call.qkv, head.k_at, call.row, first, head.keys, size);
        load_rows<T>(v, WARP, call.qkv, head.k_at + head.to_v, call.row, first, head.keys, size);
        __syncthreads();
        x = dot_product(q + warp * (size + 1), k + lane * (size + 1), size) * scale;
        if (key >= head.keys || (call.causal && key > query) || key < least)
            x = -INFINITY;
        top = fmaxf(most, warp_max(x));
        shrink = expf(most - top);
        p = expf(x - top);
        most = top;
        sum = sum * shrink + warp_sum(p);
#pragma unroll
        for (int i = 0; i < PLAIN_COLUMNS; i++)
            o[i] *= shrink;
        add_rows(o, p * dropout_factor(call, head, query, key), v, size);
    }
    if (query >= call.seq)
        return;
    put_row<T>(call.out, head.out_at + (ptrdiff_t)query * call.hidden, o, sum > 0 ? 1 / sum : 0, size);
    if (lane == 0)
        call.lse[head.row_at + (size_t)query] = sum > 0 ? most + logf(sum) : -INFINITY;
}

/* dq and delta. */
template <class T>
static __global__ void __launch_bounds__(PLAIN_THREADS) attention_backward_plain_queries(struct attention_call call)
{
    int tiles = (call.seq + PLAIN_ROWS - 1) / PLAIN_ROWS, size = call.head_size;
    struct attention_head head = attention_head_of(call, (int)blockIdx.x / tiles);
    int block_query = (int)blockIdx.x % tiles * PLAIN_ROWS, warp = (int)threadIdx.x / WARP;
    int query = block_query + warp, lane = (int)threadIdx.x % WARP;
    int end = call.causal ? min(head.keys, block_query + PLAIN_ROWS) : head.keys;
    ptrdiff_t out_at = head.out_at + (ptrdiff_t)query * call.hidden;
    int begin = first_key(call, (int)blockIdx.x / tiles, block_query) / WARP * WARP;
    int least = first_key(call, (int)blockIdx.x / tiles, query);
    float scale = attention_scale(call), dq[PLAIN_COLUMNS] = {}, delta = 0,
          lse = query < call.seq ? call.lse[head.row_at + (size_t)query] : 0;
    DYNAMIC_SHARED(float, q);
    float *dout = q + PLAIN_ROWS * (size + 1), *k = dout + PLAIN_ROWS * (size + 1), *v = k + WARP * (size + 1);

    load_rows<T>(q, PLAIN_ROWS, call.qkv, head.at, call.row, block_query, call.seq, size);
    load_rows<T>(dout, PLAIN_ROWS, call.dout, head.out_at, call.hidden, block_query, call.seq, size);
    __syncthreads();
    for (int d = lane; d < size && query < call.seq; d += WARP)
        delta += dout[warp * (size + 1) + d] * widen_value(static_cast<const T *>(call.out)[out_at + d]);
    delta = warp_sum(delta);
    for (int first = begin; first < end; first += WARP) {
        int key = first + lane;
        bool counts = key < head.keys && !(call.causal && key > query) && key >= least;
        float p, dp;

        __syncthreads();
        load_rows<T>(k, WARP, call.qkv, head.k_at, call.row, first, head.keys, size);
        load_rows<T>(v, WARP, call.qkv, head.k_at + head.to_v, call.row, first, head.keys, size);
        __syncthreads();
        p = expf(dot_product(q + warp * (size + 1), k + lane * (size + 1), size) * scale - lse);
        dp =
            dot_product(dout + warp * (size + 1), v + lane * (size + 1), size) * dropout_factor(call, head, query, key);
        add_rows(dq, counts ? p * (dp - delta) : 0, k, size);
    }
    if (query >= call.seq)
        return;
    put_row<T>(call.dqkv, head.at + (ptrdiff_t)query * call.row, dq, scale, size);
    if (lane == 0)
        call.delta[head.row_at + (size_t)query] = delta;
}

/* dk and dv, of one head of keys and all heads of queries that read it. Without the bound of one block ptxas takes 64
 * registers for sm_80, and spills one. */
template <class T>
static __global__ void __launch_bounds__(PLAIN_THREADS, 1) attention_backward_plain_keys(struct attention_call call)
{
    int tiles = (call.seq + PLAIN_ROWS - 1) / PLAIN_ROWS, size = call.head_size;
    int pair = (int)blockIdx.x / tiles * attention_group(call);
    struct attention_head head = attention_head_of(call, pair);
    int block_key = (int)blockIdx.x % tiles * PLAIN_ROWS, warp = (int)threadIdx.x / WARP;
    int key = block_key + warp, lane = (int)threadIdx.x % WARP;
    int begin = call.causal ? block_key : 0, end = block_key < head.keys ? call.seq : 0;
    ptrdiff_t at = head.k_at + (ptrdiff_t)key * call.row;
    float scale = attention_scale(call), dk[PLAIN_COLUMNS] = {}, dv[PLAIN_COLUMNS] = {};
    DYNAMIC_SHARED(float, k);
    float *v = k + PLAIN_ROWS * (size + 1), *q = v + PLAIN_ROWS * (size + 1), *dout = q + WARP * (size + 1);

    load_rows<T>(k, PLAIN_ROWS, call.qkv, head.k_at, call.row, block_key, head.keys, size);
    load_rows<T>(v, PLAIN_ROWS, call.qkv, head.k_at + head.to_v, call.row, block_key, head.keys, size);
    for (int i = 0; i < attention_group(call); i++) {
        head = attention_head_of(call, pair + i);
        /* to where queries see none of the block's keys any more */
        for (int first = begin; first < end && first_key(call, pair, first) < block_key + PLAIN_ROWS; first += WARP) {
            int query = first + lane;
            bool counts = query < call.seq && key < head.keys && !(call.causal && key > query) &&
                          key >= first_key(call, pair, query);
            size_t statistics = head.row_at + (size_t)min(query, call.seq - 1);
            float x, p, dp, z;

            __syncthreads();
            load_rows<T>(q, WARP, call.qkv, head.at, call.row, first, call.seq, size);
            load_rows<T>(dout, WARP, call.dout, head.out_at, call.hidden, first, call.seq, size);
            __syncthreads();
            z = dropout_factor(call, head, query, key);
            x = dot_product(k + warp * (size + 1), q + lane * (size + 1), size) * scale;
            dp = dot_product(v + warp * (size + 1), dout + lane * (size + 1), size) * z;
            p = counts ? expf(x - call.lse[statistics]) : 0;
            add_rows(dv, p * z, dout, size);
            add_rows(dk, p * (dp - call.delta[statistics]), q, size);
        }
    }
    if (key >= call.seq)
        return;
    put_row<T>(call.dqkv, at, dk, scale, size);
    put_row<T>(call.dqkv, at + head.to_v, dv, 1, size);
}

static size_t shared_bytes(const struct attention_call *call, int rows)
{
    return sizeof(float) * (size_t)(rows + 2 * WARP) * (size_t)(call->head_size + 1);
}

/* heads: of queries, or of keys. */
static unsigned block_count(const struct attention_call *call, int heads)
{
    return (unsigned)(call->batch * heads * ((call->seq + PLAIN_ROWS - 1) / PLAIN_ROWS));
}

void attention_plain_forward(struct device *dev, const struct attention_call *call)
{
    WITH_TYPE(call->dtype, T,
              LAUNCH(dev, (attention_forward_plain<T>), dim3(block_count(call, call->heads)), dim3(PLAIN_THREADS),
                     shared_bytes(call, PLAIN_ROWS), *call));
}

void attention_plain_backward(struct device *dev, const struct attention_call *call)
{
    dim3 queries(block_count(call, call->heads)), keys(block_count(call, attention_kv_heads(call))),
        block(PLAIN_THREADS);
    size_t bytes = shared_bytes(call, 2 * PLAIN_ROWS);

    WITH_TYPE(call->dtype, T, LAUNCH(dev, (attention_backward_plain_queries<T>), queries, block, bytes, *call);
              LAUNCH(dev, (attention_backward_plain_keys<T>), keys, block, bytes, *call));
}

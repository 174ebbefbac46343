/*
 * attention_backward.cu - FlashAttention-2's backward pass (arXiv 2307.08691, algorithm 2) on the tensor cores, as two
 * kernels. With z dropout's mask and factor, delta = rowsum(dout * out) and scores x in units of log2:
 *
 *   P = 2^(x - lse)     dS = P * (z * (dout V^T) - delta)
 *   dQ = dS K / sqrt(d)     dK = dS^T Q / sqrt(d)     dV = (z * P)^T dout
 *
 * The first kernel owns queries and makes delta and dQ; the second owns keys, computes the scores transposed, and makes
 * dK and dV. Each sum has one owner and one order, so the result is the same every time, without atomics or locks.
 *
 * Rows beyond the sequence are zeros in shared memory, as are their lse and delta: they add nothing to any sum.
 */
#include <math.h>

#include "kernels/cuda/cuda_attention.h"
#include "kernels/cuda/gpu/attention_tile.h"
#include "kernels/cuda/cuda.h"

#define LOG2_E 1.44269504088896340736f

template <int D, bool DROPS, bool DOCUMENTS> struct queries_shape {
    static constexpr int M = 2, queries = 16 * M * ATTENTION_WARPS, keys = DROPS && D > 96 ? 16 : 32;
    static constexpr size_t shared =
        sizeof(uint16_t) * tile_stride<D> * (2 * queries + 4 * keys) + (DOCUMENTS ? sizeof(int32_t) * queries : 0);
    static constexpr int blocks = DROPS || D > 64 ? 1 : ATTENTION_SMALL_BLOCKS;
};

/* Two sums a row need twice the registers: only the smallest heads leave room for two row tiles a warp, unless there
 * are both dropout and documents. */
template <int D, bool DROPS, bool DOCUMENTS> struct keys_shape {
    static constexpr int M = D > 64 || (DROPS && DOCUMENTS) ? 1 : 2, keys = 16 * M * ATTENTION_WARPS, queries = 32;
    static constexpr size_t shared =
        sizeof(uint16_t) * tile_stride<D> * (2 * keys + 4 * queries) + sizeof(float) * (DOCUMENTS ? 6 : 4) * queries;
};

/* s, a score, becomes what is left of its probability, and dp, the gradient of that, the score's. kept: z. */
static __device__ inline void score_gradient(float *s, float *dp, float lse, float delta, float kept, float scale)
{
    float p = mma_exp2(*s * scale - lse);

    *s = p * kept;
    *dp = p * (*dp * kept - delta);
}

/* lse in units of log2, and delta, of the lane's queries; each is made by the four lanes that share it. */
template <enum dtype T, int D, int M>
static __device__ inline void query_statistics(float lse[M][2], float delta[M][2], const struct attention_call &call,
                                               const struct attention_head &head, const uint16_t *dout, int query)
{
    int lane = (int)threadIdx.x % 32, group = lane / 4, t = lane % 4;
    const uint16_t *out = (const uint16_t *)call.out + head.out_at;

#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        int tile_row = i * 8 + group, row = query + tile_row;
        float sum = 0;

        for (int chunk = t; chunk < D / 8 && row < call.seq; chunk += 4) {
            struct attention_chunk x =
                *(const struct attention_chunk *)(out + (ptrdiff_t)row * head.hidden + chunk * 8);
            struct attention_chunk y = *(const struct attention_chunk *)(dout + tile_row * tile_stride<D> + chunk * 8);

#pragma unroll
            for (int j = 0; j < 4; j++) {
                sum += mma_low<T>(x.word[j]) * mma_low<T>(y.word[j]);
                sum += mma_low<T>(x.word[j] >> 16) * mma_low<T>(y.word[j] >> 16);
            }
        }
        delta[i / 2][i % 2] = quad_sum(sum);
        lse[i / 2][i % 2] = row < call.seq && head.keys > 0 ? call.lse[head.row_at + (size_t)row] * LOG2_E : 0;
        if (t == 0 && row < call.seq)
            call.delta[head.row_at + (size_t)row] = delta[i / 2][i % 2];
    }
}

template <int M, int N, bool DROPS>
static __device__ inline void gradients_of_queries(float s[M][N / 8][4], float dp[M][N / 8][4], const float lse[M][2],
                                                   const float delta[M][2], const struct attention_call &call,
                                                   uint64_t element)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            struct dropout_square square = {};

            if constexpr (DROPS)
                square =
                    dropout_square_at<false>(call, element + (uint64_t)(m * 16) * (uint64_t)call.seq + (uint64_t)n);
#pragma unroll
            for (int i = 0; i < 8; i++)
                score_gradient(&s[m][n / 8 + i / 4][i % 4], &dp[m][n / 8 + i / 4][i % 4], lse[m][i % 4 / 2],
                               delta[m][i % 4 / 2],
                               !DROPS                            ? 1
                               : dropout_keeps<false>(square, i) ? call.kept
                                                                 : 0,
                               call.scale_two);
        }
}

template <enum dtype T, int D, bool DROPS, bool DOCUMENTS>
static __global__ void __launch_bounds__(ATTENTION_THREADS, queries_shape<D, DROPS, DOCUMENTS>::blocks)
    attention_backward_queries(struct attention_call call)
{
    using shape = queries_shape<D, DROPS, DOCUMENTS>;
    constexpr int M = shape::M, N = shape::keys, own = shape::queries * tile_stride<D>, passing = N * tile_stride<D>;
    int tiles = (call.seq + shape::queries - 1) / shape::queries;
    struct attention_head head = attention_head_of<DOCUMENTS>(call, (int)blockIdx.x / tiles);
    int block_query = (tiles - 1 - (int)blockIdx.x % tiles) * shape::queries;
    int warp_row = (int)threadIdx.x / 32 * 16 * M, query = block_query + warp_row;
    int end = call.causal ? min(head.keys, block_query + shape::queries) : head.keys;
    int begin = 0;
    float s[M][N / 8][4], dp[M][N / 8][4], dq[M][D / 8][4] = {}, lse[M][2], delta[M][2], factor[M][2];
    DYNAMIC_SHARED(uint16_t, shared);
    uint16_t *q = shared, *dout = q + own, *k = dout + own, *v = k + 2 * passing;
    int32_t *starts = (int32_t *)(v + 2 * passing); /* with documents */
    uint16_t *own_q = q + warp_row * tile_stride<D>, *own_dout = dout + warp_row * tile_stride<D>;

    if constexpr (DOCUMENTS)
        begin = document_starts_load<shape::queries, N>(starts, call, (int)blockIdx.x / tiles, block_query);
    tile_copy<D, shape::queries>(q, head.q, head.stride, block_query, call.seq);
    tile_copy<D, shape::queries>(dout, (const uint16_t *)call.dout + head.out_at, head.hidden, block_query, call.seq);
    cp_async_commit();
    tile_copy<D, N, 2 * passing>(k, head.q + head.hidden, head.stride, begin, head.keys, head.hidden);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    query_statistics<T, D, M>(lse, delta, call, head, own_dout, query);
    for (int first = begin, stage = 0; first < end; first += N, stage ^= 1) {
        cp_async_wait<0>();
        __syncthreads();
        if (first + N < end) {
            tile_copy<D, N, 2 * passing>(k + (stage ^ 1) * passing, head.q + head.hidden, head.stride, first + N,
                                         head.keys, head.hidden);
            cp_async_commit();
        }
        if (warp_agrees((call.causal && first >= query + 16 * M) || (DOCUMENTS && first + N <= starts[warp_row])))
            continue; /* keys that none of the warp's queries sees, though others of the block do */
        tile_scores<T, D, M, N>(s, own_q, k + stage * passing);
        tile_scores<T, D, M, N>(dp, own_dout, v + stage * passing);
        if (first + N > head.keys || (call.causal && first + N > query + 1))
            mask_scores<false, M, N>(s, query, first, head.keys, call.causal);
        if (DOCUMENTS && first < starts[warp_row + 16 * M - 1])
            mask_documents<false, M, N>(s, starts + warp_row, first);
        gradients_of_queries<M, N, DROPS>(s, dp, lse, delta, call,
                                          head.element + (uint64_t)query * (uint64_t)call.seq + (uint64_t)first);
        tile_gather<T, D, M, N>(dq, dp, k + stage * passing);
    }
    cp_async_wait<0>();
    for (int i = 0; i < 2 * M; i++)
        factor[i / 2][i % 2] = call.scale;
    head = attention_head_of<DOCUMENTS>(call, (int)block_anew() / tiles);
    tile_write<T, D, M>((uint16_t *)call.dqkv + head.at, head.stride, query, call.seq, own_q, dq, factor);
}

/* lse and delta are those of the passing queries. */
template <int M, int N, bool DROPS>
static __device__ inline void gradients_of_keys(float s[M][N / 8][4], float dp[M][N / 8][4], const float *lse,
                                                const float *delta, const struct attention_call &call, uint64_t element)
{
    int t = (int)threadIdx.x % 4;

#pragma unroll
    for (int n = 0; n < N; n += 16)
#pragma unroll
        for (int m = 0; m < M; m++) {
            struct dropout_square square = {};

            if constexpr (DROPS)
                square = dropout_square_at<true>(call, element + (uint64_t)n * (uint64_t)call.seq + (uint64_t)(m * 16));
#pragma unroll
            for (int i = 0; i < 8; i++) {
                int query = n + i / 4 * 8 + t * 2 + i % 2;

                score_gradient(&s[m][n / 8 + i / 4][i % 4], &dp[m][n / 8 + i / 4][i % 4], lse[query] * LOG2_E,
                               delta[query],
                               !DROPS                           ? 1
                               : dropout_keeps<true>(square, i) ? call.kept
                                                                : 0,
                               call.scale_two);
            }
        }
}

/* Queries and what comes with them, started on their way. */
template <int D, int N, bool DROPS, bool DOCUMENTS>
static __device__ inline void copy_queries(const struct attention_call &call, const struct attention_head &head,
                                           int query, uint16_t *q, uint16_t *dout, float *lse, float *delta,
                                           int32_t *starts)
{
    tile_copy<D, N>(q, head.q, head.stride, query, call.seq);
    tile_copy<D, N>(dout, (const uint16_t *)call.dout + head.out_at, head.hidden, query, call.seq);
    numbers_copy<N>(lse, call.lse + head.row_at, query, call.seq);
    numbers_copy<N>(delta, call.delta + head.row_at, query, call.seq);
    if constexpr (DOCUMENTS) {
        constexpr int keys = keys_shape<D, DROPS, true>::keys;

        numbers_copy<N>(starts, document_starts_of(call, (int)block_anew() / ((call.seq + keys - 1) / keys)), query,
                        call.seq);
    }
    cp_async_commit();
}

template <enum dtype T, int D, bool DROPS, bool DOCUMENTS>
static __global__ void __launch_bounds__(ATTENTION_THREADS) attention_backward_keys(struct attention_call call)
{
    using shape = keys_shape<D, DROPS, DOCUMENTS>;
    constexpr int M = shape::M, N = shape::queries, own = shape::keys * tile_stride<D>, passing = N * tile_stride<D>;
    int tiles = (call.seq + shape::keys - 1) / shape::keys;
    struct attention_head head = attention_head_of<DOCUMENTS>(call, (int)blockIdx.x / tiles);
    int block_key = (int)blockIdx.x % tiles * shape::keys;
    int warp_row = (int)threadIdx.x / 32 * 16 * M, key = block_key + warp_row;
    int begin = call.causal ? block_key / N * N : 0, end = block_key < head.keys ? call.seq : 0;
    float s[M][N / 8][4], dp[M][N / 8][4], dk[M][D / 8][4] = {}, dv[M][D / 8][4] = {}, factor[M][2];
    DYNAMIC_SHARED(uint16_t, shared);
    uint16_t *k = shared, *v = k + own, *q = v + own, *dout = q + 2 * passing;
    float *lse = (float *)(dout + 2 * passing), *delta = lse + 2 * N;
    int32_t *starts = (int32_t *)(delta + 2 * N); /* with documents */
    uint16_t *own_k = k + warp_row * tile_stride<D>, *own_v = v + warp_row * tile_stride<D>;

    tile_copy<D, shape::keys, own>(k, head.q + head.hidden, head.stride, block_key, head.keys, head.hidden);
    copy_queries<D, N, DROPS, DOCUMENTS>(call, head, begin, q, dout, lse, delta, starts);
    for (int first = begin, stage = 0; first < end; first += N, stage ^= 1) {
        int next = stage ^ 1;

        cp_async_wait<0>();
        __syncthreads();
        if (DOCUMENTS && warp_agrees(starts[stage * N] >= block_key + shape::keys))
            break; /* from here on queries see none of the block's keys */
        if (first + N < end)
            copy_queries<D, N, DROPS, DOCUMENTS>(call, head, first + N, q + next * passing, dout + next * passing,
                                                 lse + next * N, delta + next * N, starts + next * N);
        if (warp_agrees((call.causal && first + N <= key) || (DOCUMENTS && starts[stage * N] >= key + 16 * M)))
            continue; /* queries that see none of the warp's keys, though others of the block */
        tile_scores<T, D, M, N>(s, own_k, q + stage * passing);
        tile_scores<T, D, M, N>(dp, own_v, dout + stage * passing);
        if (key + 16 * M > head.keys || (call.causal && key + 16 * M > first + 1))
            mask_scores<true, M, N>(s, first, key, head.keys, call.causal);
        if (DOCUMENTS && starts[stage * N + min(N, call.seq - first) - 1] > key)
            mask_documents<true, M, N>(s, starts + stage * N, key);
        gradients_of_keys<M, N, DROPS>(s, dp, lse + stage * N, delta + stage * N, call,
                                       head.element + (uint64_t)first * (uint64_t)call.seq + (uint64_t)key);
        tile_gather<T, D, M, N>(dv, s, dout + stage * passing);
        tile_gather<T, D, M, N>(dk, dp, q + stage * passing);
    }
    cp_async_wait<0>();
    __syncthreads();
    for (int i = 0; i < 2 * M; i++)
        factor[i / 2][i % 2] = call.scale;
    head = attention_head_of<DOCUMENTS>(call, (int)block_anew() / tiles);
    tile_write<T, D, M>((uint16_t *)call.dqkv + head.at + head.hidden, head.stride, key, call.seq, own_k, dk, factor);
    for (int i = 0; i < 2 * M; i++)
        factor[i / 2][i % 2] = 1;
    tile_write<T, D, M>((uint16_t *)call.dqkv + head.at + 2 * head.hidden, head.stride, key, call.seq, own_v, dv,
                        factor);
}

namespace {
struct backward {
    template <enum dtype T, int D, bool DROPS, bool DOCUMENTS>
    static void launch(struct device *dev, const struct attention_call *call);
};

template <enum dtype T, int D, bool DROPS, bool DOCUMENTS>
void backward::launch(struct device *dev, const struct attention_call *call)
{
    using queries = queries_shape<D, DROPS, DOCUMENTS>;
    using keys = keys_shape<D, DROPS, DOCUMENTS>;
    int query_tiles = (call->seq + queries::queries - 1) / queries::queries;
    int key_tiles = (call->seq + keys::keys - 1) / keys::keys;

    /* GPUs of compute capability 8.6 and 8.9 have less than those of 8.0 and 9.0. */
    if ((queries::shared > keys::shared ? queries::shared : keys::shared) > device_cuda(dev)->shared_limit)
        return attention_plain_backward(dev, call);
    LAUNCH(dev, (attention_backward_queries<T, D, DROPS, DOCUMENTS>), dim3((unsigned)(query_tiles * call->pairs)),
           dim3(ATTENTION_THREADS), queries::shared, *call);
    LAUNCH(dev, (attention_backward_keys<T, D, DROPS, DOCUMENTS>), dim3((unsigned)(key_tiles * call->pairs)),
           dim3(ATTENTION_THREADS), keys::shared, *call);
}
} // namespace

void attention_tiled_backward(struct device *dev, const struct attention_call *call)
{
    attention_choose<backward>(dev, call);
}

/*
 * attention_backward.cu - FlashAttention-2's backward pass (arXiv 2307.08691, algorithm 2) on the tensor cores, as two
 * kernels. With z dropout's mask and factor, delta = rowsum(dout * out) and scores x in units of log2:
 *
 *   P = 2^(x - lse)     dS = P * (z * (dout V^T) - delta)
 *   dQ = dS K / sqrt(d)     dK = dS^T Q / sqrt(d)     dV = (z * P)^T dout
 *
 * The first kernel owns queries and makes delta and dQ. The second owns keys, computes the scores transposed, and makes
 * dK and dV. Registers have no room for both sums of heads above 128. Then one block makes dK and another dV, which
 * needs no dS: five products in all, where a common block needs four, and two halves of the columns would need six.
 * Each sum has one owner and one order, so the result is the same every time, without atomics or locks. Where several
 * heads of queries read one of keys, its owner takes them one after the other.
 *
 * Rows beyond the sequence are zeros in shared memory, as are their lse and delta: they add nothing to any sum.
 */

#include "kernels/cuda/gpu/attention_tile.h"

#define LOG2_E 1.44269504088896340736f

/* Heads above 128 have one row tile a warp, and so few passing rows that sm_90 has shared memory for two blocks. */
template <int D, bool DROPS> struct queries_shape {
    static constexpr int M = D > 128 ? 1 : 2, queries = 16 * M * ATTENTION_WARPS;
    static constexpr int keys = (DROPS && D > 96 && M == 2) || D > 192 ? 16 : 32;
    static constexpr size_t shared =
        sizeof(uint16_t) * tile_stride<D> * (2 * queries + 4 * keys) + sizeof(int32_t) * queries;
    static constexpr int blocks = DROPS || D > 64 ? 1 : ATTENTION_SMALL_BLOCKS;
};

/* Two sums a row need twice the registers: only the smallest heads leave room for two row tiles a warp. split: a block
 * makes one sum, dk or dv. */
template <int D> struct keys_shape {
    static constexpr bool split = D > 128;
    static constexpr int M = D > 64 ? 1 : 2, keys = 16 * M * ATTENTION_WARPS, queries = D > 192 ? 16 : 32;
    static constexpr size_t shared =
        sizeof(uint16_t) * tile_stride<D> * (2 * keys + 4 * queries) + sizeof(float) * 6 * queries;
};

/* Blocks of keys that an SM is to have at the same time, where that costs no spills. */
template <int D, bool DROPS, bool EXACT>
static constexpr int keys_blocks = (D == 32 && EXACT) || (D == 80 && !DROPS) ? 3
                                   : D == 80 || (D == 96 && EXACT)           ? ATTENTION_SMALL_BLOCKS
                                                                             : 1;

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

        for (int column = t * 8; column < D && row < call.seq; column += 32) {
            struct attention_chunk x = chunk_load(out + (ptrdiff_t)row * call.hidden, column, call.head_size);
            struct attention_chunk y = *(const struct attention_chunk *)(dout + tile_row * tile_stride<D> + column);

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

template <enum dtype T, int D, bool DROPS, bool EXACT>
static __global__ void __launch_bounds__(ATTENTION_THREADS, queries_shape<D, DROPS>::blocks)
    attention_backward_queries(struct attention_call call)
{
    using shape = queries_shape<D, DROPS>;
    constexpr int M = shape::M, N = shape::keys, own = shape::queries * tile_stride<D>, passing = N * tile_stride<D>;
    const int size = EXACT ? D : call.head_size;
    const bool bounded = !EXACT && call.bounded;
    int tiles = (call.seq + shape::queries - 1) / shape::queries;
    struct attention_head head = attention_head_of(call, (int)blockIdx.x / tiles);
    int block_query = (tiles - 1 - (int)blockIdx.x % tiles) * shape::queries;
    int warp_row = (int)threadIdx.x / 32 * 16 * M, query = block_query + warp_row;
    int end = call.causal ? min(head.keys, block_query + shape::queries) : head.keys;
    float s[M][N / 8][4], dp[M][N / 8][4], dq[M][D / 8][4] = {}, lse[M][2], delta[M][2], factor[M][2];
    DYNAMIC_SHARED(uint16_t, shared);
    uint16_t *q = shared, *dout = q + own, *k = dout + own, *v = k + 2 * passing;
    int32_t *seen = (int32_t *)(v + 2 * passing); /* of a bounded call */
    uint16_t *own_q = q + warp_row * tile_stride<D>, *own_dout = dout + warp_row * tile_stride<D>;
    int begin = 0;

    if (bounded)
        begin = load_seen<shape::queries, N>(seen, call, (int)blockIdx.x / tiles, block_query);
    tile_copy<D, shape::queries>(q, head.q, size, call.row, block_query, call.seq);
    tile_copy<D, shape::queries>(dout, (const uint16_t *)call.dout + head.out_at, size, call.hidden, block_query,
                                 call.seq);
    cp_async_commit();
    tile_copy<D, N, 2 * passing>(k, head.k, size, call.row, begin, head.keys, head.to_v);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    query_statistics<T, D, M>(lse, delta, call, head, own_dout, query);
    for (int first = begin, stage = 0; first < end; first += N, stage ^= 1) {
        cp_async_wait<0>();
        __syncthreads();
        if (first + N < end) {
            tile_copy<D, N, 2 * passing>(k + (stage ^ 1) * passing, head.k, size, call.row, first + N, head.keys,
                                         head.to_v);
            cp_async_commit();
        }
        if (warp_agrees((call.causal && first >= query + 16 * M) || (bounded && first + N <= seen[warp_row])))
            continue; /* keys that none of the warp's queries sees, though others of the block do */
        tile_scores<T, D, M, N>(s, own_q, k + stage * passing);
        tile_scores<T, D, M, N>(dp, own_dout, v + stage * passing);
        if (first + N > head.keys || (call.causal && first + N > query + 1))
            mask_scores<false, M, N>(s, query, first, head.keys, call.causal);
        if (bounded && first < seen[warp_row + 16 * M - 1])
            mask_unseen<false, M, N>(s, call, seen + warp_row, query, first);
        gradients_of_queries<M, N, DROPS>(s, dp, lse, delta, call,
                                          head.element + (uint64_t)query * (uint64_t)call.seq + (uint64_t)first);
        tile_gather<T, D, M, N>(dq, dp, k + stage * passing);
    }
    cp_async_wait<0>();
    for (int i = 0; i < 2 * M; i++)
        factor[i / 2][i % 2] = attention_scale(call);
    head = attention_head_of(call, (int)block_anew() / tiles);
    tile_write<T, D, M>((uint16_t *)call.dqkv + head.at, call.head_size, call.row, query, call.seq, own_q, dq, factor);
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

/* The key tile of a block, counted over all samples and heads of keys; and with split shapes whether it makes dk, else
 * dv. */
template <int D> static __device__ inline int key_block(unsigned block)
{
    return (int)(keys_shape<D>::split ? block / 2 : block);
}

/* The first of the heads of queries that read the keys of a block, as a pair. */
template <int D> static __device__ inline int pair_of_keys(const struct attention_call &call, unsigned block)
{
    constexpr int keys = keys_shape<D>::keys;

    return key_block<D>(block) / ((call.seq + keys - 1) / keys) * attention_group(call);
}

static __device__ inline bool makes_dk(unsigned block)
{
    return block % 2 == 0;
}

/* The first query that sees keys of the block, in whole tiles of queries. Found anew for each head of queries, so that
 * the loop over them has the registers. */
template <int D> static __device__ inline int first_query_of_keys(const struct attention_call &call)
{
    constexpr int keys = keys_shape<D>::keys;

    static_assert(keys % keys_shape<D>::queries == 0, "a tile of queries begins where one of keys does");
    return call.causal ? key_block<D>(block_anew()) % ((call.seq + keys - 1) / keys) * keys : 0;
}

/* The next head of queries, which reads the same keys. */
static __device__ inline void next_queries(struct attention_head &head, const struct attention_call &call)
{
    head.q += call.head_size;
    head.out_at += call.head_size;
    head.row_at += (size_t)call.seq;
    head.element += (uint64_t)call.seq * (uint64_t)call.seq;
}

/* Queries and what comes with them, started on their way. */
template <int D, int N, bool EXACT>
static __device__ inline void copy_queries(const struct attention_call &call, const struct attention_head &head,
                                           int query, uint16_t *q, uint16_t *dout, float *lse, float *delta,
                                           int32_t *starts)
{
    const int size = EXACT ? D : call.head_size;

    tile_copy<D, N>(q, head.q, size, call.row, query, call.seq);
    tile_copy<D, N>(dout, (const uint16_t *)call.dout + head.out_at, size, call.hidden, query, call.seq);
    numbers_copy<N>(lse, call.lse + head.row_at, query, call.seq);
    numbers_copy<N>(delta, call.delta + head.row_at, query, call.seq);
    if (!EXACT && call.bounded && call.document_start)
        numbers_copy<N>(starts, document_starts_of(call, pair_of_keys<D>(call, block_anew())), query, call.seq);
    cp_async_commit();
}

/* Writes the sum of one gradient, dk or dv. The block's place is found anew. */
template <enum dtype T, int D>
static __device__ inline void finish_keys(const struct attention_call &call, bool is_dk, uint16_t *staging,
                                          const float sum[keys_shape<D>::M][D / 8][4])
{
    using shape = keys_shape<D>;
    int tiles = (call.seq + shape::keys - 1) / shape::keys, block = key_block<D>(block_anew());
    int key = block % tiles * shape::keys + (int)(thread_anew() / 32) * 16 * shape::M;
    struct attention_head head = attention_head_of(call, pair_of_keys<D>(call, block_anew()));
    float factor[shape::M][2];

    for (int i = 0; i < 2 * shape::M; i++)
        factor[i / 2][i % 2] = is_dk ? attention_scale(call) : 1;
    tile_write<T, D, shape::M>((uint16_t *)call.dqkv + head.k_at + (is_dk ? 0 : head.to_v), call.head_size, call.row,
                               key, call.seq, staging, sum, factor);
}

template <enum dtype T, int D, bool DROPS, bool EXACT>
static __global__ void __launch_bounds__(ATTENTION_THREADS, keys_blocks<D, DROPS, EXACT>)
    attention_backward_keys(struct attention_call call)
{
    using shape = keys_shape<D>;
    constexpr int M = shape::M, N = shape::queries, own = shape::keys * tile_stride<D>, passing = N * tile_stride<D>;
    const int size = EXACT ? D : call.head_size;
    const bool bounded = !EXACT && call.bounded;
    int tiles = (call.seq + shape::keys - 1) / shape::keys, block = key_block<D>(blockIdx.x);
    struct attention_head head = attention_head_of(call, pair_of_keys<D>(call, blockIdx.x));
    int block_key = block % tiles * shape::keys;
    int warp_row = (int)threadIdx.x / 32 * 16 * M, key = block_key + warp_row;
    float s[M][N / 8][4], dp[M][N / 8][4] = {}, sums[shape::split ? 1 : 2][M][D / 8][4] = {};
    DYNAMIC_SHARED(uint16_t, shared);
    uint16_t *k = shared, *v = k + own, *q = v + own, *dout = q + 2 * passing;
    float *lse = (float *)(dout + 2 * passing), *delta = lse + 2 * N;
    int32_t *starts = (int32_t *)(delta + 2 * N); /* of a bounded call with documents */
    uint16_t *own_k = k + warp_row * tile_stride<D>, *own_v = v + warp_row * tile_stride<D>;

    tile_copy<D, shape::keys, own>(k, head.k, size, call.row, block_key, head.keys, head.to_v);
    for (int heads = block_key < head.keys ? attention_group(call) : 0; heads > 0; heads--, next_queries(head, call)) {
        int first = first_query_of_keys<D>(call);

        copy_queries<D, N, EXACT>(call, head, first, q, dout, lse, delta, starts);
        for (int stage = 0; first < call.seq; first += N, stage ^= 1) {
            int next = stage ^ 1;

            cp_async_wait<0>();
            __syncthreads();
            if (bounded && warp_agrees(first_seen(call, starts + stage * N, first, 0) >= block_key + shape::keys))
                break; /* from here on queries see none of the block's keys */
            if (first + N < call.seq)
                copy_queries<D, N, EXACT>(call, head, first + N, q + next * passing, dout + next * passing,
                                          lse + next * N, delta + next * N, starts + next * N);
            if (warp_agrees((call.causal && first + N <= key) ||
                            (bounded && first_seen(call, starts + stage * N, first, 0) >= key + 16 * M)))
                continue; /* queries that see none of the warp's keys, though others of the block */
            tile_scores<T, D, M, N>(s, own_k, q + stage * passing);
            if (!shape::split || makes_dk(block_anew()))
                tile_scores<T, D, M, N>(dp, own_v, dout + stage * passing);
            if (key + 16 * M > head.keys || (call.causal && key + 16 * M > first + 1))
                mask_scores<true, M, N>(s, first, key, head.keys, call.causal);
            int last = min(N, call.seq - first) - 1;

            if (bounded && first_seen(call, starts + stage * N, first, last) > key)
                mask_unseen<true, M, N>(s, call, starts + stage * N, first, key);
            gradients_of_keys<M, N, DROPS>(s, dp, lse + stage * N, delta + stage * N, call,
                                           head.element + (uint64_t)first * (uint64_t)call.seq + (uint64_t)key);
            if constexpr (shape::split) {
                bool is_dk = makes_dk(block_anew());

                static_assert(M == 1, "one row tile is chosen from");
#pragma unroll
                for (int j = 0; j < M * N / 2; j++)
                    s[0][j / 4][j % 4] = is_dk ? dp[0][j / 4][j % 4] : s[0][j / 4][j % 4];
                tile_gather<T, D, M, N>(sums[0], s, (is_dk ? q : dout) + stage * passing);
            } else {
                tile_gather<T, D, M, N>(sums[1], s, dout + stage * passing);
                tile_gather<T, D, M, N>(sums[0], dp, q + stage * passing);
            }
        }
        cp_async_wait<0>();
        __syncthreads();
    }
    cp_async_commit(); /* of keys that are all padding: nothing else did */
    cp_async_wait<0>();
    __syncthreads();
    finish_keys<T, D>(call, !shape::split || makes_dk(block_anew()), own_k, sums[0]);
    if constexpr (!shape::split)
        finish_keys<T, D>(call, false, own_v, sums[1]);
}

namespace
{
struct backward {
    template <enum dtype T, int D, bool DROPS, bool EXACT>
    static void launch(struct device *dev, const struct attention_call *call)
    {
        using queries = queries_shape<D, DROPS>;
        using keys = keys_shape<D>;
        int query_blocks = call->batch * call->heads * ((call->seq + queries::queries - 1) / queries::queries);
        int key_heads = call->batch * attention_kv_heads(call);
        int key_blocks = key_heads * ((call->seq + keys::keys - 1) / keys::keys) * (keys::split ? 2 : 1);

        /* GPUs of compute capability 8.6 and 8.9 have less than those of 8.0 and 9.0. */
        if ((queries::shared > keys::shared ? queries::shared : keys::shared) > device_cuda(dev)->shared_limit)
            return attention_plain_backward(dev, call);
        LAUNCH(dev, (attention_backward_queries<T, D, DROPS, EXACT>), dim3((unsigned)query_blocks),
               dim3(ATTENTION_THREADS), queries::shared, *call);
        LAUNCH(dev, (attention_backward_keys<T, D, DROPS, EXACT>), dim3((unsigned)key_blocks), dim3(ATTENTION_THREADS),
               keys::shared, *call);
    }
};
} // namespace

void attention_tiled_backward(struct device *dev, const struct attention_call *call)
{
    attention_choose<backward>(dev, call);
}

/*
 * attention_forward.cu - FlashAttention-2's forward pass (arXiv 2307.08691, algorithm 1) on the tensor cores.
 *
 * A block has a tile of queries; tiles of keys and values pass by. Scores are kept in units of log2: with x = q k^T,
 * scale_two = log2(e) / sqrt(d), and the running maximum m and sum l of each query,
 *
 *   m' = max(m, x)   p = 2^(scale_two (x - m'))   f = 2^(scale_two (m - m'))   l' = f l + sum p   o' = f o + p v
 *
 * and at the end out = o / l, lse = m / sqrt(d) + log(l). This holds for any m that is not far below the maximum: so m'
 * stays m, and f is 1, until a score of some row of the warp is more than 2^MAX_RISE times as probable; p and l are
 * then larger numbers of the same precision, and most tiles rescale nothing (FlashAttention-4 does so, too). Key 0 is
 * seen by every query that sees any, and is in the first tile: so m is the maximum from then on. With documents or a
 * window the first tiles may have no key for a query: m begins as a finite number, so that their p is 0.
 */
#include <float.h>

#include "kernels/cuda/gpu/attention_tile.h"

#define MAX_RISE 8
/* Below every score, and finite also when multiplied by log2(e). */
#define NO_SCORE (-FLT_MAX / 2)

/* As much as registers allow: two row tiles a warp up to heads of 128, because each key that comes from shared memory
 * then serves 32 queries; and fewer keys at once where dropout's bits need room. Larger heads have one row tile a warp,
 * and so many keys that sm_90 has shared memory for two blocks. */
template <int D, bool DROPS> struct forward_shape {
    static constexpr int M = D > 128 ? 1 : 2, queries = 16 * M * ATTENTION_WARPS;
    static constexpr int keys = DROPS ? (D > 96 && M == 2 ? 16 : 32) : D > 192 ? 32 : D > 96 ? 48 : 64;
    static constexpr size_t shared =
        sizeof(uint16_t) * tile_stride<D> * (queries + 4 * keys) + sizeof(int32_t) * queries;
    static constexpr int blocks = D > 64 ? 1 : ATTENTION_SMALL_BLOCKS;
};

static __device__ inline float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}

/* A lane's rows: the greatest of what was seen before and of this tile, in all four lanes of a row. */
template <int M, int N>
static __device__ inline void greatest_score(float top[M][2], const float s[M][N / 8][4], const float most[M][2])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float x = most[m][half];

#pragma unroll
            for (int n = 0; n < N / 8; n++)
                x = fmaxf(x, fmaxf(s[m][n][half * 2], s[m][n][half * 2 + 1]));
            top[m][half] = quad_max(x);
        }
}

/* The difference first: it is 0 where the maximum stays, and the factor 1. A product fused with the subtraction of its
 * own rounding would leave that rounding, once a tile. */
template <int D, int M>
static __device__ inline void rescale_output(float o[M][D / 8][4], float most[M][2], float sum[M][2],
                                             const float top[M][2], float scale)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float shrink = mma_exp2((most[m][half] - top[m][half]) * scale);

            most[m][half] = top[m][half];
            sum[m][half] *= shrink;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                o[m][n][half * 2] *= shrink;
                o[m][n][half * 2 + 1] *= shrink;
            }
        }
}

/* s becomes p. sum is of this lane's columns alone until the end. */
template <int D, int M, int N>
static __device__ inline void softmax_tile(float s[M][N / 8][4], float o[M][D / 8][4], float most[M][2],
                                           float sum[M][2], float scale)
{
    float top[M][2];
    bool rises = false;

    greatest_score<M, N>(top, s, most);
#pragma unroll
    for (int m = 0; m < M; m++)
        rises |= (top[m][0] - most[m][0]) * scale > MAX_RISE || (top[m][1] - most[m][1]) * scale > MAX_RISE;
    if (__any_sync(FULL_WARP, rises))
        rescale_output<D, M>(o, most, sum, top, scale);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < N / 8; n++)
#pragma unroll
                for (int i = half * 2; i < half * 2 + 2; i++) {
                    s[m][n][i] = mma_exp2(s[m][n][i] * scale - most[m][half] * scale);
                    sum[m][half] += s[m][n][i];
                }
}

template <int M, int N>
static __device__ inline void drop_scores(float p[M][N / 8][4], const struct attention_call &call, uint64_t element)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            struct dropout_square square =
                dropout_square_at<false>(call, element + (uint64_t)(m * 16) * (uint64_t)call.seq + (uint64_t)n);

#pragma unroll
            for (int i = 0; i < 8; i++)
                p[m][n / 8 + i / 4][i % 4] = dropout_keeps<false>(square, i) ? p[m][n / 8 + i / 4][i % 4] : 0;
        }
}

/* The last queries see most keys: the first blocks have them. */
static __device__ inline int first_query(int block, int tiles, int queries)
{
    return (tiles - 1 - block % tiles) * queries;
}

/* The block's last act: o and the statistics of its rows. Where those go is found anew, so that the loop before has the
 * registers. */
template <enum dtype T, int D, int M>
static __device__ inline void finish_rows(const struct attention_call &call, uint16_t *q, const float o[M][D / 8][4],
                                          const float most[M][2], const float sum[M][2])
{
    constexpr int queries = 16 * M * ATTENTION_WARPS;
    int tiles = (call.seq + queries - 1) / queries, block = (int)block_anew();
    int lane = (int)(thread_anew() % 32), warp_row = (int)(thread_anew() / 32) * 16 * M;
    int query = first_query(block, tiles, queries) + warp_row;
    struct attention_head head = attention_head_of(call, block / tiles);
    float factor[M][2];

#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float whole = quad_sum(sum[m][half]);
            int row = query + m * 16 + half * 8 + lane / 4;

            factor[m][half] = whole > 0 ? call.kept / whole : 0;
            if (lane % 4 == 0 && row < call.seq)
                call.lse[head.row_at + (size_t)row] =
                    whole > 0 ? most[m][half] * attention_scale(call) + logf(whole) : -INFINITY;
        }
    tile_write<T, D, M>((uint16_t *)call.out + head.out_at, call.head_size, call.hidden, query, call.seq,
                        q + warp_row * tile_stride<D>, o, factor);
}

template <enum dtype T, int D, bool DROPS, bool EXACT>
static __global__ void __launch_bounds__(ATTENTION_THREADS, forward_shape<D, DROPS>::blocks)
    attention_forward_tiles(struct attention_call call)
{
    using shape = forward_shape<D, DROPS>;
    constexpr int M = shape::M, N = shape::keys, passing = N * tile_stride<D>;
    const int size = EXACT ? D : call.head_size;
    const bool bounded = !EXACT && call.bounded;
    int tiles = (call.seq + shape::queries - 1) / shape::queries;
    struct attention_head head = attention_head_of(call, (int)blockIdx.x / tiles);
    int block_query = first_query((int)blockIdx.x, tiles, shape::queries);
    int warp_row = (int)threadIdx.x / 32 * 16 * M;
    int end = call.causal ? min(head.keys, block_query + shape::queries) : head.keys;
    float s[M][N / 8][4], o[M][D / 8][4] = {}, most[M][2], sum[M][2] = {};
    DYNAMIC_SHARED(uint16_t, shared);
    uint16_t *q = shared, *k = q + shape::queries * tile_stride<D>, *v = k + 2 * passing;
    int32_t *seen = (int32_t *)(v + 2 * passing); /* of a bounded call */
    int begin = 0;

    if (bounded)
        begin = load_seen<shape::queries, N>(seen, call, (int)blockIdx.x / tiles, block_query);
    for (int m = 0; m < M; m++)
        most[m][0] = most[m][1] = NO_SCORE;
    tile_copy<D, shape::queries>(q, head.q, size, call.row, block_query, call.seq);
    tile_copy<D, N, 2 * passing>(k, head.k, size, call.row, begin, head.keys, head.to_v);
    cp_async_commit();
    for (int first = begin, stage = 0; first < end; first += N, stage ^= 1) {
        cp_async_wait<0>();
        __syncthreads();
        if (first + N < end) {
            tile_copy<D, N, 2 * passing>(k + (stage ^ 1) * passing, head.k, size, call.row, first + N, head.keys,
                                         head.to_v);
            cp_async_commit();
        }
        int query = block_query + (int)(thread_anew() / 32) * 16 * M;
        const int32_t *own_seen = seen + (query - block_query);

        if (warp_agrees((call.causal && first >= query + 16 * M) || (bounded && first + N <= *own_seen)))
            continue; /* keys that none of the warp's queries sees, though others of the block do */
        tile_scores<T, D, M, N>(s, q + warp_row * tile_stride<D>, k + stage * passing);
        if (first + N > head.keys || (call.causal && first + N > query + 1))
            mask_scores<false, M, N>(s, query, first, head.keys, call.causal);
        if (bounded && first < own_seen[16 * M - 1])
            mask_unseen<false, M, N>(s, call, own_seen, query, first);
        softmax_tile<D, M, N>(s, o, most, sum, call.scale_two);
        if constexpr (DROPS)
            drop_scores<M, N>(s, call, head.element + (uint64_t)query * (uint64_t)call.seq + (uint64_t)first);
        tile_gather<T, D, M, N>(o, s, v + stage * passing);
    }
    cp_async_wait<0>();
    __syncthreads();
    finish_rows<T, D, M>(call, q, o, most, sum);
}

namespace
{
struct forward {
    template <enum dtype T, int D, bool DROPS, bool EXACT>
    static void launch(struct device *dev, const struct attention_call *call)
    {
        using shape = forward_shape<D, DROPS>;
        int tiles = (call->seq + shape::queries - 1) / shape::queries;

        /* GPUs of compute capability 8.6 and 8.9 have less than those of 8.0 and 9.0. */
        if (shape::shared > device_cuda(dev)->shared_limit)
            return attention_plain_forward(dev, call);
        LAUNCH(dev, (attention_forward_tiles<T, D, DROPS, EXACT>), dim3((unsigned)(tiles * call->batch * call->heads)),
               dim3(ATTENTION_THREADS), shape::shared, *call);
    }
};
} // namespace

void attention_tiled_forward(struct device *dev, const struct attention_call *call)
{
    attention_choose<forward>(dev, call);
}

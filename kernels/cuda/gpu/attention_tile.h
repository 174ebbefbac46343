/*
 * attention_tile.h - device code that the tiled attention kernels share: tiles of rows in shared memory, the two
 * products that attention consists of, and dropout's mask for a square of scores.
 *
 * A block is ATTENTION_WARPS warps, and owns a tile of rows (of queries, or of keys); a warp owns 16 * M of these, and
 * all their sums, which stay in its registers. The other rows pass by in tiles, copied one ahead while the last one is
 * worked on. Two products suffice, with A's rows the warp's own and B's the passing ones:
 *
 *   scores      s[own, passing] = A[own, D] B[passing, D]^T     Q K^T, dout V^T; their transposes K Q^T, V dout^T
 *   gather      o[own, D] += s[own, passing] B[passing, D]      P V, dS K; P^T dout, dS^T Q
 *
 * The scores a warp has made are, rounded, the A of what follows (mma.h): they never leave its registers.
 *
 * D is the head size, padded to the next size that kernels are compiled for (attention_choose). The padding exists in
 * shared memory only, as zeros: rows in memory have head_size elements. If head_size is a multiple of 8, rows begin at
 * multiples of 16 bytes. Else they begin at multiples of 4 bytes, and two elements are copied at a time.
 *
 * A row in shared memory is D + 8 elements long. D is a multiple of 16, so a row is an odd number of 16-byte chunks,
 * and 8 rows' chunks lie in 8 different groups of banks: ldmatrix and the copies meet no conflicts, as with a swizzle,
 * but for every D alike and with addresses that differ by constants.
 */
#ifndef MUSTER_KERNELS_CUDA_GPU_ATTENTION_TILE_H
#define MUSTER_KERNELS_CUDA_GPU_ATTENTION_TILE_H

#include <math.h>

#include "kernels/cuda/cuda_attention.h"
#include "kernels/cuda/gpu/language.h"
#include "kernels/cuda/gpu/mma.h"

#define ATTENTION_WARPS   4
#define ATTENTION_THREADS (ATTENTION_WARPS * 32)

/* Blocks that an SM is to have at the same time where heads are the smallest: three, if a thread takes not one register
 * more than 168. Before sm_90 there is not enough shared memory for them. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define ATTENTION_SMALL_BLOCKS 3
#else
#define ATTENTION_SMALL_BLOCKS 1
#endif

/* Elements from a row to the next in shared memory. */
template <int D> static constexpr int tile_stride = D + 8;

struct alignas(16) attention_chunk {
    uint32_t word[4];
};

/* One head of one sample. Rows of q, k, v and the gradients are call.row elements apart; out's and dout's, call.hidden. */
struct attention_head {
    const uint16_t *q, *k;
    int to_v;                   /* elements from a row's k to its v */
    ptrdiff_t at, k_at, out_at; /* of the head's first q and k in qkv and dqkv; in out and dout */
    size_t row_at;              /* in lse and delta */
    int keys;                   /* that are not padding */
    uint64_t element;           /* of dropout: of query 0 and key 0 */
};

/* The heads of queries that read one of keys. */
static __device__ inline int attention_group(const struct attention_call &call)
{
    return call.hidden / ((call.row - call.hidden) / 2);
}

static __device__ inline float attention_scale(const struct attention_call &call)
{
    return 1.0f / sqrtf((float)call.head_size);
}

static __device__ inline struct attention_head attention_head_of(const struct attention_call &call, int pair)
{
    int sample = pair / call.heads, head = pair % call.heads, kv_head = head / attention_group(call);
    struct attention_head x;

    x.to_v = (call.row - call.hidden) / 2;
    x.at = (ptrdiff_t)sample * call.seq * call.row + head * call.head_size;
    x.k_at = (ptrdiff_t)sample * call.seq * call.row + call.hidden + kv_head * call.head_size;
    x.out_at = (ptrdiff_t)sample * call.seq * call.hidden + head * call.head_size;
    x.q = (const uint16_t *)call.qkv + x.at;
    x.k = (const uint16_t *)call.qkv + x.k_at;
    x.row_at = (size_t)pair * (size_t)call.seq;
    x.keys = !call.bounded && call.lengths ? min(max((int)call.lengths[sample], 0), call.seq) : call.seq;
    x.element =
        call.element + (uint64_t)sample * call.stride + (uint64_t)head * (uint64_t)call.seq * (uint64_t)call.seq;
    return x;
}

/* document_start of the sample of a pair; NULL if there is none. */
static __device__ inline const int32_t *document_starts_of(const struct attention_call &call, int pair)
{
    return call.document_start ? call.document_start + (ptrdiff_t)(pair / call.heads) * call.seq : NULL;
}

/* The first key that query `query` + i of a bounded call sees: of its window, and of its document, which begins at
 * starts[i] if call.document_start is not NULL. May be negative. */
static __device__ inline int first_seen(const struct attention_call &call, const int32_t *starts, int query, int i)
{
    int first = query + i + 1 - call.window;

    return call.document_start ? max(starts[i], first) : first;
}

/* seen[QUERIES] = the first keys that the block's queries see; those beyond the sequence have the last one's. All threads
 * call it. Returns where the first tile of N keys begins that the block has to look at. */
template <int QUERIES, int N>
static __device__ inline int load_seen(int32_t *seen, const struct attention_call &call, int pair, int block_query)
{
    const int32_t *starts = document_starts_of(call, pair);

    static_assert(QUERIES <= ATTENTION_THREADS, "a thread loads one");
    if (threadIdx.x < QUERIES) {
        int query = min(block_query + (int)threadIdx.x, call.seq - 1);

        seen[threadIdx.x] = first_seen(call, starts, 0, query);
    }
    __syncthreads();
    return max(seen[0], 0) / N * N;
}

/* Whether rows of `size` elements begin at 16 bytes, and consist of whole chunks. */
static __device__ inline bool has_whole_chunks(int size)
{
    return size % 8 == 0;
}

/* The chunk at column `column` of a row of `size` elements in memory; what lies beyond the row is 0. */
static __device__ inline struct attention_chunk chunk_load(const uint16_t *row, int column, int size)
{
    struct attention_chunk x = {};

    if (has_whole_chunks(size))
        return column < size ? *(const struct attention_chunk *)(row + column) : x;
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (column + 2 * j < size)
            x.word[j] = *(const uint32_t *)(row + column + 2 * j);
    return x;
}

static __device__ inline void chunk_store(uint16_t *row, int column, int size, const struct attention_chunk &x)
{
    if (has_whole_chunks(size)) {
        if (column < size)
            *(struct attention_chunk *)(row + column) = x;
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (column + 2 * j < size)
            *(uint32_t *)(row + column + 2 * j) = x.word[j];
}

/* tile_copy for rows that are not whole chunks, two elements at a time. tile, from: at the thread's chunk of its first
 * row. `size` elements of a row are left there, and `rows` rows are left of the sequence from the tile's first one. */
template <int D, int ROWS, int PAIR>
static __device__ inline void words_copy(uint16_t *tile, const uint16_t *from, int size, ptrdiff_t stride, int rows,
                                         ptrdiff_t other)
{
    constexpr int chunks = D / 8, step = ATTENTION_THREADS / chunks;

#pragma unroll 1
    for (int row = (int)(thread_anew() / chunks); row < ROWS; row += step) {
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            bool valid = row < rows && j < size;

            cp_async<4>(tile + j, from + j, valid);
            if constexpr (PAIR != 0)
                cp_async<4>(tile + j + PAIR, from + j + other, valid);
        }
        tile += step * tile_stride<D>;
        from += step * stride;
    }
}

/*
 * Starts copying rows [first, first + ROWS) of `size` elements, `stride` apart, to `tile`; those from `limit` on become
 * 0, as does the padding to D. A thread copies the same chunk of every so-manyth row: from one to the next it adds, and
 * multiplies nothing. What a copy costs is instructions that the products wait for.
 *
 * PAIR, elements: with each row another one, `other` elements after it, to a tile that begins so far after `tile`.
 */
template <int D, int ROWS, int PAIR = 0>
static __device__ inline void tile_copy(uint16_t *tile, const uint16_t *from, int size, ptrdiff_t stride, int first,
                                        int limit, ptrdiff_t other = 0)
{
    constexpr int chunks = D / 8, step = ATTENTION_THREADS / chunks;
    unsigned thread = thread_anew();
    int row = (int)(thread / chunks), column = (int)(thread % chunks) * 8;

    tile += row * tile_stride<D> + column;
    from += (first + row) * stride + column;
    if (ATTENTION_THREADS % chunks != 0 && row >= step)
        return;
    if (!has_whole_chunks(size))
        return words_copy<D, ROWS, PAIR>(tile, from, size - column, stride, limit - first, other);
    if (size != D && column >= size)
        limit = 0;
#pragma unroll
    for (int i = 0; i < ROWS; i += step) {
        if (ROWS % step == 0 || i + row < ROWS) {
            bool valid = first + i + row < limit;

            cp_async<16>(tile + i * tile_stride<D>, from, valid);
            if constexpr (PAIR != 0)
                cp_async<16>(tile + i * tile_stride<D> + PAIR, from + other, valid);
        }
        from += step * stride;
    }
}

/* The same for one float or int32 a row. */
template <int ROWS, class T> static __device__ inline void numbers_copy(T *to, const T *from, int first, int limit)
{
    int row = (int)threadIdx.x;

    static_assert(ROWS <= ATTENTION_THREADS && sizeof(T) == 4, "a thread copies one");
    if (row < ROWS)
        cp_async<4>(to + row, from + first + row, first + row < limit);
}

/*
 * A question that all lanes answer alike. That they do only a vote tells the compiler, which then keeps what depends on
 * it, such as the counters of a loop that skips by it, in the registers that a warp has once and not in each lane's.
 */
static __device__ inline bool warp_agrees(bool answer)
{
    return __any_sync(FULL_WARP, answer);
}

/* s = a b^T. a: the warp's 16 * M rows; b: N rows. */
template <enum dtype T, int D, int M, int N>
static __device__ inline void tile_scores(float s[M][N / 8][4], const uint16_t *a, const uint16_t *b)
{
    int lane = (int)threadIdx.x % 32;
    const uint16_t *a_row = a + lane % 16 * tile_stride<D> + lane / 16 * 8;
    const uint16_t *b_row = b + (lane / 16 * 8 + lane % 8) * tile_stride<D> + lane / 8 % 2 * 8;

#pragma unroll
    for (int i = 0; i < M * N / 2; i++)
        s[i / (N / 2)][i / 4 % (N / 8)][i % 4] = 0;
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t left[M][4], right[4];

#pragma unroll
        for (int m = 0; m < M; m++)
            ldmatrix_x4(left[m], a_row + m * 16 * tile_stride<D> + k);
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            ldmatrix_x4(right, b_row + n * tile_stride<D> + k);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_16816<T>(s[m][n / 8], left[m], right);
                mma_16816<T>(s[m][n / 8 + 1], left[m], right + 2);
            }
        }
    }
}

/* o += s b, s rounded to T. b: N rows. */
template <enum dtype T, int D, int M, int N>
static __device__ inline void tile_gather(float o[M][D / 8][4], const float s[M][N / 8][4], const uint16_t *b)
{
    int lane = (int)threadIdx.x % 32;
    const uint16_t *b_row = b + lane % 16 * tile_stride<D> + lane / 16 * 8;

#pragma unroll
    for (int k = 0; k < N; k += 16) {
        uint32_t left[M][4], right[4];

#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                left[m][i] = mma_pack<T>(s[m][k / 8 + i / 2][i % 2 * 2], s[m][k / 8 + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int d = 0; d < D; d += 16) {
            ldmatrix_x4_trans(right, b_row + k * tile_stride<D> + d);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_16816<T>(o[m][d / 8], left[m], right);
                mma_16816<T>(o[m][d / 8 + 1], left[m], right + 2);
            }
        }
    }
}

/*
 * Rounds o, times factor[m][half], and writes it to rows [first, limit) of `to`, of `size` elements. The warp's rows
 * pass through its own rows of a tile that nobody reads any more, `staging`, so that they are written 16 bytes at a
 * time.
 */
template <enum dtype T, int D, int M>
static __device__ inline void tile_write(uint16_t *to, int size, ptrdiff_t stride, int first, int limit,
                                         uint16_t *staging, const float o[M][D / 8][4], const float factor[M][2])
{
    int lane = (int)(thread_anew() % 32), group = lane / 4, t = lane % 4;

    __syncwarp();
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                *(uint32_t *)(staging + (m * 16 + half * 8 + group) * tile_stride<D> + n * 8 + t * 2) =
                    mma_pack<T>(o[m][n][half * 2] * factor[m][half], o[m][n][half * 2 + 1] * factor[m][half]);
    __syncwarp();
    for (int i = lane; i < 16 * M * (D / 8); i += 32) {
        int row = i / (D / 8), column = i % (D / 8) * 8;

        if (first + row < limit)
            chunk_store(to + (first + row) * stride, column, size,
                        *(const struct attention_chunk *)(staging + row * tile_stride<D> + column));
    }
}

/*
 * Dropout's mask for the scores of 16 queries and 16 keys, the first of which are `element`. Each lane makes the Philox
 * block of one query and 8 keys, and tells the others: bit (query + 16 * (key / 8)) of votes[key % 8] says that the
 * probability stays.
 */
static __device__ inline void dropout_votes(uint32_t votes[8], const struct attention_call &call, uint64_t element)
{
    int lane = (int)(thread_anew() % 32);
    uint64_t block = (element + (uint64_t)(lane % 16) * (uint64_t)call.seq) / 8 + (uint64_t)(lane / 16);
    uint32_t random[4];

    philox_block(call.stream, block, random);
#pragma unroll
    for (int i = 0; i < 8; i++)
        votes[i] = __ballot_sync(0xffffffff, (random[i / 2] >> i % 2 * 16 & 0xffff) >= call.threshold);
}

/* votes[i] for an i that differs from lane to lane: by choices, since registers have no index. */
static __device__ inline uint32_t dropout_vote(const uint32_t votes[8], int i)
{
    uint32_t low = i & 2 ? (i & 1 ? votes[3] : votes[2]) : (i & 1 ? votes[1] : votes[0]);
    uint32_t high = i & 2 ? (i & 1 ? votes[7] : votes[6]) : (i & 1 ? votes[5] : votes[4]);

    return i & 4 ? high : low;
}

/*
 * What a lane needs of these votes: element i, of the accumulators (mma.h) of the square's first 8 columns and then its
 * second 8, stays when dropout_keeps says so. The rows of the square are queries, or keys.
 */
struct dropout_square {
    uint32_t even, odd; /* for even and odd i */
};

template <bool ROWS_ARE_KEYS>
static __device__ inline struct dropout_square dropout_square_at(const struct attention_call &call, uint64_t element)
{
    int lane = (int)(thread_anew() % 32), group = lane / 4, t = lane % 4;
    uint32_t votes[8];

    dropout_votes(votes, call, element);
    if constexpr (ROWS_ARE_KEYS) {
        uint32_t vote = dropout_vote(votes, group) >> 2 * t;

        return {vote, vote >> 1};
    }
    return {dropout_vote(votes, 2 * t) >> group, dropout_vote(votes, 2 * t + 1) >> group};
}

template <bool ROWS_ARE_KEYS> static __device__ inline bool dropout_keeps(const struct dropout_square &square, int i)
{
    constexpr int row_bits = ROWS_ARE_KEYS ? 16 : 8, column_bits = ROWS_ARE_KEYS ? 8 : 16;

    return (i % 2 ? square.odd : square.even) >> (i % 4 / 2 * row_bits + i / 4 * column_bits) & 1;
}

/* Scores that do not count become minus infinity: those of padding, and of keys after the query. `query` and `key` are
 * those of s[0][0] of the warp. */
template <bool ROWS_ARE_KEYS, int M, int N>
static __device__ inline void mask_scores(float s[M][N / 8][4], int query, int key, int keys, bool causal)
{
    int lane = (int)(thread_anew() % 32), group = lane / 4, t = lane % 4;

#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int row = m * 16 + i / 2 * 8 + group, column = n * 8 + t * 2 + i % 2;
                int of_key = key + (ROWS_ARE_KEYS ? row : column), of_query = query + (ROWS_ARE_KEYS ? column : row);

                if (of_key >= keys || (causal && of_key > of_query))
                    s[m][n][i] = -INFINITY;
            }
}

/* So do those of keys before the first that the query sees: seen[i], of those from `query` on. With keys as rows seen
 * is document_start, and the window is looked at here. */
template <bool ROWS_ARE_KEYS, int M, int N>
static __device__ inline void mask_unseen(float s[M][N / 8][4], const struct attention_call &call, const int32_t *seen,
                                          int query, int key)
{
    int lane = (int)(thread_anew() % 32), group = lane / 4, t = lane % 4;

#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int row = m * 16 + i / 2 * 8 + group, column = n * 8 + t * 2 + i % 2;

                if (ROWS_ARE_KEYS ? key + row < first_seen(call, seen, query, column) : key + column < seen[row])
                    s[m][n][i] = -INFINITY;
            }
}

/* The sum over the four lanes that share a row, in each of them. */
static __device__ inline float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}

/*
 * attention_choose: launches the kernel that is compiled for a call's type and padded head size. The tiled kernels must
 * be able to do the call (fits_tiles). EXACT kernels are for the usual call: head_size is D, and there are no dropout,
 * documents or window. The others ask at run time, which costs instructions in the main loop. Each pass passes its
 * launch as
 *     struct forward { // in an unnamed namespace: the emulator compiles the same templates beside these
 *         template <enum dtype T, int D, bool DROPS, bool EXACT>
 *         static void launch(struct device *, const struct attention_call *);
 *     };
 */
template <class Pass, enum dtype T, int D, int... LARGER>
static void attention_choose_size(struct device *dev, const struct attention_call *call)
{
    if constexpr (sizeof...(LARGER) > 0)
        if (call->head_size > D)
            return attention_choose_size<Pass, T, LARGER...>(dev, call);
    if (call->drops)
        Pass::template launch<T, D, true, false>(dev, call);
    else if (call->head_size == D && !call->bounded)
        Pass::template launch<T, D, false, true>(dev, call);
    else
        Pass::template launch<T, D, false, false>(dev, call);
}

template <class Pass> static void attention_choose(struct device *dev, const struct attention_call *call)
{
    static_assert(ATTENTION_MAX_HEAD_SIZE == 256, "the largest size below");
    if (call->dtype == DTYPE_BF16)
        attention_choose_size<Pass, DTYPE_BF16, 32, 64, 80, 96, 128, 160, 192, 224, 256>(dev, call);
    else
        attention_choose_size<Pass, DTYPE_F16, 32, 64, 80, 96, 128, 160, 192, 224, 256>(dev, call);
}

#endif

/*
 * query_key.cu - a norm of each head of queries and of keys, and rotary positions, in one pass.
 *
 * A head is shared by some lanes, a power of two. A lane has a pack of the head's first half and the pack of the second
 * half that is rotated with it: only the norm's sum leaves a lane. Where a block has several heads at once, so does a
 * warp. With head sizes that are multiples of 16, all accesses are whole packs.
 */
#include "kernels/cuda/gpu/rows.h"

#define THREADS 256

static_assert(QUERY_KEY_THREADS == THREADS && QUERY_KEY_LANE == 2 * PACK, "as it is predicted");

/* What a lane has of a head. */
struct part {
    struct pack low, high;
};

/* Where it is: the first column of its pack in either half, and how many there are. */
struct columns {
    int half, low, count;
};

static inline __device__ struct columns columns_of(const struct query_key &op, int lanes)
{
    int half = op.head_size / 2, low = static_cast<int>(threadIdx.x) % lanes * PACK;

    return {half, low, max(min(half - low, PACK), 0)};
}

template <bool WHOLE, class T>
static inline __device__ struct part load_part(const T *head, const struct columns &c, bool active)
{
    struct raw_pack<T> low = raw_narrow<T>(pack()), high = low;

    if (active && c.count > 0) {
        low = raw_load<WHOLE>(head + c.low, c.count);
        high = raw_load<WHOLE>(head + c.half + c.low, c.count);
    }
    return {raw_widen(low), raw_widen(high)};
}

template <bool WHOLE, class T>
static inline __device__ void store_part(T *head, const struct part &x, const struct columns &c)
{
    raw_store<WHOLE>(head + c.low, raw_narrow<T>(x.low), c.count);
    raw_store<WHOLE>(head + c.half + c.low, raw_narrow<T>(x.high), c.count);
}

/* sign 1: by the angles of the row's position; -1: back. */
template <bool WHOLE>
static inline __device__ void rotate_part(struct part &x, const struct query_key &op, int row, const struct columns &c,
                                          float sign)
{
    int position = row % op.seq - (op.document_start ? op.document_start[row] : 0);
    struct part turn = load_part<WHOLE>(op.angles + static_cast<size_t>(position) * op.head_size, c, true);

#pragma unroll
    for (int j = 0; j < PACK; j++) {
        float cosine = turn.low.v[j], sine = sign * turn.high.v[j], low = x.low.v[j];

        x.low.v[j] = fmaf(low, cosine, -__fmul_rn(x.high.v[j], sine));
        x.high.v[j] = fmaf(x.high.v[j], cosine, __fmul_rn(low, sine));
    }
}

/* x *= gamma * factor */
static inline __device__ void scale_part(struct part &x, const struct part &gamma, float factor)
{
#pragma unroll
    for (int j = 0; j < PACK; j++) {
        x.low.v[j] = x.low.v[j] * factor * gamma.low.v[j];
        x.high.v[j] = x.high.v[j] * factor * gamma.high.v[j];
    }
}

/* The sum of x * y over a head, in all of its lanes. All lanes of the warp call it. */
static inline __device__ float dot_parts(const struct part &x, const struct part &y, int lanes)
{
    float total = 0;

#pragma unroll
    for (int j = 0; j < PACK; j++)
        total = fmaf(x.low.v[j], y.low.v[j], fmaf(x.high.v[j], y.high.v[j], total));
    for (int bits = lanes / 2; bits > 0; bits /= 2)
        total += __shfl_xor_sync(FULL_WARP, total, bits);
    return total;
}

/* Head `head` of a row, of queries and then keys: where it begins in qkv, and its number among those of all rows. */
template <class T> static inline __device__ T *head_in_qkv(const struct query_key &op, int row, int head)
{
    return static_cast<T *>(op.qkv) + (static_cast<size_t>(row) * (op.heads + 2 * op.kv_heads) + head) * op.head_size;
}

static inline __device__ size_t head_number(const struct query_key &op, int row, int head)
{
    return static_cast<size_t>(row) * (op.heads + op.kv_heads) + head;
}

template <class T> static inline __device__ T *head_before(const struct query_key &op, int row, int head)
{
    return static_cast<T *>(op.before) + head_number(op, row, head) * op.head_size;
}

/* The forward pass; and without a norm, the backward pass, which turns back. A head a group of lanes. */
template <class T, bool NORM, bool WHOLE>
static __global__ void __launch_bounds__(THREADS) rotate_heads(struct query_key op, int lanes, float sign)
{
    unsigned number = (blockIdx.x * THREADS + threadIdx.x) / lanes, heads = op.heads + op.kv_heads;
    int row = static_cast<int>(number / heads), head = static_cast<int>(number % heads);
    struct columns c = columns_of(op, lanes);
    bool active = row < op.rows && c.count > 0;
    struct part x = load_part<WHOLE>(head_in_qkv<T>(op, row, head), c, active);

    if constexpr (NORM) {
        const T *gamma = static_cast<const T *>(head < op.heads ? op.gamma_q : op.gamma_k);
        float rstd = 1.0f / sqrtf(dot_parts(x, x, lanes) / static_cast<float>(op.head_size) + op.eps);

        if (active)
            store_part<WHOLE>(head_before<T>(op, row, head), x, c);
        if (active && c.low == 0)
            op.rstd[head_number(op, row, head)] = rstd;
        scale_part(x, load_part<WHOLE>(gamma, c, active), rstd);
    }
    if (!active)
        return;
    if (op.angles)
        rotate_part<WHOLE>(x, op, row, c, sign);
    store_part<WHOLE>(head_in_qkv<T>(op, row, head), x, c);
}

/* partial[n] = the sums over the block of sum, of all heads that a group of lanes took. */
static inline __device__ void add_groups(float *partial, const struct part &sum, const struct columns &c, int lanes)
{
    __shared__ float shared[2 * PACK][THREADS];

    __syncthreads(); /* some may still read what the call before left */
#pragma unroll
    for (int j = 0; j < PACK; j++) {
        shared[j][threadIdx.x] = sum.low.v[j];
        shared[PACK + j][threadIdx.x] = sum.high.v[j];
    }
    __syncthreads();
    for (int column = static_cast<int>(threadIdx.x); column < 2 * c.half; column += THREADS) {
        int in_half = column % c.half, from = column / c.half * PACK + in_half % PACK;
        float total = 0;

        for (int thread = in_half / PACK; thread < THREADS; thread += lanes)
            total += shared[from][thread];
        partial[column] = total;
    }
}

/*
 * A block takes every so-manyth heads: first those of queries, then those of keys. partial[block][2][head_size] is its
 * share of dgamma_q and dgamma_k, which a second kernel adds in order.
 */
template <class T, bool WHOLE>
static __global__ void __launch_bounds__(THREADS) norm_heads_backward(struct query_key op, float *partial, int lanes)
{
    int groups = THREADS / lanes, group = static_cast<int>(threadIdx.x) / lanes;
    struct columns c = columns_of(op, lanes);
    float inverse = 1.0f / static_cast<float>(op.head_size);

    for (int keys = 0; keys < 2; keys++) {
        int heads = keys ? op.kv_heads : op.heads, count = op.rows * heads, step = static_cast<int>(gridDim.x) * groups;
        struct part gamma = load_part<WHOLE>(static_cast<const T *>(keys ? op.gamma_k : op.gamma_q), c, true);
        struct part dgamma = {};

        for (int first = static_cast<int>(blockIdx.x) * groups; first < count; first += step) {
            int number = first + group, row = number / heads, head = number % heads + (keys ? op.heads : 0);
            bool active = number < count && c.count > 0;
            struct part dy = load_part<WHOLE>(head_in_qkv<T>(op, row, head), c, active);
            struct part xhat = load_part<WHOLE>(head_before<T>(op, row, head), c, active), g;
            float rstd = active ? op.rstd[head_number(op, row, head)] : 0.0f, mean;

            if (active && op.angles)
                rotate_part<WHOLE>(dy, op, row, c, -1);
#pragma unroll
            for (int j = 0; j < PACK; j++) {
                xhat.low.v[j] = __fmul_rn(xhat.low.v[j], rstd);
                xhat.high.v[j] = __fmul_rn(xhat.high.v[j], rstd);
                dgamma.low.v[j] = fmaf(dy.low.v[j], xhat.low.v[j], dgamma.low.v[j]);
                dgamma.high.v[j] = fmaf(dy.high.v[j], xhat.high.v[j], dgamma.high.v[j]);
                g.low.v[j] = __fmul_rn(dy.low.v[j], gamma.low.v[j]);
                g.high.v[j] = __fmul_rn(dy.high.v[j], gamma.high.v[j]);
            }
            mean = dot_parts(g, xhat, lanes) * inverse;
#pragma unroll
            for (int j = 0; j < PACK; j++) {
                g.low.v[j] = __fmul_rn(rstd, fmaf(-mean, xhat.low.v[j], g.low.v[j]));
                g.high.v[j] = __fmul_rn(rstd, fmaf(-mean, xhat.high.v[j], g.high.v[j]));
            }
            if (active)
                store_part<WHOLE>(head_in_qkv<T>(op, row, head), g, c);
        }
        add_groups(partial + (static_cast<size_t>(blockIdx.x) * 2 + keys) * op.head_size, dgamma, c, lanes);
    }
}

/* Lanes of a head; 0: it is too large, and the device has failed. */
static int lanes_of(struct device *dev, const struct query_key *op, const char *name)
{
    if (!device_ready(dev, op->dtype, name) || !query_key_valid(dev, op))
        return 0;
    if (query_key_lanes(op->head_size) <= WARP)
        return query_key_lanes(op->head_size);
    device_fail(dev, CODE_CONFIG, "cuda: %s: a head size of %d; at most %d is possible", name, op->head_size,
                WARP * QUERY_KEY_LANE);
    return 0;
}

static bool whole_packs(const struct query_key *op)
{
    return rows_are_whole(op->head_size / 2, {op->qkv, op->angles, op->gamma_q, op->gamma_k, op->before});
}

template <bool NORM> static void launch_rotate(struct device *dev, const struct query_key *op, int lanes, float sign)
{
    size_t threads = static_cast<size_t>(op->rows) * (op->heads + op->kv_heads) * lanes;
    unsigned blocks = static_cast<unsigned>((threads + THREADS - 1) / THREADS);

    if (blocks == 0 || (!NORM && !op->angles))
        return;
    WITH_TYPE(op->dtype, T,
              WITH_BOOL(whole_packs(op), WHOLE,
                        LAUNCH(dev, (rotate_heads<T, NORM, WHOLE>), blocks, THREADS, 0, *op, lanes, sign)));
}

void cuda_query_key_forward(struct device *dev, const struct query_key *op)
{
    int lanes = lanes_of(dev, op, "query_key_forward");

    if (lanes)
        (op->gamma_q ? launch_rotate<true> : launch_rotate<false>)(dev, op, lanes, 1);
}

void cuda_query_key_backward(struct device *dev, const struct query_key *op)
{
    int lanes = lanes_of(dev, op, "query_key_backward"), size = op->head_size;
    int blocks = query_key_blocks(op->rows, op->heads, size);
    float *partial;

    if (!lanes)
        return;
    if (!op->gamma_q)
        return launch_rotate<false>(dev, op, lanes, -1);
    partial = static_cast<float *>(cuda_workspace(dev, workspace_query_key_backward(op->rows, op->heads, size)));
    if (!partial)
        return;
    WITH_TYPE(op->dtype, T,
              WITH_BOOL(whole_packs(op), WHOLE,
                        LAUNCH(dev, (norm_heads_backward<T, WHOLE>), static_cast<unsigned>(blocks), THREADS, 0, *op,
                               partial, lanes)));
    cuda_add_partial_sums(dev, op->dgamma_q, op->dgamma_k, partial, blocks, size, false);
}

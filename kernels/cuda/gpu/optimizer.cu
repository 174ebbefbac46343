#include "kernels/cuda/gpu/pack.h"

/*
 * kernels.h's AdamW, a pack a thread: four arrays are read once and three, or four, written once. All tensors of a unit
 * are in one launch: most are too small to keep a GPU busy.
 *
 * Every operation is rounded by itself, none fused: so the bits are the CPU's (kernels/cpu/vector/optimizer.c), and an
 * offloaded step gives the same bits as one that is not offloaded.
 */
static inline __device__ float decayed_moment(float beta, float x, float y)
{
    return __fadd_rn(__fmul_rn(beta, x), __fmul_rn(1.0f - beta, y));
}

#define STEPS 16 /* arrays of a launch: the tensors of a unit */

struct steps {
    struct adamw step[STEPS];
    unsigned first[STEPS + 1]; /* block of each array, counted through all; then the number of blocks */
};

template <class T>
static __global__ void __launch_bounds__(FLAT_THREADS) adamw(const __grid_constant__ struct steps steps)
{
    int array = 0;

    while (blockIdx.x >= steps.first[array + 1])
        array++;
    const struct adamw &op = steps.step[array];
    size_t first = (static_cast<size_t>(blockIdx.x - steps.first[array]) * FLAT_THREADS + threadIdx.x) * PACK;
    float inverse1 = __fdiv_rn(1.0f, op.bias1), inverse2 = __fdiv_rn(1.0f, op.bias2);
    int n;

    if (first >= op.count)
        return;
    n = pack_count(first, op.count);
    struct pack g = pack_load(op.grad + first, n), m = pack_load(op.exp_avg + first, n);
    struct pack v = pack_load(op.exp_avg_sq + first, n), p = pack_load(op.param + first, n);
#pragma unroll
    for (int j = 0; j < PACK; j++) {
        float gradient = __fmul_rn(g.v[j], op.grad_scale), step;

        m.v[j] = decayed_moment(op.beta1, m.v[j], gradient);
        v.v[j] = decayed_moment(op.beta2, v.v[j], __fmul_rn(gradient, gradient));
        step = __fdiv_rn(__fmul_rn(m.v[j], inverse1), __fadd_rn(__fsqrt_rn(__fmul_rn(v.v[j], inverse2)), op.eps));
        step = __fadd_rn(step, __fmul_rn(op.weight_decay, p.v[j]));
        p.v[j] = __fsub_rn(p.v[j], __fmul_rn(op.lr, step));
    }
    pack_store(op.exp_avg + first, m, n);
    pack_store(op.exp_avg_sq + first, v, n);
    pack_store(op.param + first, p, n);
    if (op.copy)
        pack_store(static_cast<T *>(op.copy) + first, p, n);
}

/* Of at most STEPS arrays. */
static void step_arrays(struct device *dev, const struct adamw *arrays, int count)
{
    enum dtype dtype = arrays[0].copy ? arrays[0].copy_dtype : DTYPE_F32;
    struct steps steps = {};

    for (int i = 0; i < STEPS; i++) {
        if (i < count)
            steps.step[i] = arrays[i];
        steps.first[i + 1] = steps.first[i] + (i < count ? flat_blocks(arrays[i].count) : 0);
    }
    if (device_ready(dev, dtype, "adamw") && steps.first[STEPS] > 0)
        WITH_TYPE(dtype, T, LAUNCH(dev, adamw<T>, steps.first[STEPS], FLAT_THREADS, 0, steps));
}

void cuda_adamw(struct device *dev, const struct adamw *arrays, int count)
{
    for (int first = 0; first < count; first += STEPS)
        step_arrays(dev, arrays + first, count - first < STEPS ? count - first : STEPS);
}

/*
 * The same sum as the CPU's, bit for bit. In a block of 4096, element i goes to partial sum i % 16 while 16 are left;
 * sums 8 to 15 are added to 0 to 7, those in ascending order, then the last elements in theirs; then blocks in order.
 * A square of an fp32 number is exact in fp64, so a fused multiply-add rounds as a sum does.
 *
 * A block is four threads' work, of four partial sums each: every load is 16 bytes of the 64 that the four take. All
 * arrays are in one launch, so that the small ones do not leave the GPU idle.
 */
#define BLOCK   SQUARES_BLOCK
#define SUMS    16
#define TEAM    4 /* threads for a block */
#define THREADS 128

struct squares_list {
    struct squares array[SQUARES_ARRAYS];
    unsigned first[SQUARES_ARRAYS + 1]; /* block of each array, counted through all; then the number of blocks */
};

template <bool ALIGNED> static inline __device__ float4 load_four(const float *p)
{
    if constexpr (ALIGNED)
        return *reinterpret_cast<const float4 *>(p);
    return make_float4(p[0], p[1], p[2], p[3]);
}

/* A thread's part of [0, whole). Without a branch in the loop, so that several loads are in flight. */
template <bool ALIGNED> static inline __device__ void add_squares(double s[4], const float *x, int member, int whole)
{
#pragma unroll 8
    for (int i = 4 * member; i < whole; i += SUMS) {
        float4 v = load_four<ALIGNED>(x + i);

        s[0] += static_cast<double>(v.x) * v.x;
        s[1] += static_cast<double>(v.y) * v.y;
        s[2] += static_cast<double>(v.z) * v.z;
        s[3] += static_cast<double>(v.w) * v.w;
    }
}

/* Partial sums 0 to 3 of the team's thread 0, then of thread 1: the first eight in order, each with the one 8 further
 * on. All lanes call. */
static inline __device__ double team_sum(const double s[4])
{
    double far[4], total = 0;

#pragma unroll
    for (int j = 0; j < 4; j++)
        far[j] = s[j] + __shfl_down_sync(FULL_WARP, s[j], 2, TEAM);
#pragma unroll
    for (int j = 0; j < 4; j++)
        total += far[j];
    total = __shfl_sync(FULL_WARP, total, 0, TEAM); /* thread 1 goes on where thread 0 ended */
#pragma unroll
    for (int j = 0; j < 4; j++)
        total += far[j];
    return __shfl_sync(FULL_WARP, total, 1, TEAM);
}

static __global__ void __launch_bounds__(THREADS)
    block_squares(double *sums, const __grid_constant__ struct squares_list list, int arrays)
{
    unsigned block = (blockIdx.x * THREADS + threadIdx.x) / TEAM;
    int member = static_cast<int>(threadIdx.x % TEAM), n = 0, whole, array = 0;
    double s[4] = {0, 0, 0, 0}, total;
    const float *x = NULL;

    if (block < list.first[arrays]) {
        while (block >= list.first[array + 1])
            array++;
        size_t first = static_cast<size_t>(block - list.first[array]) * BLOCK, left = list.array[array].count - first;

        x = list.array[array].x + first;
        n = left < BLOCK ? static_cast<int>(left) : BLOCK;
    }
    whole = n / SUMS * SUMS;
    if (is_aligned16(x))
        add_squares<true>(s, x, member, whole);
    else
        add_squares<false>(s, x, member, whole);
    total = team_sum(s);
    for (int i = whole; i < n; i++) {
        double rest = x[i];

        total += rest * rest;
    }
    if (member == 0 && n > 0)
        sums[block] = total;
}

#define TOTAL_THREADS 256
#define EACH          8 /* sums that a thread fetches at once */
#define TILE          (TOTAL_THREADS * EACH)

static inline __device__ void fetch_sums(double coming[EACH], const double *sums, unsigned begin, unsigned end)
{
#pragma unroll
    for (unsigned i = 0; i < EACH; i++)
        if (begin + i * TOTAL_THREADS + threadIdx.x < end)
            coming[i] = sums[begin + i * TOTAL_THREADS + threadIdx.x];
}

/* A block an array. The order is that of the CPU, so one thread adds; all fetch what it adds next meanwhile. */
static __global__ void __launch_bounds__(TOTAL_THREADS)
    total_squares(double *totals, const double *sums, const __grid_constant__ struct squares_list list)
{
    __shared__ double tile[TILE];
    unsigned begin = list.first[blockIdx.x], end = list.first[blockIdx.x + 1];
    double coming[EACH] = {}, total = 0;

    fetch_sums(coming, sums, begin, end);
    for (; begin < end; begin += TILE) {
        unsigned n = end - begin < TILE ? end - begin : TILE;

        __syncthreads(); /* the tile before is added */
#pragma unroll
        for (unsigned i = 0; i < EACH; i++)
            tile[i * TOTAL_THREADS + threadIdx.x] = coming[i];
        __syncthreads();
        fetch_sums(coming, sums, begin + TILE, end);
        if (threadIdx.x == 0)
#pragma unroll 32
            for (unsigned i = 0; i < n; i++)
                total += tile[i];
    }
    if (threadIdx.x == 0)
        totals[blockIdx.x] = total;
}

/* Of at most SQUARES_ARRAYS arrays. */
static void sum_arrays(struct device *dev, double *result, const struct squares *arrays, int count)
{
    unsigned teams = THREADS / TEAM;
    struct squares_list list = {};
    double *totals, host[SQUARES_ARRAYS] = {};

    for (int i = 0; i < count; i++) {
        list.array[i] = arrays[i];
        list.first[i + 1] = list.first[i] + static_cast<unsigned>((arrays[i].count + BLOCK - 1) / BLOCK);
    }
    if (!device_ready(dev, DTYPE_F32, "sum_of_squares") || list.first[count] == 0)
        return;
    totals = static_cast<double *>(cuda_workspace(dev, workspace_sum_of_squares(list.first[count])));
    if (!totals)
        return;
    LAUNCH(dev, block_squares, (list.first[count] + teams - 1) / teams, THREADS, 0, totals + SQUARES_ARRAYS, list,
           count);
    LAUNCH(dev, total_squares, static_cast<unsigned>(count), TOTAL_THREADS, 0, totals, totals + SQUARES_ARRAYS, list);
    cuda_fetch(dev, host, totals, static_cast<size_t>(count) * sizeof *host);
    for (int i = 0; i < count; i++)
        *result += host[i];
}

void cuda_sum_of_squares(struct device *dev, double *result, const struct squares *arrays, int count)
{
    *result = 0;
    for (int first = 0; first < count; first += SQUARES_ARRAYS)
        sum_arrays(dev, result, arrays + first, count - first < SQUARES_ARRAYS ? count - first : SQUARES_ARRAYS);
}

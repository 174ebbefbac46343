#include "kernels/cuda/gpu/pack.h"
#include "kernels/cuda/cuda.h"

/*
 * kernels.h's AdamW, a pack a thread: four arrays are read once and three, or four, written once.
 *   g = grad * grad_scale;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
 *   p -= lr * ( m/bias1 / (sqrt(v/bias2) + eps) + weight_decay * p )
 * Every operation is rounded by itself, none fused: so the bits are the CPU's (kernels/cpu/vector/optimizer.c), and an
 * offloaded step gives the same bits as one that is not offloaded.
 */
static inline __device__ float decayed_moment(float beta, float x, float y)
{
    return __fadd_rn(__fmul_rn(beta, x), __fmul_rn(1.0f - beta, y));
}

template <class T> static __global__ void __launch_bounds__(FLAT_THREADS) adamw(struct adamw op)
{
    size_t first = flat_first();
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

void cuda_adamw(struct device *dev, const struct adamw *op)
{
    if (!device_ready(dev, op->copy ? op->copy_dtype : DTYPE_F32, "adamw") || op->count == 0)
        return;
    WITH_TYPE(op->copy ? op->copy_dtype : DTYPE_F32, T,
              LAUNCH(dev, adamw<T>, flat_blocks(op->count), FLAT_THREADS, 0, *op));
}

/*
 * The same sum as the CPU's, bit for bit. In a block of 4096, element i goes to partial sum i % 16 while 16 are left;
 * sums 8 to 15 are added to 0 to 7, those in ascending order, then the last elements in theirs; then blocks in order.
 * A square of an fp32 number is exact in fp64, so a fused multiply-add rounds as a sum does.
 *
 * A block is four threads' work, of four partial sums each: every load is 16 bytes of the 64 that the four take.
 */
#define BLOCK   SQUARES_BLOCK
#define SUMS    16
#define TEAM    4 /* threads for a block */
#define THREADS 128

static inline __device__ float4 load_four(const float *p)
{
    if (is_aligned16(p))
        return *reinterpret_cast<const float4 *>(p);
    return make_float4(p[0], p[1], p[2], p[3]);
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

static __global__ void __launch_bounds__(THREADS) block_squares(double *sums, const float *x, size_t count)
{
    size_t block = (static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x) / TEAM, first = block * BLOCK;
    int member = static_cast<int>(threadIdx.x % TEAM);
    int n = first >= count ? 0 : count - first < BLOCK ? static_cast<int>(count - first) : BLOCK;
    int whole = n / SUMS * SUMS;
    double s[4] = {0, 0, 0, 0}, total;

#pragma unroll 8
    for (int i = 4 * member; i < whole; i += SUMS) {
        float4 v = load_four(x + first + i);

        s[0] += static_cast<double>(v.x) * v.x;
        s[1] += static_cast<double>(v.y) * v.y;
        s[2] += static_cast<double>(v.z) * v.z;
        s[3] += static_cast<double>(v.w) * v.w;
    }
    total = team_sum(s);
    for (int i = whole; i < n; i++) {
        double rest = x[first + i];

        total += rest * rest;
    }
    if (member == 0 && n > 0)
        sums[block] = total;
}

/* One warp: loads together, and adds what the lanes have in their order, while the next are on their way. */
static __global__ void total_squares(double *total, const double *sums, size_t blocks)
{
    double sum = 0, coming = threadIdx.x < blocks ? sums[threadIdx.x] : 0;

    for (size_t first = 0; first < blocks; first += WARP) {
        size_t left = blocks - first, after = first + WARP + threadIdx.x;
        double mine = coming;

        coming = after < blocks ? sums[after] : 0;

#pragma unroll
        for (int lane = 0; lane < WARP; lane++) {
            double next = __shfl_sync(FULL_WARP, mine, lane);

            if (static_cast<size_t>(lane) < left)
                sum += next;
        }
    }
    if (threadIdx.x == 0)
        *total = sum;
}

void cuda_sum_of_squares(struct device *dev, double *result, const float *x, size_t count)
{
    size_t blocks = (count + BLOCK - 1) / BLOCK, teams = THREADS / TEAM;
    double *sums;

    *result = 0;
    if (!device_ready(dev, DTYPE_F32, "sum_of_squares") || count == 0)
        return;
    sums = static_cast<double *>(cuda_workspace(dev, workspace_sum_of_squares(count)));
    if (!sums)
        return;
    LAUNCH(dev, block_squares, static_cast<unsigned>((blocks + teams - 1) / teams), THREADS, 0, sums + 1, x, count);
    LAUNCH(dev, total_squares, 1, WARP, 0, sums, sums + 1, blocks);
    cuda_fetch(dev, result, sums, sizeof *result);
}

#include "kernels/cuda/operations.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/workspace.h"

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

static inline __device__ float4 load4(const float *p)
{
    if (aligned16(p))
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
        float4 v = load4(x + first + i);

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

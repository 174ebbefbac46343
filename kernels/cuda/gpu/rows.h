/*
 * rows.h - how threads share a matrix of rows, for the kernels that look at each row as a whole.
 *
 * If a kernel sums nothing over a row, one warp handles a row, and each lane one pack of columns at a time. A block has
 * ROW_WARPS rows. If it sums over a row, the row is held in registers meanwhile: `packs` packs (1 to MOST_PACKS) for
 * each thread of `warps` warps. With one warp per row, a block has ROW_WARPS rows and needs no barrier; otherwise it
 * has one row.
 */
#ifndef MUSTER_KERNELS_CUDA_GPU_ROWS_H
#define MUSTER_KERNELS_CUDA_GPU_ROWS_H

#include "kernels/cuda/gpu/pack.h"

#define ROW_WARPS   4
#define MOST_PACKS  4
#define MOST_WARPS  16
#define ROW_THREADS (MOST_WARPS * WARP)

struct row_shape {
    int packs, warps;
};

/* The fewest warps, and then the fewest packs. */
static inline struct row_shape row_shape(int cols)
{
    int warp_packs = (cols + WARP * PACK - 1) / (WARP * PACK);
    int warps = (warp_packs + MOST_PACKS - 1) / MOST_PACKS;

    return {(warp_packs + warps - 1) / warps, warps};
}

/* false: rows so long that they do not fit, and the device has failed. */
static inline bool row_fits(struct device *dev, int cols, const char *operation)
{
    if (cols >= 1 && row_shape(cols).warps <= MOST_WARPS)
        return true;
    device_fail(dev, CODE_CONFIG, "cuda: %s: rows of %d; from 1 to %d is possible", operation, cols,
                MOST_WARPS * MOST_PACKS * WARP * PACK);
    return false;
}

/* Runs the statement with PACKS a compile-time constant equal to `packs`. */
#define WITH_PACKS(packs, PACKS, ...)                                                                                  \
    do {                                                                                                               \
        if ((packs) == 1)                                                                                              \
            WITH_CONSTANT(int, PACKS, 1, __VA_ARGS__)                                                                  \
        else if ((packs) == 2)                                                                                         \
            WITH_CONSTANT(int, PACKS, 2, __VA_ARGS__)                                                                  \
        else if ((packs) == 3)                                                                                         \
            WITH_CONSTANT(int, PACKS, 3, __VA_ARGS__)                                                                  \
        else                                                                                                           \
            WITH_CONSTANT(int, PACKS, 4, __VA_ARGS__)                                                                  \
    } while (0)

/* Rows of a block, and its threads. */
static inline __host__ __device__ int rows_of_block(int warps)
{
    return warps == 1 ? ROW_WARPS : 1;
}

static inline unsigned row_threads(int warps)
{
    return static_cast<unsigned>(warps * rows_of_block(warps) * WARP);
}

static inline unsigned grid_of_rows(int rows, int warps)
{
    return static_cast<unsigned>((rows + rows_of_block(warps) - 1) / rows_of_block(warps));
}

/* The block's row that this thread is of, and the column of its pack number p. */
static inline __device__ int row_in_block(int warps)
{
    return warps == 1 ? static_cast<int>(threadIdx.x) / WARP : 0;
}

static inline __device__ int row_column(int p, int warps)
{
    int width = warps * WARP;

    return (p * width + static_cast<int>(threadIdx.x) % width) * PACK;
}

/* ---- sums and maxima --------------------------------------------------------------------------------------------- */

/* Over a warp, or over the warps that share a row: always in the same order, whatever the order in which threads
 * run. */

/* Every lane gets the sum: by halves, so that all lanes add the same pairs. */
static inline __device__ float warp_sum(float x)
{
#pragma unroll
    for (int bits = WARP / 2; bits > 0; bits /= 2)
        x += __shfl_xor_sync(FULL_WARP, x, bits);
    return x;
}

/* Every lane gets the greatest, of numbers that are no NaN. */
static inline __device__ float warp_max(float x)
{
#pragma unroll
    for (int bits = WARP / 2; bits > 0; bits /= 2) {
        float other = __shfl_xor_sync(FULL_WARP, x, bits);

        x = other > x ? other : x;
    }
    return x;
}

/*
 * Two sums at once, over `warps` warps: over the caller's own if that is 1, and else over all of the block, which must
 * have that many and all call. Every thread gets them. scratch [warps] is shared memory for nothing else.
 */
static inline __device__ float2 row_sums(float2 x, float2 *scratch, int warps)
{
    float2 total = make_float2(0, 0);

    x = make_float2(warp_sum(x.x), warp_sum(x.y));
    if (warps == 1)
        return x;
    __syncthreads(); /* some may still read what the call before left */
    if (threadIdx.x % WARP == 0)
        scratch[threadIdx.x / WARP] = x;
    __syncthreads();
    for (int i = 0; i < warps; i++)
        total = make_float2(total.x + scratch[i].x, total.y + scratch[i].y);
    return total;
}

static inline __device__ float row_sum(float x, float2 *scratch, int warps)
{
    return row_sums(make_float2(x, 0), scratch, warps).x;
}

#endif

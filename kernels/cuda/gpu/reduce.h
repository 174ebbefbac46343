/*
 * reduce.h - sums and maxima over a warp, or over the warps that share a row: always in the same order, whatever the
 * order in which threads run.
 */
#ifndef MUSTER_KERNELS_CUDA_GPU_REDUCE_H
#define MUSTER_KERNELS_CUDA_GPU_REDUCE_H

#include "kernels/cuda/gpu/language.h"

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

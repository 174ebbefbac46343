/*
 * reduce.h - sums and maxima over a warp, or over several: always in the same order, whatever the order of threads.
 */
#ifndef MUSTER_KERNELS_CUDA_REDUCE_H
#define MUSTER_KERNELS_CUDA_REDUCE_H

#include "kernels/cuda/language.h"

/* Every lane gets the sum: by halves, so that all lanes add in an order that commutes to the same bits. */
static inline __device__ float warp_sum(float x)
{
#pragma unroll
    for (int bits = WARP / 2; bits > 0; bits /= 2)
        x += __shfl_xor_sync(FULL_WARP, x, bits);
    return x;
}

/*
 * The sum over the `warps` warps that call, all of a block, for every thread of them; scratch [warps] is shared memory
 * that nobody else uses between this call's two barriers. With one warp a shuffle is all, and scratch is not looked at.
 */
static inline __device__ float block_sum(float x, float *scratch, int warps)
{
    float total = 0;

    x = warp_sum(x);
    if (warps == 1)
        return x;
    __syncthreads(); /* who still reads what an earlier call left */
    if (threadIdx.x % WARP == 0)
        scratch[threadIdx.x / WARP] = x;
    __syncthreads();
    for (int i = 0; i < warps; i++)
        total += scratch[i];
    return total;
}

#endif

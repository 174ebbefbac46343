/*
 * language.h - CUDA C++ for the sources of this folder. It is CUDA's own headers and the macros and functions below.
 * The tests' emulator has a file of the same name that defines the same names in plain C++, so that kernels can be
 * tested without a GPU. A kernel may use only what both files have.
 *
 *     unsigned t = thread_anew(), b = block_anew();      // threadIdx.x and blockIdx.x, read again: the compiler
 *                                                        // keeps no register for them between two uses
 *
 * Shuffles and votes are always of the whole warp (FULL_WARP). A block is a whole number of warps.
 *
 *     DYNAMIC_SHARED(float, tile);                       // the block's dynamic shared memory, 128-byte aligned
 *     LAUNCH(dev, (scale<float, 4>), blocks, 256, shared_bytes, x, count);
 *
 * LAUNCH enqueues a kernel on the device's stream, allows it the shared memory it asks for, and fails the device with
 * the kernel's name if it cannot be launched. On a device that has failed it does nothing. A grid must not be empty.
 */
#ifndef MUSTER_KERNELS_CUDA_GPU_LANGUAGE_H
#define MUSTER_KERNELS_CUDA_GPU_LANGUAGE_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/cuda.h"

#define FULL_WARP 0xffffffffu
#define WARP      32

#define DYNAMIC_SHARED(type, name)                                                                                     \
    extern __shared__ __align__(128) unsigned char dynamic_shared_bytes[];                                             \
    type *name = reinterpret_cast<type *>(dynamic_shared_bytes)

#define LAUNCH(dev, kernel, grid, block, shared_bytes, ...)                                                            \
    do {                                                                                                               \
        if (launch_ready(dev, reinterpret_cast<const void *>(kernel), shared_bytes, #kernel)) {                        \
            (kernel)<<<grid, block, shared_bytes, device_cuda(dev)->stream>>>(__VA_ARGS__);                            \
            cuda_ok(dev, static_cast<int>(cudaGetLastError()), #kernel);                                               \
        }                                                                                                              \
    } while (0)

static __device__ inline unsigned thread_anew(void)
{
    unsigned thread;

    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

static __device__ inline unsigned block_anew(void)
{
    unsigned block;

    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return block;
}

/* CUDA requires a request for more than 48 KiB of shared memory, __shared__ variables included; those are below 8 KiB.
 * One request per launch costs less than to remember each kernel. */
static inline bool launch_ready(struct device *dev, const void *kernel, size_t shared_bytes, const char *name)
{
    if (dev->failed)
        return false;
    if (shared_bytes <= (static_cast<size_t>(40) << 10))
        return true;
    return cuda_ok(dev,
                   static_cast<int>(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                         static_cast<int>(shared_bytes))),
                   name);
}

#endif

/*
 * mma.h - the tensor cores of sm_80 and later, as functions: 16-bit products with fp32 sums, the loads that bring their
 * operands, and copies into shared memory that go on by themselves.
 *
 * A "fragment" is a warp's matrix, spread over its lanes' registers as the PTX ISA says under "Matrix fragments for
 * mma.m16n8k16" and "ldmatrix". With group = lane / 4 and t = lane % 4, and two 16-bit elements a register, the one
 * with the lower index in the low half:
 *
 *   A [16 rows, 16 k]   a[0]: row group,      k 2t, 2t + 1        a[2]: row group,      k 2t + 8, 2t + 9
 *                       a[1]: row group + 8,  k 2t, 2t + 1        a[3]: row group + 8,  k 2t + 8, 2t + 9
 *   B [16 k, 8 columns] b[0]: k 2t, 2t + 1,  column group         b[1]: k 2t + 8, 2t + 9,  column group
 *   C [16 rows, 8 columns] fp32
 *                       c[0], c[1]: row group,      columns 2t, 2t + 1
 *                       c[2], c[3]: row group + 8,  columns 2t, 2t + 1
 *
 * So two C's side by side, rounded, are an A: what one product has made is the next one's operand without moving. All
 * lanes of a warp call these together (copies excepted).
 *
 * The tests' emulator has a file of the same name, with the same functions in plain C++.
 */
#ifndef MUSTER_KERNELS_CUDA_GPU_MMA_H
#define MUSTER_KERNELS_CUDA_GPU_MMA_H

#include "kernels/cuda/gpu/language.h"

/* c += a b. T is DTYPE_BF16 or DTYPE_F16. */
template <enum dtype T> static __device__ inline void mma_16816(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    if constexpr (T == DTYPE_BF16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ inline uint32_t mma_shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/*
 * Four 8 x 8 matrices of 16-bit elements from shared memory. Lane l says where row l % 8 of matrix l / 8 begins (16
 * bytes, aligned). r[i] of a lane becomes elements 2t and 2t + 1 of row `group` of matrix i; with _trans, of the
 * transposed matrix.
 */
static __device__ inline void ldmatrix_x4(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(mma_shared_address(row))
                 : "memory");
}

static __device__ inline void ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(mma_shared_address(row))
                 : "memory");
}

/*
 * BYTES (16 or 4) from global to shared memory, both aligned so, or zeros when not `valid`: then `global` is not read,
 * and may point anywhere. Copies belong to the calling thread: commit closes a group of them, wait<N> returns
 * when at most the N youngest groups are still on their way. Other threads see them after a barrier.
 */
template <int BYTES> static __device__ inline void cp_async(void *shared, const void *global, bool valid)
{
    int bytes = valid ? BYTES : 0;

    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(mma_shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(bytes)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     :
                     : "r"(mma_shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(bytes)
                     : "memory");
}

static __device__ inline void cp_async_commit(void)
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}

template <int N> static __device__ inline void cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
}

/* Two numbers rounded to T (to nearest, ties to even), the first in the low half. */
template <enum dtype T> static __device__ inline uint32_t mma_pack(float low, float high)
{
    uint32_t packed;

    if constexpr (T == DTYPE_BF16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

/* 2^x in one instruction: good to 2 units in the last place; what would be denormal is 0. */
static __device__ inline float mma_exp2(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The element in the low half, widened: exact. The other one is mma_low<T>(packed >> 16). */
template <enum dtype T> static __device__ inline float mma_low(uint32_t packed)
{
    float x;

    if constexpr (T == DTYPE_BF16)
        return __uint_as_float(packed << 16);
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((uint16_t)packed));
    return x;
}

#endif

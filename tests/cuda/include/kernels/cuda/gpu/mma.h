/*
 * mma.h - the functions of kernels/cuda/gpu/mma.h in plain C++, for the emulator: one fiber per GPU thread, one block
 * after the other. The emulated build finds this file first, by -I. Written from the PTX ISA's fragment layouts alone,
 * not from the kernels.
 *
 * cp_async copies as late as the rules allow, in cp_async_wait: a kernel that reads too early finds the old contents.
 */
#ifndef MUSTER_KERNELS_CUDA_GPU_MMA_H
#define MUSTER_KERNELS_CUDA_GPU_MMA_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/dtype.h"
#include "kernels/cuda/gpu/language.h"
#include "tests/cuda/emulator.h"

#define MMA_THREADS 1024
#define MMA_COPIES  256 /* pending at once in one thread */

struct mma_lane {
    uint32_t a[4], b[2];
    const uint16_t *row;
};

struct mma_copy {
    void *to;
    const void *from; /* NULL: zeros */
    int bytes;
    unsigned group;
};

struct mma_thread {
    unsigned groups; /* committed */
    int copies;
    struct mma_copy copy[MMA_COPIES];
};

inline struct mma_thread mma_threads[MMA_THREADS];

static inline int mma_thread_index(void)
{
    return (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}

/* The operands of this warp's lanes. */
struct mma_warp {
    const unsigned char *slots;

    const struct mma_lane &operator[](int lane) const
    {
        return *(const struct mma_lane *)(slots + (size_t)lane * EMULATOR_SLOT);
    }
};

static inline struct mma_warp mma_exchange(const struct mma_lane *mine, const char *operation)
{
    return {emulator_exchange(mine, sizeof *mine, {operation, __FILE__, __LINE__})};
}

template <enum dtype T> static inline float mma_low(uint32_t packed)
{
    return T == DTYPE_BF16 ? bf16_to_float((uint16_t)packed) : f16_to_float((uint16_t)packed);
}

template <enum dtype T> static inline uint32_t mma_pack(float low, float high)
{
    if (T == DTYPE_BF16)
        return (uint32_t)bf16_of_float(high) << 16 | bf16_of_float(low);
    return (uint32_t)f16_of_float(high) << 16 | f16_of_float(low);
}

static inline float mma_exp2(float x)
{
    float y = exp2f(x);

    return y < 0x1p-126f ? 0 : y;
}

/* Element (row, k) of A and (k, column) of B, from the lane that holds it; k % 8 / 2 is the lane's t. */
template <enum dtype T> static inline float mma_a(struct mma_warp warp, int row, int k)
{
    return mma_low<T>(warp[row % 8 * 4 + k % 8 / 2].a[k / 8 * 2 + row / 8] >> k % 2 * 16);
}

template <enum dtype T> static inline float mma_b(struct mma_warp warp, int k, int column)
{
    return mma_low<T>(warp[column * 4 + k % 8 / 2].b[k / 8] >> k % 2 * 16);
}

template <enum dtype T> static inline void mma_16816(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    struct mma_lane mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, NULL};
    struct mma_warp warp = mma_exchange(&mine, "mma_16816");
    int lane = mma_thread_index() % 32, group = lane / 4, t = lane % 4;

    for (int k = 0; k < 16; k++) {
        float low = mma_a<T>(warp, group, k), high = mma_a<T>(warp, group + 8, k);
        float left = mma_b<T>(warp, k, 2 * t), right = mma_b<T>(warp, k, 2 * t + 1);

        c[0] += low * left;
        c[1] += low * right;
        c[2] += high * left;
        c[3] += high * right;
    }
}

static inline struct mma_warp mma_rows(const void *row)
{
    struct mma_lane mine = {{0}, {0}, (const uint16_t *)row};

    if ((uintptr_t)row % 16 != 0)
        abort();
    return mma_exchange(&mine, "ldmatrix");
}

static inline void ldmatrix_x4(uint32_t r[4], const void *row)
{
    struct mma_warp warp = mma_rows(row);
    int lane = mma_thread_index() % 32, group = lane / 4, t = lane % 4;

    for (int i = 0; i < 4; i++)
        r[i] = warp[8 * i + group].row[2 * t] | (uint32_t)warp[8 * i + group].row[2 * t + 1] << 16;
}

static inline void ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
    struct mma_warp warp = mma_rows(row);
    int lane = mma_thread_index() % 32, group = lane / 4, t = lane % 4;

    for (int i = 0; i < 4; i++)
        r[i] = warp[8 * i + 2 * t].row[group] | (uint32_t)warp[8 * i + 2 * t + 1].row[group] << 16;
}

template <int BYTES> static inline void cp_async(void *shared, const void *global, bool valid)
{
    struct mma_thread *thread = &mma_threads[mma_thread_index()];

    if ((uintptr_t)shared % BYTES != 0 || (uintptr_t)global % BYTES != 0 || thread->copies == MMA_COPIES)
        abort();
    thread->copy[thread->copies++] = (struct mma_copy){shared, valid ? global : NULL, BYTES, thread->groups};
}

static inline void cp_async_commit(void)
{
    mma_threads[mma_thread_index()].groups++;
}

template <int N> static inline void cp_async_wait(void)
{
    struct mma_thread *thread = &mma_threads[mma_thread_index()];
    int left = 0;

    for (int i = 0; i < thread->copies; i++) {
        struct mma_copy copy = thread->copy[i];

        if ((int)(thread->groups - copy.group) <= N)
            thread->copy[left++] = copy;
        else if (copy.from)
            memcpy(copy.to, copy.from, (size_t)copy.bytes);
        else
            memset(copy.to, 0, (size_t)copy.bytes);
    }
    thread->copies = left;
}

#endif

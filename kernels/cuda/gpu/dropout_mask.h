/*
 * dropout_mask.h - the mask of kernels.h's struct dropout, a pack at a time: element i of the tensor is kept when the
 * (i % 8)th 16-bit half of Philox block i / 8 is at least the threshold. A pack that begins at a multiple of 8 takes
 * one block, any other two.
 */
#ifndef MUSTER_KERNELS_CUDA_GPU_DROPOUT_MASK_H
#define MUSTER_KERNELS_CUDA_GPU_DROPOUT_MASK_H

#include "kernels/cuda/gpu/pack.h"

/* What kernels take by value; made of struct dropout on the host. */
struct mask {
    struct philox_stream stream;
    uint64_t first;
    uint32_t threshold; /* 0: nothing is dropped, and the rest is not looked at */
    float scale;        /* of what is kept */
};

static inline struct mask mask_of(const struct dropout *dropout)
{
    struct mask mask = {};

    if (dropout->p <= 0)
        return mask;
    mask.stream = dropout->stream;
    mask.first = dropout->first;
    mask.threshold = dropout_threshold(dropout->p);
    mask.scale = dropout_scale(dropout->p);
    return mask;
}

static inline __device__ uint4 mask_block(const struct philox_stream &stream, uint64_t block)
{
    uint32_t out[4];

    philox_block(stream, block, out);
    return make_uint4(out[0], out[1], out[2], out[3]);
}

/* Halves [shift, shift + 8) of two blocks, shift in 1 to 7. By steps of 4, 2 and 1, so that no register is indexed by a
 * number that the compiler does not know. */
static inline __device__ uint4 mask_shift(uint4 a, uint4 b, unsigned shift)
{
    if (shift & 4) {
        a = make_uint4(a.z, a.w, b.x, b.y);
        b = make_uint4(b.z, b.w, 0, 0);
    }
    if (shift & 2) {
        a = make_uint4(a.y, a.z, a.w, b.x);
        b = make_uint4(b.y, b.z, b.w, 0);
    }
    if (shift & 1)
        a = make_uint4(__funnelshift_r(a.x, a.y, 16), __funnelshift_r(a.y, a.z, 16), __funnelshift_r(a.z, a.w, 16),
                       __funnelshift_r(a.w, b.x, 16));
    return a;
}

/* x times the mask of the elements from `element` of the operand on. */
static inline __device__ void mask_apply(const struct mask &mask, struct pack &x, uint64_t element)
{
    uint64_t i = mask.first + element;
    unsigned shift = static_cast<unsigned>(i % 8);
    uint4 bits;

    if (mask.threshold == 0)
        return;
    bits = mask_block(mask.stream, i / 8);
    if (shift)
        bits = mask_shift(bits, mask_block(mask.stream, i / 8 + 1), shift);
    const uint32_t word[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int j = 0; j < PACK; j++)
        x.v[j] = (word[j / 2] >> (j % 2 * 16) & 0xffff) >= mask.threshold ? x.v[j] * mask.scale : 0.0f;
}

#endif

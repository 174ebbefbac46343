/*
 * vector.h - what the files of this folder share: elements of any dtype, loaded as a vector of fp32 and stored with one
 * rounding; and the folder's functions, under this instruction set's names.
 *
 * An operation is written once, in always-inlined functions that take the type as an argument T, and
 *
 *     WITH_DTYPE(op->dtype, T, sum_row(T, y, x, n));
 *
 * compiles them for each type, T being a constant in each copy. Positions are in elements.
 *
 * bf16 is the upper half of an fp32: widening is a shift. (AVX512-BF16's own rounding takes denormals for 0, so the
 * results would depend on the processor; we shift everywhere.) fp16 goes through F16C or AVX-512 where the instruction
 * set has them, and else through arithmetic that yields the same bits. Rounding is to nearest even; a NaN stays a NaN,
 * with the quiet bit set.
 */
#ifndef MUSTER_KERNELS_CPU_VECTOR_VECTOR_H
#define MUSTER_KERNELS_CPU_VECTOR_VECTOR_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector/vec.h"

#define INLINE __attribute__((always_inline)) static inline

#define TYPED_CASE(type, T, ...)                                                                                       \
    case type: {                                                                                                       \
        const enum dtype T = type;                                                                                     \
        __VA_ARGS__;                                                                                                   \
        break;                                                                                                         \
    }
#define WITH_DTYPE(type, T, ...)                                                                                       \
    do {                                                                                                               \
        switch (type) {                                                                                                \
            TYPED_CASE(DTYPE_F32, T, __VA_ARGS__)                                                                      \
            TYPED_CASE(DTYPE_BF16, T, __VA_ARGS__)                                                                     \
            TYPED_CASE(DTYPE_F16, T, __VA_ARGS__)                                                                      \
        }                                                                                                              \
    } while (0)

#define CHUNK 4096 /* elements of a flat array that a thread takes at once: small enough to be spread evenly */

typedef uint16_t halves __attribute__((vector_size(LANES * 2)));
typedef uint16_t halves_unaligned __attribute__((vector_size(LANES * 2), aligned(2), may_alias));

INLINE uvec halves_widen(const uint16_t *p)
{
    return __builtin_convertvector(*(const halves_unaligned *)p, uvec);
}

INLINE vec bf16_widen(const uint16_t *p)
{
    return (vec)(halves_widen(p) << 16);
}

INLINE halves bf16_narrow(vec x)
{
    uvec bits = (uvec)x;
    uvec rounded = bits + 0x7fff + ((bits >> 16) & 1);

    return __builtin_convertvector((uvec)vec_select(x == x, (vec)rounded, (vec)(bits | 0x400000)) >> 16, halves);
}

#if defined(__AVX512F__)
INLINE vec f16_widen(const uint16_t *p)
{
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

INLINE halves f16_narrow(vec x)
{
    return (halves)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#elif defined(__F16C__) && defined(__AVX2__)
INLINE vec f16_widen(const uint16_t *p)
{
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

INLINE halves f16_narrow(vec x)
{
    return (halves)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#else
/* The bits, moved to where fp32 has them, are a number 2^112 times too small: denormals too. Infinities and NaNs lack
 * the upper bits of their exponent then. */
INLINE vec f16_widen(const uint16_t *p)
{
    uvec h = halves_widen(p), moved = (h & 0x7fff) << 13, sign = (h & 0x8000) << 16;
    uvec special = moved | 0x7f800000u | (uvec)(((moved & 0x7fffff) != 0) & 0x400000);

    return (vec)((uvec)vec_select((ivec)(moved >= 0x0f800000u), (vec)special, (vec)moved * 0x1p112f) | sign);
}

/* A normal result is rounded in the integer bits, where a carry runs into the exponent as it should, up to infinity;
 * for a denormal one, adding 1/2 makes the processor round where that number's last bit is 2^-24. */
INLINE halves f16_narrow(vec x)
{
    uvec sign = ((uvec)x >> 16) & 0x8000, bits = (uvec)x & 0x7fffffff;
    uvec normal = (bits - (112u << 23) + 0xfff + ((bits >> 13) & 1)) >> 13;
    uvec denormal = (uvec)((vec)bits + 0.5f) - 0x3f000000u;
    uvec nan = 0x7e00 | ((bits >> 13) & 0x3ff);
    vec result = vec_select((ivec)(bits < (113u << 23)), (vec)denormal, (vec)normal);

    result = vec_select((ivec)(bits >= (143u << 23)), (vec)((uvec){0} + 0x7c00), result);
    result = vec_select((ivec)(bits > 0x7f800000u), (vec)nan, result);
    return __builtin_convertvector((uvec)result | sign, halves);
}
#endif

INLINE void *typed_at(enum dtype T, const void *p, size_t index)
{
    return (char *)p + index * dtype_size(T);
}

/* Elements [i, i + LANES) of p. */
INLINE vec typed_load(enum dtype T, const void *p, size_t i)
{
    if (T == DTYPE_F32)
        return vec_load((const float *)p + i);
    return T == DTYPE_BF16 ? bf16_widen((const uint16_t *)p + i) : f16_widen((const uint16_t *)p + i);
}

INLINE void typed_store(enum dtype T, void *p, size_t i, vec x)
{
    if (T == DTYPE_F32)
        vec_store((float *)p + i, x);
    else
        *(halves_unaligned *)((uint16_t *)p + i) = T == DTYPE_BF16 ? bf16_narrow(x) : f16_narrow(x);
}

/* The first `count` (1 to LANES) of them; the other lanes are zero, and nothing beyond is read or written. */
INLINE vec typed_load_part(enum dtype T, const void *p, size_t i, size_t count)
{
    uint16_t lane[LANES] = {0};

    if (T == DTYPE_F32)
        return vec_load_part((const float *)p + i, count);
    if (count == LANES)
        return typed_load(T, p, i);
    memcpy(lane, (const uint16_t *)p + i, count * sizeof *lane);
    return typed_load(T, lane, 0);
}

INLINE void typed_store_part(enum dtype T, void *p, size_t i, vec x, size_t count)
{
    uint16_t lane[LANES];

    if (T == DTYPE_F32)
        vec_store_part((float *)p + i, x, count);
    else if (count == LANES)
        typed_store(T, p, i, x);
    else {
        typed_store(T, lane, 0, x);
        memcpy((uint16_t *)p + i, lane, count * sizeof *lane);
    }
}

/* x as it is after being stored. */
INLINE vec typed_round(enum dtype T, vec x)
{
    uint16_t lane[LANES];

    if (T == DTYPE_F32)
        return x;
    typed_store(T, lane, 0, x);
    return typed_load(T, lane, 0);
}

/* y[n] += x[n] */
INLINE void typed_add_to(enum dtype T, float *y, const void *x, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);

        vec_store_part(y + i, vec_load_part(y + i, count) + typed_load_part(T, x, i, count), count);
    }
}

/* One element. */
INLINE float typed_get(enum dtype T, const void *p, size_t i)
{
    return typed_load_part(T, p, i, 1)[0];
}

INLINE void typed_set(enum dtype T, void *p, size_t i, float x)
{
    typed_store_part(T, p, i, vec_all(x), 1);
}

/* ---- the functions of this folder -------------------------------------------------------------------------------- */

/* The operations, each as kernels.h declares it; table.c gathers them. */
#define DECLARE_OPERATION(name) __typeof__(*((struct kernels *)NULL)->name) ISA(name);
KERNELS_OPERATIONS(DECLARE_OPERATION)

/* epilogue.c; cpu.h describes the first two */
void ISA(epilogue)(struct device *dev, const struct matmul *op, int ld_aux, const float *product, int ld);
void ISA(widen)(struct device *dev, float *y, int ld_y, enum dtype dtype, const void *x, int ld, int rows, int cols);

/* sum[n] (+)= the first n floats of each of `blocks` partial sums that lie `stride` floats apart. */
void ISA(add_partial_sums)(struct device *dev, float *sum, const float *partial, int blocks, size_t stride, int n,
                           bool accumulate);

#endif

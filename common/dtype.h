/*
 * dtype.h - the element types that tensors have in memory and in checkpoints, and conversions of single numbers: for
 * sums between ranks, tests and tools. The kernels have vector code of their own.
 */
#ifndef MUSTER_COMMON_DTYPE_H
#define MUSTER_COMMON_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_F16 };

static inline size_t dtype_size(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 4 : 2;
}

/* ---- conversions: round to nearest, ties to even, like the hardware; a NaN stays a NaN --------------------------- */

static inline float float_of_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of_float(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float bf16_to_float(uint16_t half)
{
    return float_of_bits((uint32_t)half << 16);
}

static inline uint16_t bf16_of_float(float value)
{
    uint32_t bits = bits_of_float(value);

    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* 5 bits of exponent. A subnormal half is an integer times 2^-24. */
static inline float f16_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> 10 & 0x1fu, mantissa = half & 0x3ffu;

    if (exponent == 0)
        return float_of_bits(bits_of_float((float)mantissa * 0x1p-24f) | sign);
    if (exponent == 31)
        return float_of_bits(sign | 0x7f800000u | mantissa << 13);
    return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline uint16_t f16_of_float(float value)
{
    uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000u;

    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
    if (bits >= 0x477ff000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (bits < 0x38800000u) /* subnormal: adding 2^-1 lets the addition round at 2^-24 */
        return (uint16_t)(sign | (bits_of_float(float_of_bits(bits) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | (bits - 0x38000000u + 0xfffu + (bits >> 13 & 1u)) >> 13);
}

#endif

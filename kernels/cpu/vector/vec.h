/*
 * vec.h - a vector of floats as wide as the instruction set's registers, and the few functions of it that we need.
 *
 * GCC's vector extension: +, -, *, / and comparisons work on whole vectors on every architecture, and a * b + c becomes
 * one fused instruction where there is one. Files of this folder are compiled once an instruction set; ISA(name) gives
 * each copy its own symbol.
 */
#ifndef MUSTER_KERNELS_CPU_VECTOR_VEC_H
#define MUSTER_KERNELS_CPU_VECTOR_VEC_H

#include <float.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE__
#include <immintrin.h>
#endif

#define ISA_PASTE(name, isa)  name##_##isa
#define ISA_EXPAND(name, isa) ISA_PASTE(name, isa)
#define ISA(name)             ISA_EXPAND(name, KERNELS_ISA)

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));
typedef uint32_t uvec __attribute__((vector_size(LANES * 4))); /* which may wrap */

/* The same at any address and over any array of floats. */
typedef float vec_unaligned __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

static inline vec vec_load(const float *p)
{
    return *(const vec_unaligned *)p;
}

static inline void vec_store(float *p, vec x)
{
    *(vec_unaligned *)p = x;
}

/* The first `count` (1 to LANES) floats; the other lanes are zero, and nothing beyond is read or written. */
static inline vec vec_load_part(const float *p, size_t count)
{
    float lane[LANES] = {0};

    if (count == LANES)
        return vec_load(p);
    memcpy(lane, p, count * sizeof *p);
    return vec_load(lane);
}

static inline void vec_store_part(float *p, vec x, size_t count)
{
    float lane[LANES];

    if (count == LANES) {
        vec_store(p, x);
        return;
    }
    vec_store(lane, x);
    memcpy(p, lane, count * sizeof *p);
}

/* How many of the LANES at position i of n are there: what load_part and store_part want. */
static inline size_t vec_count(size_t i, size_t n)
{
    return n - i < LANES ? n - i : LANES;
}

static inline vec vec_all(float x)
{
    return x - (vec){0};
}

/* Lane by lane: mask ? a : b; masks are what comparisons yield. */
static inline vec vec_select(ivec mask, vec a, vec b)
{
    return (vec)((mask & (ivec)a) | (~mask & (ivec)b));
}

/* Bit i is lane i of a mask. */
static inline uint32_t vec_bits(ivec mask)
{
#if defined(__AVX512DQ__)
    return _mm512_movepi32_mask((__m512i)mask);
#elif defined(__AVX2__)
    return (uint32_t)_mm256_movemask_ps((__m256)mask);
#elif defined(__SSE__)
    return (uint32_t)_mm_movemask_ps((__m128)mask);
#else
    uint32_t bits = 0;

    for (int i = 0; i < LANES; i++)
        bits |= (uint32_t)(mask[i] & 1) << i;
    return bits;
#endif
}

/* And back: the mask whose lane i is bit i. */
static inline ivec vec_mask(uint32_t bits)
{
    uvec bit;

    for (int i = 0; i < LANES; i++)
        bit[i] = 1u << i;
    return (ivec)((((uvec){0} + bits) & bit) != 0);
}

/* a > b ? a : b, so a NaN in b is kept and one in a is not. The compiler does not find the one instruction itself. */
static inline vec vec_max(vec a, vec b)
{
#if defined(__AVX512F__)
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return vec_select(a > b, a, b);
#endif
}

/* Into [-limit, limit]; a NaN stays one. */
static inline vec vec_clamp(vec x, float limit)
{
    x = vec_select(x > limit, vec_all(limit), x);
    return vec_select(x < -limit, vec_all(-limit), x);
}

static inline vec vec_sqrt(vec x)
{
    vec root;

    for (int i = 0; i < LANES; i++)
        root[i] = __builtin_sqrtf(x[i]);
    return root;
}

/* Across the lanes, by halves: the same order wherever the data lay. */
static inline float vec_sum(vec x)
{
    float lane[LANES];

    vec_store(lane, x);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static inline float vec_highest(vec x)
{
    float high = x[0];

    for (int i = 1; i < LANES; i++)
        high = x[i] > high ? x[i] : high;
    return high;
}

static inline vec vec_iota(void)
{
    vec x;

    for (int i = 0; i < LANES; i++)
        x[i] = (float)i;
    return x;
}

#define LOG2_E 1.44269504088896340736f
#define LN_2   0.69314718055994530942f

/*
 * 2^x for x <= 127, within 2 ulp; 0 below -125, where softmax has nothing left to say and denormals would be slow.
 * x = n + f with n whole and |f| <= 1/2: adding 1.5 * 2^23 leaves n, rounded, in the low bits of the sum. 2^f is a
 * minimax polynomial (relative error 2e-9), and 2^n is made in the exponent's bits.
 */
static inline vec vec_exp2(vec x)
{
    const vec magic = vec_all(12582912.0f);
    vec shifted = x + magic;
    vec f = x - (shifted - magic);
    vec power = (vec)(((uvec)shifted << 23) + (127u << 23));
    vec p = vec_all(1.5353362e-4f);

    p = p * f + 1.3398874e-3f;
    p = p * f + 9.618437e-3f;
    p = p * f + 5.5503324e-2f;
    p = p * f + 0.24022648f;
    p = p * f + 0.6931472f;
    p = p * f + 1.0f;
    return vec_select(x < -125.0f, (vec){0}, p * power);
}

/*
 * gelu(x) = 0.5 x (1 + tanh(u)) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3); we need 2^(-2u log2 e).
 * Beyond |2u log2 e| = 126 the answer is 0 or x anyway.
 */
#define GELU_LINEAR (-2.0f * 0.79788456080286535588f * LOG2_E)
#define GELU_CUBIC  (GELU_LINEAR * 0.044715f)

/* e^-2u */
static inline vec vec_gelu_power(vec x)
{
    return vec_exp2(vec_clamp(x * (GELU_LINEAR + GELU_CUBIC * (x * x)), 126.0f));
}

static inline vec vec_gelu(vec x)
{
    return x / (1.0f + vec_gelu_power(x));
}

/*
 * With e = e^-2u and s = 1 / (1 + e), so that 1 - s = e s without cancellation:
 *   gelu' = s + x s (1 - s) 2u',  2u' = sqrt(8/pi) (1 + 3 * 0.044715 x^2)
 * which beyond |x| = 30 is 0 or 1.
 */
static inline vec vec_gelu_derivative(vec x)
{
    vec e, s, slope;

    x = vec_clamp(x, 30.0f);
    e = vec_gelu_power(x);
    s = 1.0f / (1.0f + e);
    slope = 1.59576912160573071176f * (1.0f + 0.134145f * (x * x));
    return s + x * s * (e * s) * slope;
}

/* s = 1 / (1 + e^-x) and 1 - s, from e^-|x|: neither cancels, nor overflows. */
struct sigmoid {
    vec value, rest;
};

static inline struct sigmoid vec_sigmoid(vec x)
{
    vec e = vec_exp2((vec)((uvec)x | 0x80000000) * LOG2_E);
    vec large = 1.0f / (1.0f + e), small = e * large;

    return (struct sigmoid){vec_select(x < 0.0f, small, large), vec_select(x < 0.0f, large, small)};
}

/*
 * tanh(x) = (1 - e) / (1 + e), e = e^-2|x|, with the sign of x; near 0, where 1 - e cancels, x + x^3 P(x^2), with P
 * interpolated at Chebyshev's nodes (relative error 2e-8). A NaN stays one.
 */
static inline vec vec_tanh(vec x)
{
    vec e = vec_exp2(vec_select(x > 0.0f, -x, x) * (2.0f * LOG2_E));
    vec far = (1.0f - e) / (1.0f + e), square = x * x;
    vec p = vec_all(-5.9929613e-3f);

    p = p * square + 2.0924148e-2f;
    p = p * square - 5.3835141e-2f;
    p = p * square + 0.13332663f;
    p = p * square - 0.33333328f;
    far = (vec)(((uvec)far & 0x7fffffff) | ((uvec)x & 0x80000000));
    return vec_select((ivec)(((uvec)x & 0x7fffffff) < 0x3f23d70a), x + x * square * p, far); /* below 0.64 */
}

#endif

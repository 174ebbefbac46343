/*
 * pack.h - eight elements of any type as fp32: what a thread loads and stores at once. 16 bytes at a time where the
 * address allows it, element by element where not or where fewer than eight are left: the numbers are the same.
 *
 * T is the type in memory: float, __nv_bfloat16 or __half. Rounding is to nearest even.
 */
#ifndef MUSTER_KERNELS_CUDA_GPU_PACK_H
#define MUSTER_KERNELS_CUDA_GPU_PACK_H

#include "kernels/cuda/gpu/language.h"

#define PACK 8

struct pack {
    float v[PACK];
};

/* For the host: runs the statement with T the C type of `dtype`. */
#define WITH_TYPE(dtype, T, ...)                                                                                       \
    do {                                                                                                               \
        if ((dtype) == DTYPE_F32) {                                                                                    \
            typedef float T;                                                                                           \
            __VA_ARGS__;                                                                                               \
        } else if ((dtype) == DTYPE_BF16) {                                                                            \
            typedef __nv_bfloat16 T;                                                                                   \
            __VA_ARGS__;                                                                                               \
        } else {                                                                                                       \
            typedef __half T;                                                                                          \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
    } while (0)

static inline __device__ float widen_value(float x)
{
    return x;
}

static inline __device__ float widen_value(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

static inline __device__ float widen_value(__half x)
{
    return __half2float(x);
}

template <class T> static inline __device__ T narrow_value(float x);

template <> inline __device__ float narrow_value<float>(float x)
{
    return x;
}

template <> inline __device__ __nv_bfloat16 narrow_value<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

template <> inline __device__ __half narrow_value<__half>(float x)
{
    return __float2half_rn(x);
}

/* Two elements of a 16-bit type as they lie in a word of memory, the first in the lower half. */
static inline __device__ float2 widen_word(unsigned word, __nv_bfloat16)
{
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}

static inline __device__ float2 widen_word(unsigned word, __half)
{
    return make_float2(widen_value(__ushort_as_half(static_cast<unsigned short>(word))),
                       widen_value(__ushort_as_half(static_cast<unsigned short>(word >> 16))));
}

static inline __device__ unsigned narrow_word(float low, float high, __nv_bfloat16)
{
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);

    return __bfloat16_as_ushort(both.x) | static_cast<unsigned>(__bfloat16_as_ushort(both.y)) << 16;
}

static inline __device__ unsigned narrow_word(float low, float high, __half)
{
    __half2 both = __floats2half2_rn(low, high);

    return __half_as_ushort(both.x) | static_cast<unsigned>(__half_as_ushort(both.y)) << 16;
}

static inline __host__ __device__ bool is_aligned16(const void *p)
{
    return (reinterpret_cast<uintptr_t>(p) & 15) == 0;
}

/* How many of the pack at i there are in n. */
static inline __device__ int pack_count(size_t i, size_t n)
{
    return n - i < PACK ? static_cast<int>(n - i) : PACK;
}

/* A whole pack at a 16-byte boundary. */
template <class T> static inline __device__ struct pack pack_load_whole(const T *p)
{
    uint4 w = *reinterpret_cast<const uint4 *>(p);
    float2 a = widen_word(w.x, T()), b = widen_word(w.y, T()), c = widen_word(w.z, T()), d = widen_word(w.w, T());

    return {{a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y}};
}

template <> inline __device__ struct pack pack_load_whole<float>(const float *p) {
    float4 a = reinterpret_cast<const float4 *>(p)[0], b = reinterpret_cast<const float4 *>(p)[1];

    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

template <class T>
static inline __device__ void pack_store_whole(T *p, const struct pack &x)
{
    *reinterpret_cast<uint4 *>(p) = make_uint4(narrow_word(x.v[0], x.v[1], T()), narrow_word(x.v[2], x.v[3], T()),
                                               narrow_word(x.v[4], x.v[5], T()), narrow_word(x.v[6], x.v[7], T()));
}

template <> inline __device__ void pack_store_whole<float>(float *p, const struct pack &x)
{
    reinterpret_cast<float4 *>(p)[0] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    reinterpret_cast<float4 *>(p)[1] = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
}

/* Elements [0, count) of p, count <= 8; the others are 0 and not read. */
template <class T> static inline __device__ struct pack pack_load(const T *p, int count)
{
    struct pack x;

    if (count == PACK && is_aligned16(p))
        return pack_load_whole(p);
#pragma unroll
    for (int j = 0; j < PACK; j++)
        x.v[j] = j < count ? widen_value(p[j]) : 0.0f;
    return x;
}

/* Nothing at or beyond count is written. */
template <class T> static inline __device__ void pack_store_each(T *p, const struct pack &x, int count)
{
#pragma unroll
    for (int j = 0; j < PACK; j++)
        if (j < count)
            p[j] = narrow_value<T>(x.v[j]);
}

template <class T> static inline __device__ void pack_store(T *p, const struct pack &x, int count)
{
    if (count == PACK && is_aligned16(p))
        pack_store_whole(p, x);
    else
        pack_store_each(p, x, count);
}

/* A pack as it lies in memory: in 16 bits it takes half the registers while it is on its way. */
template <class T> struct raw_pack {
    uint4 words;
};

template <> struct raw_pack<float> {
    float4 low, high;
};

template <class T> static inline __device__ struct pack raw_widen(const struct raw_pack<T> &raw)
{
    return pack_load_whole(reinterpret_cast<const T *>(&raw));
}

template <class T> static inline __device__ struct raw_pack<T> raw_narrow(const struct pack &x) {
    struct raw_pack<T> raw;

    pack_store_whole(reinterpret_cast<T *>(&raw), x);
    return raw;
}

/*
 * WHOLE, of a kernel: its rows are whole packs at 16-byte boundaries. pack_load asks each address, and waits for the
 * pack where its branches meet: a thread has one load in flight. So a kernel that loads several packs is compiled for
 * both. Its results must have the same bits: it writes its fused multiply-adds as fmaf, and other products that are
 * added as __fmul_rn.
 */
template <bool WHOLE, class T>
static inline __device__ struct raw_pack<T> raw_load(const T *p, int count) {
    if constexpr (WHOLE) {
        return *reinterpret_cast<const struct raw_pack<T> *>(p);
    } else {
        struct pack x;

#pragma unroll
        for (int j = 0; j < PACK; j++)
            x.v[j] = j < count ? widen_value(p[j]) : 0.0f;
        return raw_narrow<T>(x);
    }
}

template <bool WHOLE, class T>
static inline __device__ void raw_store(T *p, const struct raw_pack<T> &raw, int count)
{
    if constexpr (WHOLE)
        *reinterpret_cast<struct raw_pack<T> *>(p) = raw;
    else
        pack_store_each(p, raw_widen(raw), count);
}

/* For the host: runs the statement with NAME a compile-time constant. */
#define WITH_CONSTANT(type, NAME, value, ...)                                                                          \
    {                                                                                                                  \
        constexpr type NAME = value;                                                                                   \
        __VA_ARGS__;                                                                                                   \
    }

/* With NAME equal to `value`. */
#define WITH_BOOL(value, NAME, ...)                                                                                    \
    do {                                                                                                               \
        if (value)                                                                                                     \
            WITH_CONSTANT(bool, NAME, true, __VA_ARGS__)                                                               \
        else                                                                                                           \
            WITH_CONSTANT(bool, NAME, false, __VA_ARGS__)                                                              \
    } while (0)

/* Whether rows of so many elements, of matrices at these addresses, are whole packs at 16-byte boundaries. NULL is at
 * one. */
template <int N> static inline bool rows_are_whole(int elements, const void *const (&addresses)[N])
{
    bool whole = elements % PACK == 0;

    for (int i = 0; i < N; i++)
        whole = whole && is_aligned16(addresses[i]);
    return whole;
}

/* x as it is after being stored. */
template <class T> static inline __device__ float round_to(float x)
{
    return widen_value(narrow_value<T>(x));
}

static inline __device__ void pack_add(struct pack &x, const struct pack &y)
{
#pragma unroll
    for (int j = 0; j < PACK; j++)
        x.v[j] += y.v[j];
}

/* For kernels on flat arrays: a pack a thread. */
#define FLAT_THREADS 256

static inline unsigned flat_blocks(size_t count)
{
    return static_cast<unsigned>((count + PACK * FLAT_THREADS - 1) / (PACK * FLAT_THREADS));
}

/* The first element of this thread's pack. */
static inline __device__ size_t flat_first()
{
    return (static_cast<size_t>(blockIdx.x) * FLAT_THREADS + threadIdx.x) * PACK;
}

#endif

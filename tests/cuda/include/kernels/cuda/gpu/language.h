/*
 * language.h - kernels/cuda/gpu/language.h in plain C++ on top of emulator.h. The emulated build finds this file first,
 * by -I. Names, meanings and layouts are CUDA's (CUDA C++ Programming Guide; CUDA Math API for the conversions).
 */
#ifndef MUSTER_KERNELS_CUDA_GPU_LANGUAGE_H
#define MUSTER_KERNELS_CUDA_GPU_LANGUAGE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/dtype.h"
#include "kernels/cuda/cuda.h"
#include "tests/cuda/emulator.h"
#ifdef MUSTER_CUDA_STANDIN
#include "tests/cuda/standin/standin.h"
#endif

#define FULL_WARP 0xffffffffu
#define WARP      32

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__       static /* blocks run one after the other */
#define __forceinline__  inline __attribute__((always_inline))
#define __align__(bytes) alignas(bytes)
#define __launch_bounds__(...)
#define __grid_constant__

#define threadIdx (emulator_here->thread)
#define blockIdx  (emulator_here->block)
#define blockDim  (emulator_here->threads)
#define gridDim   (emulator_here->blocks)
#define warpSize  32

static inline unsigned thread_anew(void)
{
    return threadIdx.x;
}

static inline unsigned block_anew(void)
{
    return blockIdx.x;
}

#define DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(emulator_shared())

#define LAUNCH(dev, kernel, grid, block, shared_bytes, ...)                                                            \
    emulated_launch(dev, #kernel, grid, block, shared_bytes, emulated_call((kernel), __VA_ARGS__))

template <class T> struct emulated_same {
    typedef T type;
};

/* The kernel with its arguments, which are copied when it is launched. */
template <class... P>
static inline auto emulated_call(void (*kernel)(P...), typename emulated_same<P>::type... arguments)
{
    return [=] { kernel(arguments...); };
}

template <class Body>
static inline bool emulated_run(const char *name, struct dim3 grid, struct dim3 block, size_t shared_bytes,
                                const Body &body, char *why, size_t size)
{
    const struct emulator_launch launch = {
        name, grid, block, shared_bytes, [](const void *arg) { (*static_cast<const Body *>(arg))(); }, &body};

    return emulator_run(&launch, why, size);
}

template <class Body>
static inline void emulated_launch(struct device *dev, const char *name, struct dim3 grid, struct dim3 block,
                                   size_t shared_bytes, const Body &body)
{
    if (!dev->failed && shared_bytes > device_cuda(dev)->shared_limit)
        device_fail(dev, CODE_INTERNAL, "cuda-emulated: %s: %zu bytes of shared memory", name, shared_bytes);
    if (dev->failed)
        return;
#ifdef MUSTER_CUDA_STANDIN
    standin_launch(device_cuda(dev)->stream, [=](char *why, size_t size) {
        return emulated_run(name, grid, block, shared_bytes, body, why, size);
    });
    cuda_ok(dev, standin_last_error(), name);
#else
    char why[512];

    if (!emulated_run(name, grid, block, shared_bytes, body, why, sizeof why))
        device_fail(dev, CODE_INTERNAL, "cuda-emulated: %s", why);
#endif
}

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

static inline float2 make_float2(float x, float y)
{
    return {x, y};
}

static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}

static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}

static inline int2 make_int2(int x, int y)
{
    return {x, y};
}

/* ---- 16-bit types ------------------------------------------------------------------------------------------------ */

struct __nv_bfloat16 {
    uint16_t bits;
};
struct __half {
    uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
struct alignas(4) __half2 {
    __half x, y;
};

static inline float __bfloat162float(__nv_bfloat16 h)
{
    return bf16_to_float(h.bits);
}

static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return {bf16_of_float(x)};
}

static inline float __half2float(__half h)
{
    return f16_to_float(h.bits);
}

static inline __half __float2half_rn(float x)
{
    return {f16_of_float(x)};
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}

static inline float2 __bfloat1622float2(__nv_bfloat162 h)
{
    return {__bfloat162float(h.x), __bfloat162float(h.y)};
}

static inline __half2 __floats2half2_rn(float x, float y)
{
    return {__float2half_rn(x), __float2half_rn(y)};
}

static inline float2 __half22float2(__half2 h)
{
    return {__half2float(h.x), __half2float(h.y)};
}

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h)
{
    return h.bits;
}

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return {bits};
}

static inline unsigned short __half_as_ushort(__half h)
{
    return h.bits;
}

static inline __half __ushort_as_half(unsigned short bits)
{
    return {bits};
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

static inline unsigned __float_as_uint(float x)
{
    return bits_of_float(x);
}

static inline float __uint_as_float(unsigned bits)
{
    return float_of_bits(bits);
}

static inline int __float_as_int(float x)
{
    return static_cast<int>(bits_of_float(x));
}

static inline float __int_as_float(int bits)
{
    return float_of_bits(static_cast<unsigned>(bits));
}

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

/* Each rounded by itself: what passes through memory is not fused with what follows. */
static inline float __fmul_rn(float x, float y)
{
    volatile float product = x * y;

    return product;
}

static inline float __fadd_rn(float x, float y)
{
    return x + y;
}

static inline float __fsub_rn(float x, float y)
{
    return x - y;
}

static inline float __fdiv_rn(float x, float y)
{
    return x / y;
}

static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}

/* Macros, because the C library has declarations of these names. */
#define __expf(x) expf(x)
#define __logf(x) logf(x)

static inline float __fdividef(float x, float y)
{
    return x / y;
}

template <class T> static inline T max(T a, T b)
{
    return a > b ? a : b;
}

template <class T> static inline T min(T a, T b)
{
    return a < b ? a : b;
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline int __clz(int x)
{
    return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}

/* (high:low) << (shift % 32), and >>: the high word of the one, the low word of the other. */
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) << (shift & 31) >> 32);
}

static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

template <class T> static inline T __ldg(const T *p)
{
    return *p;
}

template <class T> static inline T __ldcs(const T *p)
{
    return *p;
}

template <class T> static inline T __ldcg(const T *p)
{
    return *p;
}

template <class T> static inline void __stcs(T *p, T x)
{
    *p = x;
}

template <class T> static inline void __stcg(T *p, T x)
{
    *p = x;
}

static inline void __threadfence()
{
}

/* One fiber runs at a time, and not in parallel: what is between two waits is atomic. */
template <class T, class U> static inline T atomicAdd(T *p, U x)
{
    T was = *p;

    *p = was + static_cast<T>(x);
    return was;
}

template <class T> static inline T atomicMax(T *p, T x)
{
    T was = *p;

    *p = was > x ? was : x;
    return was;
}

template <class T> static inline T atomicExch(T *p, T x)
{
    T was = *p;

    *p = x;
    return was;
}

template <class T> static inline T atomicCAS(T *p, T compare, T x)
{
    T was = *p;

    if (was == compare)
        *p = x;
    return was;
}

/* ---- barriers, shuffles and votes: the whole warp's, whatever the mask ------------------------------------------- */

static inline void __syncthreads(const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    emulator_barrier({"__syncthreads", file, line});
}

static inline void __syncwarp(unsigned = 0xffffffffu, const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    emulator_exchange(NULL, 0, {"__syncwarp", file, line});
}

template <class T> static inline T emulated_lane(const unsigned char *lanes, unsigned lane)
{
    T value;

    memcpy(&value, lanes + lane % EMULATOR_LANES * EMULATOR_SLOT, sizeof value);
    return value;
}

template <class T>
static inline T __shfl_sync(unsigned, T value, int from, int width = 32, const char *file = __builtin_FILE(),
                            int line = __builtin_LINE())
{
    unsigned lane = emulator_here->lane, w = static_cast<unsigned>(width);
    const unsigned char *lanes = emulator_exchange(&value, sizeof value, {"__shfl_sync", file, line});

    return emulated_lane<T>(lanes, lane / w * w + static_cast<unsigned>(from) % w);
}

template <class T>
static inline T __shfl_xor_sync(unsigned, T value, int bits, int width = 32, const char *file = __builtin_FILE(),
                                int line = __builtin_LINE())
{
    unsigned lane = emulator_here->lane, w = static_cast<unsigned>(width), from = lane ^ static_cast<unsigned>(bits);
    const unsigned char *lanes = emulator_exchange(&value, sizeof value, {"__shfl_xor_sync", file, line});

    return from / w > lane / w ? value : emulated_lane<T>(lanes, from);
}

template <class T>
static inline T __shfl_down_sync(unsigned, T value, unsigned by, int width = 32, const char *file = __builtin_FILE(),
                                 int line = __builtin_LINE())
{
    unsigned lane = emulator_here->lane, w = static_cast<unsigned>(width);
    const unsigned char *lanes = emulator_exchange(&value, sizeof value, {"__shfl_down_sync", file, line});

    return lane % w + by >= w ? value : emulated_lane<T>(lanes, lane + by);
}

template <class T>
static inline T __shfl_up_sync(unsigned, T value, unsigned by, int width = 32, const char *file = __builtin_FILE(),
                               int line = __builtin_LINE())
{
    unsigned lane = emulator_here->lane, w = static_cast<unsigned>(width);
    const unsigned char *lanes = emulator_exchange(&value, sizeof value, {"__shfl_up_sync", file, line});

    return lane % w < by ? value : emulated_lane<T>(lanes, lane - by);
}

static inline unsigned __ballot_sync(unsigned, int predicate, const char *file = __builtin_FILE(),
                                     int line = __builtin_LINE())
{
    const unsigned char *lanes = emulator_exchange(&predicate, sizeof predicate, {"__ballot_sync", file, line});
    unsigned votes = 0;

    for (unsigned lane = 0; lane < EMULATOR_LANES; lane++)
        votes |= static_cast<unsigned>(emulated_lane<int>(lanes, lane) != 0) << lane;
    return votes;
}

static inline int __any_sync(unsigned mask, int predicate, const char *file = __builtin_FILE(),
                             int line = __builtin_LINE())
{
    return __ballot_sync(mask, predicate, file, line) != 0;
}

static inline int __all_sync(unsigned mask, int predicate, const char *file = __builtin_FILE(),
                             int line = __builtin_LINE())
{
    return __ballot_sync(mask, predicate, file, line) == 0xffffffffu;
}

#endif

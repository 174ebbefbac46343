#include "kernels/cuda/gpu/dropout_mask.h"

/* gelu and its derivative by the formulas of kernels/cpu/vector/vec.h. Beyond |x| = 30 s is 0 or 1 and the slope too. e
 * stays finite, so that no infinity meets a zero; a NaN stays one. */
static inline __device__ float gelu_clamp(float x)
{
    return x > 30.0f ? 30.0f : x < -30.0f ? -30.0f : x;
}

static inline __device__ float gelu_exp(float x)
{
    const float linear = -2.30220819f; /* -2 sqrt(2/pi) log2(e) */
    float power = x * (linear + linear * 0.044715f * (x * x));

    return exp2f(power > 126.0f ? 126.0f : power);
}

static inline __device__ float gelu_of(float x)
{
    return x / (1.0f + gelu_exp(gelu_clamp(x)));
}

static inline __device__ float gelu_slope_of(float x)
{
    float c = gelu_clamp(x), e = gelu_exp(c), s = 1.0f / (1.0f + e);

    return s + c * s * (e * s) * (1.59576912f * (1.0f + 0.134145f * (c * c)));
}

/*
 * Operations on flat arrays: each thread loads its pack of every operand, computes, and stores. Operands may be the
 * same array, so a pack is read whole before it is written. One compiled kernel for each function of one or two packs:
 *   z = f(x) or z = f(x, y)
 */
enum flat_function { GELU, GELU_SLOPE, TANH, TANH_SLOPE, SUM, SAME };

template <enum flat_function F> static inline __device__ float flat_value(float x, float y)
{
    if constexpr (F == GELU)
        return gelu_of(x);
    else if constexpr (F == GELU_SLOPE)
        return x * gelu_slope_of(y);
    else if constexpr (F == TANH)
        return tanhf(x);
    else if constexpr (F == TANH_SLOPE)
        return x * (1.0f - y * y);
    else
        return F == SUM ? x + y : x;
}

/* y may be NULL for a function of x alone. */
template <enum flat_function F, class Z, class X, class Y>
static __global__ void __launch_bounds__(FLAT_THREADS) flat(Z *z, const X *x, const Y *y, size_t count)
{
    size_t first = flat_first();
    struct pack a, b = {};
    int n;

    if (first >= count)
        return;
    n = pack_count(first, count);
    a = pack_load(x + first, n);
    if (y)
        b = pack_load(y + first, n);
#pragma unroll
    for (int j = 0; j < PACK; j++)
        a.v[j] = flat_value<F>(a.v[j], b.v[j]);
    pack_store(z + first, a, n);
}

template <enum flat_function F, class Z, class X, class Y>
static void launch_flat(struct device *dev, void *z, const void *x, const void *y, size_t count)
{
    LAUNCH(dev, (flat<F, Z, X, Y>), flat_blocks(count), FLAT_THREADS, 0, static_cast<Z *>(z), static_cast<const X *>(x),
           static_cast<const Y *>(y), count);
}

/* An operation of kernels.h on operands of one type: z = f(x, y). */
#define FLAT_OPERATION(name, parameters, f, z, x, y)                                                                   \
    void cuda_##name parameters                                                                                        \
    {                                                                                                                  \
        if (device_ready(dev, dtype, #name) && count > 0)                                                              \
            WITH_TYPE(dtype, T, launch_flat<f, T, T, T>(dev, z, x, y, count));                                         \
    }

#define OF_ONE (struct device * dev, enum dtype dtype, void *y, const void *x, size_t count)
#define OF_TWO (struct device * dev, enum dtype dtype, void *z, const void *x, const void *y, size_t count)

FLAT_OPERATION(gelu_forward, OF_ONE, GELU, y, x, NULL)
FLAT_OPERATION(gelu_backward, OF_TWO, GELU_SLOPE, z, x, y)
FLAT_OPERATION(tanh_forward, OF_ONE, TANH, y, x, NULL)
FLAT_OPERATION(tanh_backward, OF_TWO, TANH_SLOPE, z, x, y)
FLAT_OPERATION(add, OF_ONE, SUM, y, y, x)

void cuda_accumulate(struct device *dev, float *y, enum dtype dtype, const void *x, size_t count)
{
    if (device_ready(dev, dtype, "accumulate") && count > 0)
        WITH_TYPE(dtype, T, launch_flat<SUM, float, float, T>(dev, y, y, x, count));
}

void cuda_cast(struct device *dev, enum dtype to, void *y, enum dtype from, const void *x, size_t count)
{
    if (device_ready(dev, to, "cast") && device_ready(dev, from, "cast") && count > 0)
        WITH_TYPE(to, TO, WITH_TYPE(from, FROM, launch_flat<SAME, TO, FROM, float>(dev, y, x, NULL, count)));
}

/* dx = dy * mask */
template <class T>
static __global__ void __launch_bounds__(FLAT_THREADS)
    dropout_backward(T *dx, const T *dy, size_t count, struct mask mask)
{
    size_t first = flat_first();
    struct pack x;
    int n;

    if (first >= count)
        return;
    n = pack_count(first, count);
    x = pack_load(dy + first, n);
    mask_apply(mask, x, first);
    pack_store(dx + first, x, n);
}

void cuda_dropout_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, size_t count,
                           const struct dropout *dropout)
{
    struct mask mask = mask_of(dropout);

    if (!device_ready(dev, dtype, "dropout_backward") || count == 0 || (dropout->p <= 0 && dx == dy))
        return;
    WITH_TYPE(dtype, T,
              LAUNCH(dev, dropout_backward<T>, flat_blocks(count), FLAT_THREADS, 0, static_cast<T *>(dx),
                     static_cast<const T *>(dy), count, mask));
}

/* ---- the end of a matmul ----------------------------------------------------------------------------------------- */

#define THREADS 256

/* gelu is made of aux as it was rounded. T is the type of bias and aux, C that of c. */
template <class T, class C> static __global__ void finish_element(struct matmul op, const float *__restrict__ product)
{
    size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x, n = static_cast<size_t>(op.n);
    size_t row = i / n, col = i % n;
    float x;

    if (row >= static_cast<size_t>(op.m))
        return;
    x = product[i];
    if (op.epilogue == EPILOGUE_BIAS || op.epilogue == EPILOGUE_BIAS_GELU)
        x += widen_value(static_cast<const T *>(op.bias)[col]);
    if (op.epilogue == EPILOGUE_BIAS_GELU) {
        static_cast<T *>(op.aux)[i] = narrow_value<T>(x);
        x = gelu_of(round_to<T>(x));
    }
    if (op.epilogue == EPILOGUE_DGELU)
        x *= gelu_slope_of(widen_value(static_cast<const T *>(op.aux)[i]));
    static_cast<C *>(op.c)[row * static_cast<size_t>(op.ldc) + col] = narrow_value<C>(x);
}

extern "C" void cuda_epilogue(struct device *dev, const struct matmul *op, const float *product)
{
    size_t count = static_cast<size_t>(op->m) * static_cast<size_t>(op->n);
    unsigned blocks = static_cast<unsigned>((count + THREADS - 1) / THREADS);

    WITH_TYPE(op->dtype, T, {
        if (op->c_fp32)
            LAUNCH(dev, (finish_element<T, float>), blocks, THREADS, 0, *op, product);
        else
            LAUNCH(dev, (finish_element<T, T>), blocks, THREADS, 0, *op, product);
    });
}

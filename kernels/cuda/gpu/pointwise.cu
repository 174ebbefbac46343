#include "kernels/cuda/gpu/dropout_mask.h"
#include "kernels/cuda/gpu/gelu.h"
#include "kernels/cuda/gpu/pack.h"
#include "kernels/cuda/operations.h"

/*
 * Operations on flat arrays: each thread loads its pack of every operand, computes, and stores. Operands may be the
 * same array, so a pack is read whole before it is written. One compiled kernel for each function of one or two packs:
 *   z = f(x) or z = f(x, y)
 */
struct gelu_slope {
    static __device__ float of(float dy, float x)
    {
        return dy * gelu_slope_of(x);
    }
};

struct tanh_of {
    static __device__ float of(float x, float)
    {
        return tanhf(x);
    }
};

struct tanh_slope {
    static __device__ float of(float dy, float y)
    {
        return dy * (1.0f - y * y);
    }
};

struct sum_of {
    static __device__ float of(float x, float y)
    {
        return x + y;
    }
};

struct same_as {
    static __device__ float of(float x, float)
    {
        return x;
    }
};

/* y may be NULL for a function of x alone. */
template <class F, class Z, class X, class Y>
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
        a.v[j] = F::of(a.v[j], b.v[j]);
    pack_store(z + first, a, n);
}

template <class F, class Z, class X, class Y>
static void launch_flat(struct device *dev, void *z, const void *x, const void *y, size_t count)
{
    LAUNCH(dev, (flat<F, Z, X, Y>), flat_blocks(count), FLAT_THREADS, 0, static_cast<Z *>(z), static_cast<const X *>(x),
           static_cast<const Y *>(y), count);
}

void cuda_gelu_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, const void *x, size_t count)
{
    if (device_ready(dev, dtype, "gelu_backward") && count > 0)
        WITH_TYPE(dtype, T, launch_flat<gelu_slope, T, T, T>(dev, dx, dy, x, count));
}

void cuda_tanh_forward(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count)
{
    if (device_ready(dev, dtype, "tanh_forward") && count > 0)
        WITH_TYPE(dtype, T, launch_flat<tanh_of, T, T, T>(dev, y, x, NULL, count));
}

void cuda_tanh_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, const void *y, size_t count)
{
    if (device_ready(dev, dtype, "tanh_backward") && count > 0)
        WITH_TYPE(dtype, T, launch_flat<tanh_slope, T, T, T>(dev, dx, dy, y, count));
}

void cuda_add(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count)
{
    if (device_ready(dev, dtype, "add") && count > 0)
        WITH_TYPE(dtype, T, launch_flat<sum_of, T, T, T>(dev, y, y, x, count));
}

void cuda_accumulate(struct device *dev, float *y, enum dtype dtype, const void *x, size_t count)
{
    if (device_ready(dev, dtype, "accumulate") && count > 0)
        WITH_TYPE(dtype, T, launch_flat<sum_of, float, float, T>(dev, y, y, x, count));
}

void cuda_cast(struct device *dev, enum dtype to, void *y, enum dtype from, const void *x, size_t count)
{
    if (device_ready(dev, to, "cast") && device_ready(dev, from, "cast") && count > 0)
        WITH_TYPE(to, TO, WITH_TYPE(from, FROM, launch_flat<same_as, TO, FROM, float>(dev, y, x, NULL, count)));
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

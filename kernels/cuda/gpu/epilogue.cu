
#include "kernels/cuda/gpu/gelu.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/gpu/pack.h"

#define THREADS 256

/* gelu is made of aux as it was rounded. T is the type of bias and aux, C that of c. */
template <class T, class C> static __global__ void finish_element(struct matmul op, const float *__restrict__ product)
{
    size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x, n = static_cast<size_t>(op.n);
    size_t row = i / n, col = i % n;
    float x;
    C *c;

    if (row >= static_cast<size_t>(op.m))
        return;
    x = product[i];
    c = static_cast<C *>(op.c) + row * static_cast<size_t>(op.ldc) + col;
    if (op.epilogue == EPILOGUE_BIAS || op.epilogue == EPILOGUE_BIAS_GELU)
        x += widen_value(static_cast<const T *>(op.bias)[col]);
    if (op.epilogue == EPILOGUE_BIAS_GELU) {
        static_cast<T *>(op.aux)[i] = narrow_value<T>(x);
        x = gelu_of(round_to<T>(x));
    }
    if (op.epilogue == EPILOGUE_DGELU)
        x *= gelu_slope_of(widen_value(static_cast<const T *>(op.aux)[i]));
    *c = narrow_value<C>(op.accumulate ? widen_value(*c) + x : x);
}

static unsigned blocks_of(size_t count)
{
    return static_cast<unsigned>((count + THREADS - 1) / THREADS);
}

extern "C" void cuda_epilogue(struct device *dev, const struct matmul *op, const float *product)
{
    unsigned blocks = blocks_of(static_cast<size_t>(op->m) * static_cast<size_t>(op->n));

    WITH_TYPE(op->dtype, T, {
        if (op->c_fp32)
            LAUNCH(dev, (finish_element<T, float>), blocks, THREADS, 0, *op, product);
        else
            LAUNCH(dev, (finish_element<T, T>), blocks, THREADS, 0, *op, product);
    });
}

static inline __device__ unsigned long long mix_bits(unsigned long long x)
{
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ull;
    return x ^ (x >> 29);
}

/* Sums of integers, so that the order of the atomics does not matter. One word a thread at a time: it is no part of
 * training. A number has `per` words, in the last of which are its sign and exponent. */
static __global__ void checksum_kernel(unsigned long long *sums, const unsigned short *__restrict__ x, size_t rows,
                                       size_t words, size_t stride, unsigned per, unsigned exponent)
{
    size_t step = static_cast<size_t>(gridDim.x) * THREADS;
    unsigned long long sum = 0, other = 0, tell = 0;

    for (size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x; i < rows * words; i += step) {
        size_t word_of_row = i % words;
        unsigned long long word = x[i / words * stride + word_of_row], mixed = mix_bits(word << 40 ^ i);

        sum += mixed;
        other += mix_bits(mixed);
        tell += word_of_row % per == per - 1 && (word & 0x7fff) && (word & exponent) != exponent;
    }
    atomicAdd(&sums[0], sum);
    atomicAdd(&sums[1], other);
    atomicAdd(&sums[2], tell);
}

extern "C" void cuda_checksum(struct device *dev, unsigned long long sums[3], enum dtype dtype, const void *x,
                              size_t rows, size_t cols, size_t stride)
{
    unsigned per = static_cast<unsigned>(dtype_size(dtype) / 2), exponent = dtype == DTYPE_F16 ? 0x7c00 : 0x7f80;
    size_t most = 4 * static_cast<size_t>(device_cuda(dev)->sms), words = cols * per;
    size_t blocks = (rows * words + THREADS - 1) / THREADS;

    cuda_zero(dev, sums, 3 * sizeof *sums);
    LAUNCH(dev, checksum_kernel, static_cast<unsigned>(blocks < most ? blocks : most), THREADS, 0, sums,
           static_cast<const unsigned short *>(x), rows, words, stride * per, per, exponent);
}

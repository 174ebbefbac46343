/*
 * gelu.h - gelu(x) = 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3), and its derivative, in fp32 on a GPU.
 *
 * With e = exp(-2u) and s = 1 / (1 + e): gelu(x) = x s, and 1 - s = e s without cancellation, so
 *   gelu'(x) = s + x s (1 - s) 2u',  2u' = sqrt(8/pi) (1 + 3 * 0.044715 x^2)
 * Beyond |x| = 30 s is 0 or 1 and the slope too. e stays finite, so that no infinity meets a zero; a NaN stays one.
 */
#ifndef MUSTER_KERNELS_CUDA_GPU_GELU_H
#define MUSTER_KERNELS_CUDA_GPU_GELU_H

#include "kernels/cuda/gpu/language.h"

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

#endif

/*
 * epilogue.h - what matmul.c needs of the GPU beside cuBLASLt; internal to kernels/cuda.
 */
#ifndef MUSTER_KERNELS_CUDA_EPILOGUE_H
#define MUSTER_KERNELS_CUDA_EPILOGUE_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* c (and aux) = op's epilogue of product, packed [m,n] fp32; + c when accumulate. op's strides are all given. */
void cuda_epilogue(struct device *dev, const struct matmul *op, const float *product);

/*
 * Three sums (device memory, set to 0 first) over a matrix, its rows `stride` numbers apart: two that depend on each
 * bit and its place, and how many numbers are finite and not about 0. Equal bits have equal sums, in any order of
 * threads; different bits almost surely not.
 */
void cuda_checksum(struct device *dev, unsigned long long sums[3], enum dtype dtype, const void *x, size_t rows,
                   size_t cols, size_t stride);

#ifdef __cplusplus
}
#endif

#endif

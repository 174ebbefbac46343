/*
 * operations.h - what kernels/cuda offers: each operation of kernels.h, which says what it does, under its name there.
 * One .cu file an operation or a pair. operations.c makes a struct kernels of them.
 */
#ifndef MUSTER_KERNELS_CUDA_OPERATIONS_H
#define MUSTER_KERNELS_CUDA_OPERATIONS_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

void cuda_matmul(struct device *dev, const struct matmul *op);
void cuda_bias_backward(struct device *dev, enum dtype dtype, float *db, const void *dy, int rows, int n,
                        bool accumulate);
void cuda_layernorm_forward(struct device *dev, const struct layernorm *op);
void cuda_layernorm_backward(struct device *dev, const struct layernorm_backward *op);
void cuda_residual(struct device *dev, const struct residual *op);
void cuda_dropout_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, size_t count,
                           const struct dropout *dropout);
void cuda_attention_forward(struct device *dev, const struct attention *op);
void cuda_attention_backward(struct device *dev, const struct attention_backward *op);
void cuda_embedding_forward(struct device *dev, const struct embedding *op);
void cuda_embedding_backward(struct device *dev, const struct embedding *op);
void cuda_positions_forward(struct device *dev, const struct positions *op);
void cuda_positions_backward(struct device *dev, const struct positions *op);
void cuda_cross_entropy(struct device *dev, const struct cross_entropy *op);
void cuda_cross_entropy_stats(struct device *dev, const struct cross_entropy *op);
void cuda_cross_entropy_combine(struct device *dev, const struct cross_entropy_combine *op);
void cuda_cross_entropy_finish(struct device *dev, const struct cross_entropy *op);
void cuda_adamw(struct device *dev, const struct adamw *op);
void cuda_gelu_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, const void *x, size_t count);
void cuda_tanh_forward(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count);
void cuda_tanh_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, const void *y, size_t count);
void cuda_copy(struct device *dev, void *y, const void *x, size_t bytes);
void cuda_add(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count);
void cuda_accumulate(struct device *dev, float *y, enum dtype dtype, const void *x, size_t count);
void cuda_cast(struct device *dev, enum dtype to, void *y, enum dtype from, const void *x, size_t count);
void cuda_zero(struct device *dev, void *y, size_t bytes);
void cuda_sum_of_squares(struct device *dev, double *result, const float *x, size_t count);

/* The table of all of them. */
struct kernels cuda_operations(void);

/* ---- what operations share ------------------------------------------------------------------------------------- */

/*
 * Sums over rows, in two stages: each block of rows alone, then the blocks' sums in order. The blocks depend only on the
 * number of rows, so the result is the same on every GPU.
 */

/*
 * sums[kinds][n] fp32 = sums over the rows of x[rows, n] of each kind; added to them when accumulate. kinds: 1, or 2
 * with types [rows] of 0 or 1. Takes the workspace.
 */
void cuda_column_sums(struct device *dev, enum dtype dtype, float *sums, const void *x, const int32_t *types, int rows,
                      int n, bool accumulate);

/* The second stage: sum[n] (+)= partial[0][n] + partial[1][n] + ..., `blocks` of them, `stride` floats apart. */
void cuda_add_partial_sums(struct device *dev, float *sum, const float *partial, int blocks, size_t stride, int n,
                           bool accumulate);

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

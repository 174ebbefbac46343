/*
 * columns.h - sums over rows, in two stages: blocks of rows are summed each for itself, then the blocks' sums in order.
 * How rows are cut depends on their number alone, so the result is the same on every GPU.
 */
#ifndef MUSTER_KERNELS_CUDA_COLUMNS_H
#define MUSTER_KERNELS_CUDA_COLUMNS_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * sums[kinds][n] fp32 = sums over the rows of x[rows, n] of each kind; added to them when accumulate. kinds: 1, or 2
 * with types [rows] of 0 or 1. Takes the workspace.
 */
void cuda_column_sums(struct device *dev, enum dtype dtype, float *sums, const void *x, const int32_t *types, int rows,
                      int n, bool accumulate);

/* The second stage: sum[n] (+)= partial[0][n] + partial[1][n] + ..., `blocks` of them, `stride` floats apart. */
void cuda_add_partial_sums(struct device *dev, float *sum, const float *partial, int blocks, size_t stride, int n,
                           bool accumulate);

#ifdef __cplusplus
}
#endif

#endif

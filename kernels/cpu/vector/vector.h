/*
 * vector.h - the operations of this folder, as kernels.h describes them, under this instruction set's names. table.c
 * gathers them.
 */
#ifndef MUSTER_KERNELS_CPU_VECTOR_VECTOR_H
#define MUSTER_KERNELS_CPU_VECTOR_VECTOR_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector/vec.h"

/* epilogue.c */
void ISA(epilogue)(struct device *dev, const struct matmul *op, int ld_aux, const float *product, int ld);
void ISA(epilogue_gelu)(struct device *dev, const struct matmul *op, int ld_aux);
void ISA(widen)(struct device *dev, float *y, int ld_y, enum dtype dtype, const void *x, int ld, int rows, int cols);

/* pointwise.c */
void ISA(gelu_backward)(struct device *dev, enum dtype dtype, void *dx, const void *dy, const void *x, size_t count);
void ISA(tanh_forward)(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count);
void ISA(tanh_backward)(struct device *dev, enum dtype dtype, void *dx, const void *dy, const void *y, size_t count);
void ISA(add)(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count);
void ISA(accumulate)(struct device *dev, float *y, enum dtype dtype, const void *x, size_t count);
void ISA(cast)(struct device *dev, enum dtype to, void *y, enum dtype from, const void *x, size_t count);

/* dropout.c */
void ISA(dropout_backward)(struct device *dev, enum dtype dtype, void *dx, const void *dy, size_t count,
                           const struct dropout *op);

/* adamw.c, sum_of_squares.c */
void ISA(adamw)(struct device *dev, const struct adamw *op);
void ISA(sum_of_squares)(struct device *dev, double *result, const float *x, size_t count);

/* layernorm.c, layernorm_backward.c */
void ISA(layernorm_forward)(struct device *dev, const struct layernorm *op);
void ISA(residual)(struct device *dev, const struct residual *op);
void ISA(layernorm_backward)(struct device *dev, const struct layernorm_backward *op);

/* columns.c */
void ISA(bias_backward)(struct device *dev, enum dtype dtype, float *db, const void *dy, int rows, int n,
                        bool accumulate);

/* sum[n] (+)= the first n floats of each of `blocks` partial sums that lie `stride` floats apart. */
void ISA(add_partial_sums)(struct device *dev, float *sum, const float *partial, int blocks, size_t stride, int n,
                           bool accumulate);

/* Columns that a thread takes where sums over rows are made in the order of rows: whole cache lines. */
static inline size_t column_strip(const struct device *dev, int cols)
{
    return (((size_t)cols + (size_t)dev->threads - 1) / (size_t)dev->threads + 15) / 16 * 16;
}

/* embedding.c, positions.c */
void ISA(embedding_forward)(struct device *dev, const struct embedding *op);
void ISA(embedding_backward)(struct device *dev, const struct embedding *op);
void ISA(positions_forward)(struct device *dev, const struct positions *op);
void ISA(positions_backward)(struct device *dev, const struct positions *op);

/* cross_entropy.c */
void ISA(cross_entropy_stats)(struct device *dev, const struct cross_entropy *op);
void ISA(cross_entropy_combine)(struct device *dev, const struct cross_entropy_combine *op);
void ISA(cross_entropy)(struct device *dev, const struct cross_entropy *op);
void ISA(cross_entropy_finish)(struct device *dev, const struct cross_entropy *op);

/* attention_forward.c, attention_backward.c */
void ISA(attention_forward)(struct device *dev, const struct attention *op);
void ISA(attention_backward)(struct device *dev, const struct attention_backward *op);

#endif

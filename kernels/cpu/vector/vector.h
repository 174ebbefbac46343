/*
 * vector.h - the operations of this folder, as kernels.h describes them, under this instruction set's names. table.c
 * gathers them.
 */
#ifndef MUSTER_KERNELS_CPU_VECTOR_VECTOR_H
#define MUSTER_KERNELS_CPU_VECTOR_VECTOR_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector/vec.h"

/* pointwise.c */
void ISA(gelu)(struct device *dev, float *c, int ldc, const float *aux, int m, int n, bool accumulate);
void ISA(gelu_backward)(struct device *dev, float *c, int ldc, const float *aux, int m, int n);
void ISA(add)(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count);

/* adamw.c, sum_of_squares.c */
void ISA(adamw)(struct device *dev, const struct adamw *op);
void ISA(sum_of_squares)(struct device *dev, double *result, const float *x, size_t count);

/* layernorm.c, layernorm_backward.c */
void ISA(layernorm_forward)(struct device *dev, const struct layernorm *op);
void ISA(layernorm_backward)(struct device *dev, const struct layernorm_backward *op);

/* columns.c */
void ISA(bias_backward)(struct device *dev, enum dtype dtype, void *db, const void *dy, int rows, int n);

/*
 * Sums over rows are made of at most ROW_BLOCKS partial sums, each over a fixed range of rows, added in order: so they
 * do not depend on the number of threads.
 */
#define ROW_BLOCKS 64

struct row_blocks {
    int count; /* of blocks */
    int rows;  /* in each but the last */
};

static inline struct row_blocks row_blocks(int rows)
{
    int each = (rows + ROW_BLOCKS - 1) / ROW_BLOCKS;

    if (each < 8)
        each = 8;
    return (struct row_blocks){(rows + each - 1) / each, each};
}

/* sum[n] = the first n floats of each of `blocks` partial sums that lie `stride` floats apart. */
void ISA(add_partial_sums)(struct device *dev, float *sum, const float *partial, int blocks, size_t stride, int n);

/* embedding.c */
void ISA(embedding_forward)(struct device *dev, const struct embedding *op);
void ISA(embedding_backward)(struct device *dev, const struct embedding_backward *op);

/* cross_entropy.c */
void ISA(cross_entropy_stats)(struct device *dev, const struct cross_entropy *op);
void ISA(cross_entropy_finish)(struct device *dev, const struct cross_entropy *op);

/* attention_forward.c, attention_backward.c */
void ISA(attention_forward)(struct device *dev, const struct attention *op);
void ISA(attention_backward)(struct device *dev, const struct attention_backward *op);

#endif

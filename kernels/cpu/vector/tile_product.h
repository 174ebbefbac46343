/*
 * tile_product.h - the small matrix products inside attention: c[m, columns] (+)= a[m,k] * b[k, columns].
 *
 * The columns are whole vectors. Elements of a are read one at a time and spread over a vector, so a may have any two
 * strides and is never packed or transposed; rows of b and c are contiguous.
 */
#ifndef MUSTER_KERNELS_CPU_VECTOR_TILE_PRODUCT_H
#define MUSTER_KERNELS_CPU_VECTOR_TILE_PRODUCT_H

#include "kernels/cpu/vector/vec.h"

#include <stdbool.h>

struct tile_product {
    int m, vectors, k;
    const float *a;
    ptrdiff_t a_row, a_column; /* distance from a[i,p] to a[i+1,p] and to a[i,p+1] */
    const float *b;
    ptrdiff_t b_row;
    float *c;
    ptrdiff_t c_row;
    bool accumulate;
};

void ISA(tile_product)(const struct tile_product *op);

#endif

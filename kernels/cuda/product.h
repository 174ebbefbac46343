/*
 * product.h - a product of kernels.h in cuBLASLt's terms; internal to kernels/cuda. A pure function, tested on the CPU.
 *
 * cuBLASLt's matrices are column-major. What is stored row-major [r,c] with row stride ld is, read so, its transpose
 * [c,r] with column stride ld; and c = ab is the same as c' = b'a'. So the first factor is our b, the second our a, no
 * element moves, and a bias over our columns is cuBLASLt's bias over its rows.
 *
 * Not every epilogue can be left to it. What it cannot do, or does less exactly than kernels.h asks, is done by a
 * kernel (epilogue.cu) on the product, which then goes to scratch in fp32:
 *  - gelu of fp32: cuBLASLt does not say how exact its tanh is, and in 16 bits that is below the rounding;
 *  - gelu or its derivative with accumulate: cuBLASLt adds c before the epilogue, kernels.h after it;
 *  - aux of rows that are no multiple of 16 bytes, and operands of an epilogue, or sums, that do not begin at one;
 *  - 16-bit factors with c in fp32, where cuBLASLt wants the bias and aux in fp32 too.
 */
#ifndef MUSTER_KERNELS_CUDA_PRODUCT_H
#define MUSTER_KERNELS_CUDA_PRODUCT_H

#include "kernels/device.h"

/* Bytes that cuBLASLt's kernels like to read at once. Operands of an epilogue that is left to it begin at such. */
#define PRODUCT_VECTOR 16

/* As cuBLASLt's layout: column-major, columns ld elements apart, of one type. */
struct product_matrix {
    int rows, cols, ld;
    enum dtype dtype;
    int alignment; /* bytes, a power of 2: what address and stride both keep; at most 16 */
};

/* d[m,n] = op(first)[m,k] op(second)[k,n] + beta d; m and n are not those of struct matmul, but exchanged. Plain bytes
 * that depend on the shapes alone, unused ones zero: two products of equal bytes can be made by the same algorithm. */
struct product {
    int m, n, k;
    int transpose_first, transpose_second;
    struct product_matrix first, second, d;
    int accumulate;         /* beta is 1, else 0 */
    enum epilogue epilogue; /* what cuBLASLt does */
    int ld_aux;             /* of BIAS_GELU and DGELU */
    enum dtype dtype_bias;  /* of bias and aux */
    int sums;               /* cuBLASLt also sums `first` over k, as the gradient of a bias */

    int unfused; /* d is scratch, packed fp32 [op->m, op->n], and the whole epilogue is still to be done */
};

/* The strides of `op` must be given. fuse: 0 leaves no epilogue and no sums to cuBLASLt, for shapes where it turns out
 * to have none. */
void product_of_matmul(struct product *product, const struct matmul *op, int fuse);

/* The bytes of scratch that d needs; 0 if it is c. */
size_t product_scratch(const struct product *product);

#endif

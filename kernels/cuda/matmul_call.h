/*
 * matmul_call.h - a matmul of kernels.h in cuBLASLt's terms; internal to kernels/cuda. A pure function, tested on the
 * CPU.
 *
 * cuBLASLt's matrices are column-major. Read as column-major, a row-major [rows, cols] with row stride ld is its
 * transpose [cols, rows] with column stride ld; and c = ab is the same as c^T = b^T a^T. So the first factor is our b,
 * the second our a, no element moves, and a bias over our columns is cuBLASLt's bias over its rows.
 *
 * cuBLASLt cannot fuse every epilogue. Those that it cannot compute, or computes less exactly than kernels.h asks, are
 * applied by a kernel of our own (pointwise.cu) to the product, which then goes to scratch in fp32:
 *  - gelu of fp32, because the error of cuBLASLt's tanh is not documented (in 16 bits the rounding hides it);
 *  - an aux whose row stride, or a bias or aux whose address, is not a multiple of 16 bytes;
 *  - 16-bit factors with c in fp32, where cuBLASLt wants the bias and aux in fp32 too.
 */
#ifndef MUSTER_KERNELS_CUDA_MATMUL_CALL_H
#define MUSTER_KERNELS_CUDA_MATMUL_CALL_H

#include "kernels/device.h"

/* The bytes of a vector load of cuBLASLt's kernels. Operands of a fused epilogue must be aligned to it. */
#define MATMUL_VECTOR 16

/* As cuBLASLt's layout: column-major, columns ld elements apart, of one type. */
struct matmul_matrix {
    int rows, cols, ld;
    enum dtype dtype;
    int alignment; /* bytes, a power of 2: of both address and stride; at most 16 */
};

/* d = op(first) op(second) + beta d. It holds shapes, types, strides and alignments, but no addresses; unused bytes are
 * zero. So products whose calls have equal bytes can use the same algorithm. */
struct matmul_call {
    int transpose_first, transpose_second;
    struct matmul_matrix first, second, d;
    int accumulate;         /* beta is 1, else 0 */
    enum epilogue epilogue; /* the fused one; bias and aux have the type of first */
    int ld_aux;             /* of BIAS_GELU and DGELU */

    int unfused; /* d is scratch, packed fp32 [op->m, op->n], and our kernel must apply the whole epilogue */
};

/* The strides of `op` must be given. fuse: 0 fuses no epilogue, for shapes where cuBLASLt turns out to have no
 * algorithm. */
void matmul_call_of(struct matmul_call *call, const struct matmul *op, int fuse);

/* The bytes of scratch that d needs; 0 if it is c. */
size_t matmul_call_scratch(const struct matmul_call *call);

#endif

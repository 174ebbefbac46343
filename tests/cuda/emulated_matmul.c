#include "tests/cuda/emulated_names.h"
/* before what it renames */

#include "common/dtype.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/matmul_call.h"

/* In place of cuBLASLt three plain loops; what follows a product where cuBLASLt cannot do it is the kernel itself. */

static float get(enum dtype dtype, const void *x, size_t i)
{
    if (dtype == DTYPE_F32)
        return ((const float *)x)[i];
    return dtype == DTYPE_BF16 ? bf16_to_float(((const uint16_t *)x)[i]) : f16_to_float(((const uint16_t *)x)[i]);
}

static float element(const struct matmul *op, size_t row, size_t col)
{
    size_t lda = (size_t)op->lda, ldb = (size_t)op->ldb;
    float sum = op->accumulate ? ((const float *)op->c)[row * (size_t)op->ldc + col] : 0;

    for (size_t i = 0; i < (size_t)op->k; i++)
        sum += get(op->dtype, op->a, op->transpose_a ? i * lda + row : row * lda + i) *
               get(op->dtype, op->b, op->transpose_b ? col * ldb + i : i * ldb + col);
    return sum;
}

void cuda_matmul(struct device *dev, const struct matmul *given)
{
    struct matmul op = matmul_with_strides(given);
    size_t m = (size_t)op.m, n = (size_t)op.n;
    const void *summed;
    float *product;
    int columns;

    if (!device_ready(dev, op.dtype, "matmul") || !matmul_valid(dev, &op) || op.m == 0 || op.n == 0)
        return;
    product = cuda_workspace(dev, m * n * sizeof *product);
    if (!product)
        return;
    for (size_t i = 0; i < m * n; i++)
        product[i] = element(&op, i / n, i % n);
    cuda_epilogue(dev, &op, product);
    summed = matmul_summed(&op, &columns);
    if (op.sums)
        cuda_bias_backward(dev, op.dtype, op.sums, summed, op.k, columns, false);
}

#include "kernels/cuda/product.h"

#include <string.h>

static bool is_gelu(enum epilogue epilogue)
{
    return epilogue == EPILOGUE_BIAS_GELU || epilogue == EPILOGUE_DGELU;
}

static bool has_bias(enum epilogue epilogue)
{
    return epilogue == EPILOGUE_BIAS || epilogue == EPILOGUE_BIAS_GELU;
}

static int alignment_of(const void *at, size_t stride)
{
    uintptr_t both = (uintptr_t)at | (uintptr_t)stride | PRODUCT_VECTOR;

    return (int)(both & (~both + 1));
}

static bool is_fusable(const struct matmul *op)
{
    size_t size = dtype_size(op->dtype);

    if (op->epilogue == EPILOGUE_NONE)
        return true;
    if (op->c_fp32 && op->dtype != DTYPE_F32)
        return false;
    if (has_bias(op->epilogue) && alignment_of(op->bias, PRODUCT_VECTOR) < PRODUCT_VECTOR)
        return false;
    if (!is_gelu(op->epilogue))
        return true;
    return op->dtype != DTYPE_F32 && !op->accumulate && alignment_of(op->aux, (size_t)op->n * size) == PRODUCT_VECTOR;
}

/* What is stored row-major [rows, ...] with row stride ld, of which `cols` are used. */
static struct product_matrix stored_matrix(const void *at, int rows, int cols, int ld, enum dtype dtype)
{
    return (struct product_matrix){
        .rows = cols,
        .cols = rows,
        .ld = ld,
        .dtype = dtype,
        .alignment = alignment_of(at, (size_t)ld * dtype_size(dtype)),
    };
}

void product_of_matmul(struct product *product, const struct matmul *op, int fuse)
{
    memset(product, 0, sizeof *product);
    product->m = op->n;
    product->n = op->m;
    product->k = op->k;
    product->transpose_first = op->transpose_b;
    product->transpose_second = op->transpose_a;
    product->first = op->transpose_b ? stored_matrix(op->b, op->n, op->k, op->ldb, op->dtype)
                                     : stored_matrix(op->b, op->k, op->n, op->ldb, op->dtype);
    product->second = op->transpose_a ? stored_matrix(op->a, op->k, op->m, op->lda, op->dtype)
                                      : stored_matrix(op->a, op->m, op->k, op->lda, op->dtype);
    product->unfused = op->epilogue != EPILOGUE_NONE && !(fuse && is_fusable(op));
    if (product->unfused) {
        product->d = stored_matrix(NULL, op->m, op->n, op->n, DTYPE_F32);
        return;
    }
    product->d = stored_matrix(op->c, op->m, op->n, op->ldc, op->c_fp32 ? DTYPE_F32 : op->dtype);
    product->accumulate = op->accumulate;
    product->epilogue = op->epilogue;
    product->sums = fuse && op->sums && alignment_of(op->sums, PRODUCT_VECTOR) == PRODUCT_VECTOR;
    if (op->epilogue != EPILOGUE_NONE)
        product->dtype_bias = op->dtype;
    if (is_gelu(op->epilogue))
        product->ld_aux = op->n;
}

size_t product_scratch(const struct product *product)
{
    return product->unfused ? (size_t)product->m * (size_t)product->n * sizeof(float) : 0;
}

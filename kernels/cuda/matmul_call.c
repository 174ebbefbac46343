#include "kernels/cuda/matmul_call.h"

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
    uintptr_t both = (uintptr_t)at | (uintptr_t)stride | MATMUL_VECTOR;

    return (int)(both & (~both + 1));
}

static bool is_fusable(const struct matmul *op)
{
    size_t size = dtype_size(op->dtype);

    if (op->epilogue == EPILOGUE_NONE)
        return true;
    if (op->c_fp32 && op->dtype != DTYPE_F32)
        return false;
    if (has_bias(op->epilogue) && alignment_of(op->bias, MATMUL_VECTOR) < MATMUL_VECTOR)
        return false;
    if (!is_gelu(op->epilogue))
        return true;
    return op->dtype != DTYPE_F32 && alignment_of(op->aux, (size_t)op->n * size) == MATMUL_VECTOR;
}

/* A row-major matrix [rows, cols] with row stride ld: to cuBLASLt it is the column-major [cols, rows]. */
static struct matmul_matrix stored_matrix(const void *at, int rows, int cols, int ld, enum dtype dtype)
{
    return (struct matmul_matrix){
        .rows = cols,
        .cols = rows,
        .ld = ld,
        .dtype = dtype,
        .alignment = alignment_of(at, (size_t)ld * dtype_size(dtype)),
    };
}

void matmul_call_of(struct matmul_call *call, const struct matmul *op, int fuse)
{
    memset(call, 0, sizeof *call);
    call->transpose_first = op->transpose_b;
    call->transpose_second = op->transpose_a;
    call->first = op->transpose_b ? stored_matrix(op->b, op->n, op->k, op->ldb, op->dtype)
                                  : stored_matrix(op->b, op->k, op->n, op->ldb, op->dtype);
    call->second = op->transpose_a ? stored_matrix(op->a, op->k, op->m, op->lda, op->dtype)
                                   : stored_matrix(op->a, op->m, op->k, op->lda, op->dtype);
    call->unfused = op->epilogue != EPILOGUE_NONE && !(fuse && is_fusable(op));
    if (call->unfused) {
        call->d = stored_matrix(NULL, op->m, op->n, op->n, DTYPE_F32);
        return;
    }
    call->d = stored_matrix(op->c, op->m, op->n, op->ldc, op->c_fp32 ? DTYPE_F32 : op->dtype);
    call->accumulate = op->accumulate;
    call->epilogue = op->epilogue;
    if (is_gelu(op->epilogue))
        call->ld_aux = op->n;
}

size_t matmul_call_scratch(const struct matmul_call *call)
{
    return call->unfused ? (size_t)call->d.rows * (size_t)call->d.cols * sizeof(float) : 0;
}

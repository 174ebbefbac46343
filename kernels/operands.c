#include "kernels/operands.h"

#include "kernels/device.h"

struct matmul matmul_with_strides(const struct matmul *op)
{
    struct matmul full = *op;

    if (!full.lda)
        full.lda = op->transpose_a ? op->m : op->k;
    if (!full.ldb)
        full.ldb = op->transpose_b ? op->k : op->n;
    if (!full.ldc)
        full.ldc = op->n;
    return full;
}

bool matmul_valid(struct device *dev, const struct matmul *op)
{
    bool needs_bias = op->epilogue == EPILOGUE_BIAS || op->epilogue == EPILOGUE_BIAS_GELU;
    bool needs_aux = op->epilogue == EPILOGUE_BIAS_GELU || op->epilogue == EPILOGUE_DGELU;
    const char *kind = dev->backend->kind;

    if (op->m < 0 || op->n < 0 || op->k < 1)
        device_fail(dev, CODE_INTERNAL,
                    "%s: matmul: m = %d, n = %d, k = %d; m and n must not be negative, k must be 1 or more", kind,
                    op->m, op->n, op->k);
    else if (op->lda < (op->transpose_a ? op->m : op->k) || op->ldb < (op->transpose_b ? op->k : op->n) ||
             op->ldc < op->n)
        device_fail(dev, CODE_INTERNAL,
                    "%s: matmul: lda = %d, ldb = %d, ldc = %d are too small for m = %d, n = %d, k = %d", kind, op->lda,
                    op->ldb, op->ldc, op->m, op->n, op->k);
    else if ((needs_bias && !op->bias) || (needs_aux && !op->aux))
        device_fail(dev, CODE_INTERNAL, "%s: matmul: the epilogue needs %s, which is NULL", kind,
                    needs_bias && !op->bias ? "bias" : "aux");
    else if (op->sums && (op->epilogue != EPILOGUE_NONE || op->transpose_b || op->ldb != op->n))
        device_fail(dev, CODE_INTERNAL, "%s: matmul: column sums are of a packed b, and go with no epilogue", kind);
    else
        return true;
    return false;
}

#include "kernels/cpu/cpu.h"

/* kernels.h: 0 means packed. */
static struct matmul with_strides(const struct matmul *op)
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

static bool valid(struct device *dev, const struct matmul *op)
{
    bool needs_bias = op->epilogue == EPILOGUE_BIAS || op->epilogue == EPILOGUE_BIAS_GELU;
    bool needs_aux = op->epilogue == EPILOGUE_BIAS_GELU || op->epilogue == EPILOGUE_DGELU;

    if (op->m < 0 || op->n < 0 || op->k < 1)
        device_fail(dev, CODE_INTERNAL,
                    "cpu: matmul: m = %d, n = %d, k = %d; m and n must not be negative, k must be 1 or more", op->m,
                    op->n, op->k);
    else if (op->lda < (op->transpose_a ? op->m : op->k) || op->ldb < (op->transpose_b ? op->k : op->n) ||
             op->ldc < op->n)
        device_fail(dev, CODE_INTERNAL,
                    "cpu: matmul: lda = %d, ldb = %d, ldc = %d are too small for m = %d, n = %d, k = %d", op->lda,
                    op->ldb, op->ldc, op->m, op->n, op->k);
    else if ((needs_bias && !op->bias) || (needs_aux && !op->aux))
        device_fail(dev, CODE_INTERNAL, "cpu: matmul: the epilogue needs %s, which is NULL",
                    needs_bias && !op->bias ? "bias" : "aux");
    else if (op->sums && (op->epilogue != EPILOGUE_NONE || op->transpose_b || op->ldb != op->n))
        device_fail(dev, CODE_INTERNAL, "cpu: matmul: column sums are of a packed b, and go with no epilogue");
    else
        return true;
    return false;
}

static enum dtype type_of_c(const struct matmul *op)
{
    return op->c_fp32 ? DTYPE_F32 : op->dtype;
}

static void *at(enum dtype dtype, const void *p, size_t index)
{
    return (char *)p + index * dtype_size(dtype);
}

/* Rows [first, first + rows) of op(a), and of c and aux. */
static struct matmul panel_of(const struct matmul *op, int first, int rows)
{
    struct matmul panel = *op;

    panel.m = rows;
    panel.a = at(op->dtype, op->a, (size_t)first * (size_t)(op->transpose_a ? 1 : op->lda));
    panel.c = at(type_of_c(op), op->c, (size_t)first * (size_t)op->ldc);
    panel.aux = at(op->dtype, op->aux, (size_t)first * (size_t)op->n);
    return panel;
}

static void bias_gelu(struct device *dev, const struct matmul *panel)
{
    struct matmul into_aux = *panel;

    into_aux.c = panel->aux;
    into_aux.c_fp32 = false;
    into_aux.ldc = panel->n;
    into_aux.accumulate = false;
    product(dev, &into_aux);
    device_cpu(dev)->vector->epilogue_gelu(dev, panel);
}

/* The product stays in fp32 until it has been multiplied: in c itself if that has room for it. */
static void dgelu(struct device *dev, const struct matmul *panel)
{
    struct matmul plain = *panel;

    plain.bias = NULL;
    plain.c_fp32 = true;
    if (panel->accumulate || type_of_c(panel) != DTYPE_F32) {
        plain.c = cpu_scratch(dev, (size_t)panel->m * (size_t)panel->n);
        if (!plain.c)
            return;
        plain.ldc = panel->n;
        plain.accumulate = false;
    }
    product(dev, &plain);
    device_cpu(dev)->vector->epilogue(dev, panel, panel->n, plain.c, plain.ldc);
}

void cpu_matmul(struct device *dev, const struct matmul *given)
{
    struct matmul op = with_strides(given);

    if (!device_ready(dev, op.dtype, "matmul") || !valid(dev, &op) || op.m == 0 || op.n == 0)
        return;
    if (op.sums)
        device_cpu(dev)->vector->op.bias_backward(dev, op.dtype, op.sums, op.b, op.k, op.n, false);
    if (op.epilogue == EPILOGUE_NONE || op.epilogue == EPILOGUE_DGELU)
        op.bias = NULL;
    if (!product_native(device_cpu(dev)->library, op.dtype)) {
        cpu_matmul_widened(dev, &op);
        return;
    }
    if (op.epilogue == EPILOGUE_NONE || op.epilogue == EPILOGUE_BIAS) {
        product(dev, &op);
        return;
    }
    for (int first = 0; first < op.m; first += PANEL_ROWS) {
        struct matmul panel = panel_of(&op, first, op.m - first < PANEL_ROWS ? op.m - first : PANEL_ROWS);

        if (op.epilogue == EPILOGUE_BIAS_GELU)
            bias_gelu(dev, &panel);
        else
            dgelu(dev, &panel);
    }
}

#include "kernels/cpu/cpu.h"
#include "kernels/operands.h"

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
    struct matmul op = matmul_with_strides(given);

    if (!device_ready(dev, op.dtype, "matmul") || !matmul_valid(dev, &op) || op.m == 0 || op.n == 0)
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

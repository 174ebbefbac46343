#include "kernels/cpu/cpu.h"

#define PANEL_ROWS 256 /* of c, multiplied and then run through gelu while still in the cache */

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
    else
        return true;
    return false;
}

/* Rows [first, first + rows) of op(a), and of c and aux. */
static struct matmul panel_of(const struct matmul *op, int first, int rows)
{
    struct matmul panel = *op;

    panel.m = rows;
    panel.a = (const float *)op->a + (size_t)first * (op->transpose_a ? 1 : op->lda);
    panel.c = (float *)op->c + (size_t)first * op->ldc;
    panel.aux = (float *)op->aux + (size_t)first * op->n;
    return panel;
}

static void bias_gelu(struct device *dev, const struct matmul *panel)
{
    struct matmul into_aux = *panel;

    into_aux.c = panel->aux;
    into_aux.ldc = panel->n;
    into_aux.accumulate = false;
    product(dev, &into_aux);
    device_cpu(dev)->vector->epilogue_gelu(dev, panel->c, panel->ldc, panel->aux, panel->m, panel->n,
                                           panel->accumulate);
}

/* With accumulate, what c holds must not be multiplied: the product is made beside it and added. */
static void dgelu(struct device *dev, const struct matmul *panel)
{
    struct matmul plain = *panel;
    float *beside = NULL;

    plain.bias = NULL;
    if (panel->accumulate) {
        beside = cpu_scratch(dev, (size_t)panel->m * panel->n);
        if (!beside)
            return;
        plain.c = beside;
        plain.ldc = panel->n;
        plain.accumulate = false;
    }
    product(dev, &plain);
    device_cpu(dev)->vector->epilogue_dgelu(dev, plain.c, plain.ldc, panel->aux, panel->m, panel->n);
    for (int row = 0; beside && row < panel->m; row++)
        dev->kernels.add(dev, panel->dtype, (float *)panel->c + (size_t)row * panel->ldc,
                         beside + (size_t)row * panel->n, panel->n);
}

void cpu_matmul(struct device *dev, const struct matmul *given)
{
    struct matmul op = with_strides(given);

    if (!device_ready(dev, op.dtype, "matmul") || !valid(dev, &op) || op.m == 0 || op.n == 0)
        return;
    if (op.epilogue == EPILOGUE_NONE || op.epilogue == EPILOGUE_BIAS) {
        if (op.epilogue == EPILOGUE_NONE)
            op.bias = NULL;
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

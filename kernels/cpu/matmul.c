#include "kernels/cpu/cpu.h"

#include <string.h>

static enum dtype type_of_c(const struct matmul *op)
{
    return op->c_fp32 ? DTYPE_F32 : op->dtype;
}

static void *at(enum dtype dtype, const void *p, size_t index)
{
    return (char *)p + index * dtype_size(dtype);
}

/* Rows [first, first + rows) of op(a), and of c and aux, whose rows are ld_aux apart. */
static struct matmul panel_of(const struct matmul *op, int ld_aux, int first, int rows)
{
    struct matmul panel = *op;

    panel.m = rows;
    panel.a = at(op->dtype, op->a, (size_t)first * (size_t)(op->transpose_a ? 1 : op->lda));
    panel.c = at(type_of_c(op), op->c, (size_t)first * (size_t)op->ldc);
    panel.aux = at(op->dtype, op->aux, (size_t)first * (size_t)ld_aux);
    return panel;
}

static void bias_gelu(struct device *dev, const struct matmul *panel, int ld_aux)
{
    struct matmul into_aux = *panel;

    into_aux.c = panel->aux;
    into_aux.c_fp32 = false;
    into_aux.ldc = ld_aux;
    into_aux.accumulate = false;
    product(dev, &into_aux);
    device_cpu(dev)->vector->epilogue_gelu(dev, panel, ld_aux);
}

/* The product stays in fp32 until it has been multiplied: in c itself if that has room for it. */
static void dgelu(struct device *dev, const struct matmul *panel, int ld_aux)
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
    device_cpu(dev)->vector->epilogue(dev, panel, ld_aux, plain.c, plain.ldc);
}

static void multiply(struct device *dev, const struct matmul *op, int ld_aux)
{
    if (op->epilogue == EPILOGUE_NONE || op->epilogue == EPILOGUE_BIAS) {
        product(dev, op);
        return;
    }
    for (int first = 0; first < op->m; first += PANEL_ROWS) {
        struct matmul panel = panel_of(op, ld_aux, first, op->m - first < PANEL_ROWS ? op->m - first : PANEL_ROWS);

        if (op->epilogue == EPILOGUE_BIAS_GELU)
            bias_gelu(dev, &panel, ld_aux);
        else
            dgelu(dev, &panel, ld_aux);
    }
}

/* Columns [first, first + columns) of op(b), c, bias and aux. */
static struct matmul columns_of(const struct matmul *op, int first, int columns)
{
    struct matmul part = *op;

    part.n = columns;
    part.b = at(op->dtype, op->b, (size_t)first);
    part.c = at(type_of_c(op), op->c, (size_t)first);
    part.bias = op->bias ? at(op->dtype, op->bias, (size_t)first) : NULL;
    part.aux = op->aux ? at(op->dtype, op->aux, (size_t)first) : NULL;
    return part;
}

static void copy_b(struct device *dev, float *to, int ld, const struct matmul *part)
{
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < part->k; row++)
        memcpy(to + (size_t)row * (size_t)ld, (const float *)part->b + (size_t)row * (size_t)part->ldb,
               (size_t)part->n * sizeof(float));
}

/* fp32: see workspace_copy_columns. */
static void multiply_copied(struct device *dev, const struct matmul *op, int columns)
{
    float *copy = device_cpu(dev)->copy.at;

    for (int first = 0; first < op->n; first += columns) {
        struct matmul part = columns_of(op, first, op->n - first < columns ? op->n - first : columns);
        int ld = workspace_copy_ld(part.n);

        copy_b(dev, copy, ld, &part);
        part.b = copy;
        part.ldb = ld;
        multiply(dev, &part, op->n);
    }
}

void cpu_matmul(struct device *dev, const struct matmul *given)
{
    struct matmul op = matmul_with_strides(given);
    struct cpu *cpu = device_cpu(dev);
    int columns;

    if (!device_ready(dev, op.dtype, "matmul") || !matmul_valid(dev, &op) || op.m == 0 || op.n == 0)
        return;
    if (op.sums)
        cpu->vector->op.bias_backward(dev, op.dtype, op.sums, op.b, op.k, op.n, false);
    if (op.epilogue == EPILOGUE_NONE || op.epilogue == EPILOGUE_DGELU)
        op.bias = NULL;
    if (!product_native(cpu->library, op.dtype)) {
        cpu_matmul_widened(dev, &op);
        return;
    }
    if (product_may_copy(op.dtype) && !cpu_grow(dev, &cpu->copy, COPY_BYTES))
        return;
    columns = product_wants_copy(cpu->library, &op) ? workspace_copy_columns(op.k, op.n) : 0;
    if (columns > 0)
        multiply_copied(dev, &op, columns);
    else
        multiply(dev, &op, op.n);
}

#include <string.h>

#include "kernels/cpu/cpu.h"

static enum dtype type_of_c(const struct matmul *op)
{
    return op->c_fp32 ? DTYPE_F32 : op->dtype;
}

static void *element_at(enum dtype dtype, const void *p, size_t index)
{
    return (char *)p + index * dtype_size(dtype);
}

/* Rows [first, first + rows) of op(a), and of c and aux, whose rows are ld_aux apart. */
static struct matmul panel_of(const struct matmul *op, int ld_aux, int first, int rows)
{
    struct matmul panel = *op;

    panel.m = rows;
    panel.a = element_at(op->dtype, op->a, (size_t)first * (size_t)(op->transpose_a ? 1 : op->lda));
    panel.c = element_at(type_of_c(op), op->c, (size_t)first * (size_t)op->ldc);
    panel.aux = element_at(op->dtype, op->aux, (size_t)first * (size_t)ld_aux);
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
static void apply_dgelu(struct device *dev, const struct matmul *panel, int ld_aux)
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

static void multiply_panels(struct device *dev, const struct matmul *op, int ld_aux)
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
            apply_dgelu(dev, &panel, ld_aux);
    }
}

/* Columns [first, first + columns) of op(b), c, bias and aux. */
static struct matmul columns_of(const struct matmul *op, int first, int columns)
{
    struct matmul part = *op;

    part.n = columns;
    part.b = element_at(op->dtype, op->b, (size_t)first);
    part.c = element_at(type_of_c(op), op->c, (size_t)first);
    part.bias = op->bias ? element_at(op->dtype, op->bias, (size_t)first) : NULL;
    part.aux = op->aux ? element_at(op->dtype, op->aux, (size_t)first) : NULL;
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
        multiply_panels(dev, &part, op->n);
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
        multiply_panels(dev, &op, op.n);
}

/*
 * Products of 16-bit types that the library has no code for: blocks of both operands are widened to fp32 (exactly), and
 * a block of c gathers their products in fp32 before its epilogue rounds it, once.
 */
struct blocks {
    float *a, *b, *c;
};

static int least_of(int a, int b)
{
    return a < b ? a : b;
}

static const void *widened_at(enum dtype dtype, const void *p, size_t index)
{
    return (const char *)p + index * dtype_size(dtype);
}

/* The block of an operand [rows, cols] that begins at (row, col); transposed, it is stored [cols, rows], y too. */
static void widen_tile(struct device *dev, float *y, int ld_y, enum dtype dtype, const void *x, int ld, bool transposed,
                       int row, int col, int rows, int cols)
{
    int first = transposed ? col : row, second = transposed ? row : col;

    device_cpu(dev)->vector->widen(dev, y, ld_y, dtype,
                                   widened_at(dtype, x, (size_t)first * (size_t)ld + (size_t)second), ld,
                                   transposed ? cols : rows, transposed ? rows : cols);
}

/* c's block = the product of a row of blocks of a and a column of blocks of b. */
static void gather_tile(struct device *dev, const struct matmul *op, const struct blocks *space,
                        const struct matmul *block, int row, int col)
{
    struct matmul fp32 = {.m = block->m,
                          .n = block->n,
                          .transpose_a = op->transpose_a,
                          .transpose_b = op->transpose_b,
                          .ldc = block->n,
                          .a = space->a,
                          .b = space->b,
                          .c = space->c};

    for (int k = 0; k < op->k; k += WIDENED_K) {
        fp32.k = least_of(op->k - k, WIDENED_K);
        fp32.lda = op->transpose_a ? fp32.m : fp32.k;
        fp32.ldb = op->transpose_b ? fp32.k : workspace_copy_ld(fp32.n);
        fp32.accumulate = k > 0;
        widen_tile(dev, space->a, fp32.lda, op->dtype, op->a, op->lda, op->transpose_a, row, k, fp32.m, fp32.k);
        widen_tile(dev, space->b, fp32.ldb, op->dtype, op->b, op->ldb, op->transpose_b, k, col, fp32.k, fp32.n);
        product(dev, &fp32);
    }
}

/* op on the block of c that begins at (row, col); its aux has rows op->n apart still. */
static struct matmul block_of(const struct matmul *op, int row, int col)
{
    size_t at_c = (size_t)row * (size_t)op->ldc + (size_t)col, at_aux = (size_t)row * (size_t)op->n + (size_t)col;
    struct matmul block = *op;

    block.m = least_of(op->m - row, WIDENED_M);
    block.n = least_of(op->n - col, WIDENED_N);
    block.c = (void *)widened_at(op->c_fp32 ? DTYPE_F32 : op->dtype, op->c, at_c);
    if (op->bias)
        block.bias = widened_at(op->dtype, op->bias, (size_t)col);
    if (op->aux)
        block.aux = (void *)widened_at(op->dtype, op->aux, at_aux);
    return block;
}

void cpu_matmul_widened(struct device *dev, const struct matmul *op)
{
    float *scratch = cpu_scratch(dev, workspace_widened_floats());
    struct blocks space = {scratch, scratch + WIDENED_M * WIDENED_K, scratch + WIDENED_M * WIDENED_K + WIDENED_B};

    if (!scratch)
        return;
    for (int col = 0; col < op->n; col += WIDENED_N)
        for (int row = 0; row < op->m; row += WIDENED_M) {
            struct matmul block = block_of(op, row, col);

            gather_tile(dev, op, &space, &block, row, col);
            device_cpu(dev)->vector->epilogue(dev, &block, op->n, space.c, block.n);
        }
}

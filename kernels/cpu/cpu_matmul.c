#include <string.h>

#include "kernels/cpu/cpu.h"

static int least_of(int a, int b)
{
    return a < b ? a : b;
}

/* Element [row, col] of an operand whose rows are `ld` apart. */
static void *element_at(enum dtype dtype, const void *p, int row, int ld, int col)
{
    return (char *)p + ((size_t)row * (size_t)ld + (size_t)col) * dtype_size(dtype);
}

static enum dtype type_of_c(const struct matmul *op)
{
    return op->c_fp32 ? DTYPE_F32 : op->dtype;
}

/* The product that computes the block [m,n] of c at (row, col); rows of aux are ld_aux apart. */
static struct matmul sub_product(const struct matmul *op, int ld_aux, int row, int col, int m, int n)
{
    struct matmul block = *op;

    block.m = m;
    block.n = n;
    block.a = op->transpose_a ? element_at(op->dtype, op->a, 0, 0, row) : element_at(op->dtype, op->a, row, op->lda, 0);
    block.b = op->transpose_b ? element_at(op->dtype, op->b, col, op->ldb, 0) : element_at(op->dtype, op->b, 0, 0, col);
    block.c = element_at(type_of_c(op), op->c, row, op->ldc, col);
    if (op->bias)
        block.bias = element_at(op->dtype, op->bias, 0, 0, col);
    if (op->aux)
        block.aux = element_at(op->dtype, op->aux, row, ld_aux, col);
    return block;
}

static void bias_gelu(struct device *dev, const struct matmul *panel, int ld_aux)
{
    struct matmul into_aux = *panel;

    into_aux.c = panel->aux;
    into_aux.c_fp32 = false;
    into_aux.ldc = ld_aux;
    matmul_library_run(dev, &into_aux);
    device_cpu(dev)->vector->epilogue(dev, panel, ld_aux, NULL, 0);
}

/* The product stays in fp32 until it is multiplied by gelu': in c itself if c is fp32. */
static void apply_dgelu(struct device *dev, const struct matmul *panel, int ld_aux)
{
    struct matmul plain = *panel;

    plain.bias = NULL;
    plain.c_fp32 = true;
    if (type_of_c(panel) != DTYPE_F32) {
        plain.c = cpu_scratch(dev, (size_t)panel->m * (size_t)panel->n);
        if (!plain.c)
            return;
        plain.ldc = panel->n;
    }
    matmul_library_run(dev, &plain);
    device_cpu(dev)->vector->epilogue(dev, panel, ld_aux, plain.c, plain.ldc);
}

static void multiply_panels(struct device *dev, const struct matmul *op, int ld_aux)
{
    if (op->epilogue == EPILOGUE_NONE || op->epilogue == EPILOGUE_BIAS) {
        matmul_library_run(dev, op);
        return;
    }
    for (int row = 0; row < op->m; row += PANEL_ROWS) {
        struct matmul panel = sub_product(op, ld_aux, row, 0, least_of(op->m - row, PANEL_ROWS), op->n);

        if (op->epilogue == EPILOGUE_BIAS_GELU)
            bias_gelu(dev, &panel, ld_aux);
        else
            apply_dgelu(dev, &panel, ld_aux);
    }
}

static void copy_b(struct device *dev, float *to, int ld, const struct matmul *part)
{
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < part->k; row++)
        memcpy(to + (size_t)row * (size_t)ld, (const float *)part->b + (size_t)row * (size_t)part->ldb,
               (size_t)part->n * sizeof(float));
}

/* fp32 only. Copies b, `columns` columns at a time, and multiplies with each copy. matmul_wants_copy (matmul_onednn.c)
 * has the reason. */
static void multiply_copied(struct device *dev, const struct matmul *op, int columns)
{
    float *copy = device_cpu(dev)->copy.at;

    for (int col = 0; col < op->n; col += columns) {
        struct matmul part = sub_product(op, op->n, 0, col, op->m, least_of(op->n - col, columns));
        int ld = workspace_copy_ld(part.n);

        copy_b(dev, copy, ld, &part);
        part.b = copy;
        part.ldb = ld;
        multiply_panels(dev, &part, op->n);
    }
}

/* ---- types that the library lacks -------------------------------------------------------------------------------- */

/*
 * Products of 16-bit types that the library has no code for: blocks of both operands are widened to fp32 (exactly), and
 * their products are accumulated in an fp32 block of c, which the epilogue rounds once.
 */

/* Widens a tile of an operand: [k, k + count) of its inner dimension, and all `side` elements of the other dimension.
 * The inner dimension is the operand's rows if k_rows, else its columns. */
static void widen_tile(struct device *dev, float *y, int ld_y, enum dtype dtype, const void *x, int ld, bool k_rows,
                       int k, int count, int side)
{
    const void *at = k_rows ? element_at(dtype, x, k, ld, 0) : element_at(dtype, x, 0, ld, k);

    device_cpu(dev)->vector->widen(dev, y, ld_y, dtype, at, ld, k_rows ? count : side, k_rows ? side : count);
}

/* One block of c: the product is summed WIDENED_K of k at a time. */
static void multiply_block(struct device *dev, const struct matmul *block, int ld_aux, float *scratch)
{
    float *a = scratch, *b = a + WIDENED_M * WIDENED_K, *c = b + WIDENED_B;
    struct matmul fp32 = {.m = block->m,
                          .n = block->n,
                          .transpose_a = block->transpose_a,
                          .transpose_b = block->transpose_b,
                          .ldc = block->n,
                          .a = a,
                          .b = b,
                          .c = c};

    for (int k = 0; k < block->k; k += WIDENED_K) {
        fp32.k = least_of(block->k - k, WIDENED_K);
        fp32.lda = block->transpose_a ? fp32.m : fp32.k;
        fp32.ldb = block->transpose_b ? fp32.k : workspace_copy_ld(fp32.n);
        fp32.accumulate = k > 0;
        widen_tile(dev, a, fp32.lda, block->dtype, block->a, block->lda, block->transpose_a, k, fp32.k, fp32.m);
        widen_tile(dev, b, fp32.ldb, block->dtype, block->b, block->ldb, !block->transpose_b, k, fp32.k, fp32.n);
        matmul_library_run(dev, &fp32);
    }
    device_cpu(dev)->vector->epilogue(dev, block, ld_aux, c, block->n);
}

void cpu_matmul_widened(struct device *dev, const struct matmul *op)
{
    float *scratch = cpu_scratch(dev, workspace_widened_floats());

    for (int col = 0; scratch && col < op->n; col += WIDENED_N)
        for (int row = 0; row < op->m; row += WIDENED_M) {
            struct matmul block =
                sub_product(op, op->n, row, col, least_of(op->m - row, WIDENED_M), least_of(op->n - col, WIDENED_N));

            multiply_block(dev, &block, op->n, scratch);
        }
}

void cpu_matmul(struct device *dev, const struct matmul *given)
{
    struct matmul op = matmul_with_strides(given);
    struct cpu *cpu = device_cpu(dev);
    const void *summed;
    int columns;

    if (!device_ready(dev, op.dtype, "matmul") || !matmul_valid(dev, &op) || op.m == 0 || op.n == 0)
        return;
    summed = matmul_summed(&op, &columns);
    if (op.sums)
        cpu->vector->op.bias_backward(dev, op.dtype, op.sums, summed, op.k, columns, false);
    if (op.epilogue == EPILOGUE_NONE || op.epilogue == EPILOGUE_DGELU)
        op.bias = NULL;
    if (!matmul_native(cpu->library, op.dtype)) {
        cpu_matmul_widened(dev, &op);
        return;
    }
    if (COPY_BYTES && op.dtype == DTYPE_F32 && !cpu_grow(dev, &cpu->copy, COPY_BYTES))
        return;
    columns = matmul_wants_copy(cpu->library, &op) ? workspace_copy_columns(op.k, op.n) : 0;
    if (columns > 0)
        multiply_copied(dev, &op, columns);
    else
        multiply_panels(dev, &op, op.n);
}

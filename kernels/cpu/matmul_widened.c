#include "kernels/cpu/cpu.h"

/*
 * Products of 16-bit types that the library has no code for: blocks of both operands are widened to fp32 (exactly), and
 * a block of c gathers their products in fp32 before its epilogue rounds it, once.
 */
struct blocks {
    float *a, *b, *c;
};

static int least(int a, int b)
{
    return a < b ? a : b;
}

static const void *at(enum dtype dtype, const void *p, size_t index)
{
    return (const char *)p + index * dtype_size(dtype);
}

/* The block of an operand [rows, cols] that begins at (row, col); transposed, it is stored [cols, rows], y too. */
static void widen(struct device *dev, float *y, int ld_y, enum dtype dtype, const void *x, int ld, bool transposed,
                  int row, int col, int rows, int cols)
{
    int first = transposed ? col : row, second = transposed ? row : col;

    device_cpu(dev)->vector->widen(dev, y, ld_y, dtype, at(dtype, x, (size_t)first * (size_t)ld + (size_t)second), ld,
                                   transposed ? cols : rows, transposed ? rows : cols);
}

/* c's block = the product of a row of blocks of a and a column of blocks of b. */
static void gather(struct device *dev, const struct matmul *op, const struct blocks *space, const struct matmul *block,
                   int row, int col)
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
        fp32.k = least(op->k - k, WIDENED_K);
        fp32.lda = op->transpose_a ? fp32.m : fp32.k;
        fp32.ldb = op->transpose_b ? fp32.k : workspace_copy_ld(fp32.n);
        fp32.accumulate = k > 0;
        widen(dev, space->a, fp32.lda, op->dtype, op->a, op->lda, op->transpose_a, row, k, fp32.m, fp32.k);
        widen(dev, space->b, fp32.ldb, op->dtype, op->b, op->ldb, op->transpose_b, k, col, fp32.k, fp32.n);
        product(dev, &fp32);
    }
}

/* op on the block of c that begins at (row, col); its aux has rows op->n apart still. */
static struct matmul block_of(const struct matmul *op, int row, int col)
{
    size_t at_c = (size_t)row * (size_t)op->ldc + (size_t)col, at_aux = (size_t)row * (size_t)op->n + (size_t)col;
    struct matmul block = *op;

    block.m = least(op->m - row, WIDENED_M);
    block.n = least(op->n - col, WIDENED_N);
    block.c = (void *)at(op->c_fp32 ? DTYPE_F32 : op->dtype, op->c, at_c);
    if (op->bias)
        block.bias = at(op->dtype, op->bias, (size_t)col);
    if (op->aux)
        block.aux = (void *)at(op->dtype, op->aux, at_aux);
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

            gather(dev, op, &space, &block, row, col);
            device_cpu(dev)->vector->epilogue(dev, &block, op->n, space.c, block.n);
        }
}

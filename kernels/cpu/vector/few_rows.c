/*
 * few_rows.c - a product of a few rows, such as one token's: c = a b takes as long as b takes to be read from memory.
 *
 * An element's sum has one order, which depends on k alone: not on m, the other rows or the number of threads. Threads
 * share columns of c. b is read once for FEW_ROWS rows.
 */
#include "kernels/cpu/vector/vector.h"

#define STREAMS     8    /* rows of b that are read side by side: the processor prefetches each of them */
#define CACHED_SUMS 4096 /* floats of y that stay in the first cache meanwhile */
#define TILE_B      4    /* b transposed: its rows, and those of a, whose sums are in registers at once */
#define TILE_A      2

/* y[row][i ...] += a[row][k ...] times `count` rows of b, for a vector of columns; only `lanes` of them exist. */
INLINE void add_rows_of_b(enum dtype T, const struct matmul *op, const float *a, float *y, int rows, size_t k,
                          size_t count, size_t i, size_t lanes)
{
    size_t n = (size_t)op->n, ld = (size_t)op->ldb, depth = (size_t)op->k;
    vec b[STREAMS];

#pragma GCC unroll 8
    for (size_t j = 0; j < count; j++)
        b[j] = typed_load_part(T, op->b, (k + j) * ld + i, lanes);
    for (int row = 0; row < rows; row++) {
        vec sum = vec_load_part(y + (size_t)row * n + i, lanes);

#pragma GCC unroll 8
        for (size_t j = 0; j < count; j++)
            sum += a[(size_t)row * depth + k + j] * b[j];
        vec_store_part(y + (size_t)row * n + i, sum, lanes);
    }
}

INLINE void add_streams(enum dtype T, const struct matmul *op, const float *a, float *y, int rows, size_t k,
                        size_t count, size_t first, size_t end)
{
    size_t i = first;

    for (; i + LANES <= end; i += LANES)
        add_rows_of_b(T, op, a, y, rows, k, count, i, LANES);
    if (i < end)
        add_rows_of_b(T, op, a, y, rows, k, count, i, end - i);
}

/* Columns [first, end) of c; b is [k, n]. */
INLINE void sum_streams(enum dtype T, const struct matmul *op, const float *a, float *y, int rows, size_t first,
                        size_t end)
{
    size_t depth = (size_t)op->k, k = 0;

    for (int row = 0; row < rows; row++)
        memset(y + (size_t)row * (size_t)op->n + first, 0, (end - first) * sizeof *y);
    for (; k + STREAMS <= depth; k += STREAMS)
        add_streams(T, op, a, y, rows, k, STREAMS, first, end);
    for (; k < depth; k++)
        add_streams(T, op, a, y, rows, k, 1, first, end);
}

/* sum[row][j] += a[row] times row first + j of b, for the LANES columns at k; only `lanes` of them exist. */
INLINE void add_products(enum dtype T, const struct matmul *op, const float *a, vec sum[TILE_A][TILE_B], int rows,
                         size_t first, int count, size_t k, size_t lanes)
{
    size_t depth = (size_t)op->k, ld = (size_t)op->ldb;
    vec b[TILE_B];

#pragma GCC unroll 4
    for (int j = 0; j < count; j++)
        b[j] = typed_load_part(T, op->b, (first + (size_t)j) * ld + k, lanes);
#pragma GCC unroll 2
    for (int row = 0; row < rows; row++) {
        vec x = vec_load_part(a + (size_t)row * depth + k, lanes);

#pragma GCC unroll 4
        for (int j = 0; j < count; j++)
            sum[row][j] += x * b[j];
    }
}

/* Dot products of `rows` rows of a with `count` rows of b, which is [n, k], from its row `first` on. */
INLINE void tile_of_dots(enum dtype T, const struct matmul *op, const float *a, float *y, int rows, size_t first,
                         int count)
{
    size_t depth = (size_t)op->k, k = 0;
    vec sum[TILE_A][TILE_B] = {{{0}}};

    for (; k + LANES <= depth; k += LANES)
        add_products(T, op, a, sum, rows, first, count, k, LANES);
    if (k < depth)
        add_products(T, op, a, sum, rows, first, count, k, depth - k);
    for (int row = 0; row < rows; row++)
        for (int j = 0; j < count; j++)
            y[(size_t)row * (size_t)op->n + first + (size_t)j] = vec_sum(sum[row][j]);
}

/* Columns [first, end) of c, which are rows of b. Most tiles have sizes that the compiler knows. */
INLINE void dot_products(enum dtype T, const struct matmul *op, const float *a, float *y, int rows, size_t first,
                         size_t end)
{
    size_t depth = (size_t)op->k, n = (size_t)op->n, j = first;

    for (; j + TILE_B <= end; j += TILE_B) {
        int row = 0;

        for (; row + TILE_A <= rows; row += TILE_A)
            tile_of_dots(T, op, a + (size_t)row * depth, y + (size_t)row * n, TILE_A, j, TILE_B);
        if (row < rows)
            tile_of_dots(T, op, a + (size_t)row * depth, y + (size_t)row * n, 1, j, TILE_B);
    }
    for (; j < end; j++)
        for (int row = 0; row < rows; row++)
            tile_of_dots(T, op, a + (size_t)row * depth, y + (size_t)row * n, 1, j, 1);
}

/* Columns that a thread computes at a time: long runs of b's rows, but sums that stay in the first cache. */
static size_t strip_columns(const struct device *dev, const struct matmul *op, int rows)
{
    size_t each = ((size_t)op->n + (size_t)dev->threads - 1) / (size_t)dev->threads;
    size_t most = CACHED_SUMS / (size_t)rows;

    each = (each + 63) / 64 * 64;
    return each < most ? each : most;
}

static void multiply_strips(struct device *dev, const struct matmul *op, const float *a, float *y)
{
    size_t n = (size_t)op->n, strip = strip_columns(dev, op, op->m);

#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (size_t first = 0; first < n; first += strip) {
        size_t end = n - first < strip ? n : first + strip;

        if (op->transpose_b)
            WITH_DTYPE(op->dtype, T, dot_products(T, op, a, y, op->m, first, end));
        else
            WITH_DTYPE(op->dtype, T, sum_streams(T, op, a, y, op->m, first, end));
    }
}

void ISA(few_rows)(struct device *dev, const struct matmul *op)
{
    float *y = cpu_scratch(dev, workspace_few_rows(op->n, op->k)), *a = y + FEW_ROWS * (size_t)op->n;

    for (int done = 0; y && done < op->m; done += FEW_ROWS) {
        struct matmul part = *op;

        part.m = op->m - done < FEW_ROWS ? op->m - done : FEW_ROWS;
        part.a = typed_at(op->dtype, op->a, (size_t)done * (size_t)op->lda);
        part.c = typed_at_mutable(op->dtype, op->c, (size_t)done * (size_t)op->ldc);
        part.aux = op->aux ? typed_at_mutable(op->dtype, op->aux, (size_t)done * (size_t)op->n) : NULL;
        ISA(widen)(dev, a, op->k, op->dtype, part.a, op->lda, part.m, op->k);
        multiply_strips(dev, &part, a, y);
        ISA(epilogue)(dev, &part, op->n, y, op->n);
    }
}

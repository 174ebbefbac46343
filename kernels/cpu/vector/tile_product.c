#include "kernels/cpu/vector/tile_product.h"

/*
 * A block of ROWS x VECTORS vectors of c stays in registers over the whole of k. With 32 registers 4 x 4 fit, with 16
 * registers 4 x 2; each step of k loads as many numbers as it needs multiplications to hide.
 */
#define ROWS 4
#if defined(__AVX512F__) || defined(__aarch64__)
#define VECTORS 4
#else
#define VECTORS 2
#endif

/* Inlined with constant `rows` and `vectors`, so that the loops over them unroll and `sum` lives in registers. */
__attribute__((always_inline)) static inline void block(const struct tile_product *op, int rows, int vectors,
                                                        const float *a, const float *b, float *c)
{
    const ptrdiff_t a_row = op->a_row, a_column = op->a_column, b_row = op->b_row, c_row = op->c_row;
    vec sum[ROWS][VECTORS];

#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            sum[i][v] = op->accumulate ? vec_load(c + i * c_row + v * LANES) : (vec){0};
    for (int p = 0; p < op->k; p++) {
        vec row[VECTORS];

#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            row[v] = vec_load(b + v * LANES);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            vec element = vec_all(a[i * a_row]);

#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                sum[i][v] += element * row[v];
        }
        a += a_column;
        b += b_row;
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            vec_store(c + i * c_row + v * LANES, sum[i][v]);
}

/* All rows of a strip of `vectors` columns; b's strip is read again for every block of rows, from the nearest cache. */
__attribute__((always_inline)) static inline void strip(const struct tile_product *op, int vectors, int first)
{
    const float *a = op->a, *b = op->b + first * LANES;
    float *c = op->c + first * LANES;
    int left = op->m;

    for (; left >= ROWS; left -= ROWS, a += ROWS * op->a_row, c += ROWS * op->c_row)
        block(op, ROWS, vectors, a, b, c);
    if (left == 3)
        block(op, 3, vectors, a, b, c);
    else if (left == 2)
        block(op, 2, vectors, a, b, c);
    else if (left == 1)
        block(op, 1, vectors, a, b, c);
}

void ISA(tile_product)(const struct tile_product *op)
{
    int first = 0;

    for (; first + VECTORS <= op->vectors; first += VECTORS)
        strip(op, VECTORS, first);
#if VECTORS == 4
    if (op->vectors - first == 3)
        strip(op, 3, first);
    else if (op->vectors - first == 2)
        strip(op, 2, first);
#endif
    if (op->vectors - first == 1)
        strip(op, 1, first);
}

#include "kernels/cpu/vector/vector.h"

/* T: the type of aux and bias; C: of c. */
#define WITH_TYPES_OF(op, T, C, ...)                                                                                   \
    WITH_DTYPE((op)->dtype, T,                                                                                         \
               if ((op)->c_fp32) {                                                                                     \
                   const enum dtype C = DTYPE_F32;                                                                     \
                   __VA_ARGS__;                                                                                        \
               } else {                                                                                                \
                   const enum dtype C = T;                                                                             \
                   __VA_ARGS__;                                                                                        \
               })

/* aux is rounded before gelu is made of it: the backward pass sees the same number. */
INLINE vec bias_gelu(enum dtype T, const struct matmul *op, size_t at, vec y, size_t count)
{
    y = typed_round(T, y);
    typed_store_part(T, op->aux, at, y, count);
    return vec_gelu(y);
}

INLINE void epilogue_row(enum dtype T, enum dtype C, const struct matmul *op, size_t ld_aux, const float *product,
                         size_t row)
{
    size_t n = (size_t)op->n;

    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec y = product ? vec_load_part(product + i, count) : typed_load_part(T, op->aux, row * ld_aux + i, count);

        if (product && (op->epilogue == EPILOGUE_BIAS || op->epilogue == EPILOGUE_BIAS_GELU))
            y += typed_load_part(T, op->bias, i, count);
        if (op->epilogue == EPILOGUE_BIAS_GELU)
            y = product ? bias_gelu(T, op, row * ld_aux + i, y, count) : vec_gelu(y);
        if (op->epilogue == EPILOGUE_DGELU)
            y *= vec_gelu_derivative(typed_load_part(T, op->aux, row * ld_aux + i, count));
        if (op->accumulate)
            y += typed_load_part(C, op->c, row * (size_t)op->ldc + i, count);
        typed_store_part(C, op->c, row * (size_t)op->ldc + i, y, count);
    }
}

void ISA(epilogue)(struct device *dev, const struct matmul *op, int ld_aux, const float *product, int ld)
{
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < op->m; row++) {
        const float *at = product ? product + (size_t)row * (size_t)ld : NULL;

        WITH_TYPES_OF(op, T, C, epilogue_row(T, C, op, (size_t)ld_aux, at, (size_t)row));
    }
}

INLINE void widen_row(enum dtype T, float *y, const void *x, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);

        vec_store_part(y + i, typed_load_part(T, x, i, count), count);
    }
}

void ISA(widen)(struct device *dev, float *y, int ld_y, enum dtype dtype, const void *x, int ld, int rows, int cols)
{
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < rows; row++)
        WITH_DTYPE(
            dtype, T,
            widen_row(T, y + (size_t)row * (size_t)ld_y, typed_at(T, x, (size_t)row * (size_t)ld), (size_t)cols));
}

/* ---- sums over rows, for the gradients of biases and norms ------------------------------------------------------- */

void ISA(add_partial_sums)(struct device *dev, float *sum, const float *partial, int blocks, size_t stride, int n,
                           bool accumulate)
{
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec s = vec_load_part(partial + i, count);

        for (int block = 1; block < blocks; block++)
            s += vec_load_part(partial + block * stride + i, count);
        if (accumulate)
            s += vec_load_part(sum + i, count);
        vec_store_part(sum + i, s, count);
    }
}

/* sum[n] = the rows of x. A strip of four vectors a row stays in registers while the rows go by, four at a time, so
 * that several cache lines are on their way at once. */
INLINE void sum_rows(enum dtype T, float *sum, const void *x, int rows, size_t n)
{
    size_t i = 0;

    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        vec s[4] = {{0}};

        for (int row = 0; row < rows; row++)
            for (int part = 0; part < 4; part++)
                s[part] += typed_load(T, x, row * n + i + part * LANES);
        for (int part = 0; part < 4; part++)
            vec_store(sum + i + part * LANES, s[part]);
    }
    for (; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec s = {0};

        for (int row = 0; row < rows; row++)
            s += typed_load_part(T, x, row * n + i, count);
        vec_store_part(sum + i, s, count);
    }
}

void ISA(bias_backward)(struct device *dev, enum dtype dtype, float *db, const void *dy, int rows, int n,
                        bool accumulate)
{
    struct row_blocks blocks = row_blocks(rows);
    float *partial;
    size_t stride;

    if (!device_ready(dev, dtype, "bias_backward"))
        return;
    partial = cpu_scratch_parts(dev, blocks.count, n, &stride);
    if (!partial)
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int block = 0; block < blocks.count; block++) {
        int first = block * blocks.rows;
        int count = rows - first < blocks.rows ? rows - first : blocks.rows;

        WITH_DTYPE(dtype, T, sum_rows(T, partial + block * stride, typed_at(T, dy, (size_t)first * n), count, n));
    }
    ISA(add_partial_sums)(dev, db, partial, blocks.count, stride, n, accumulate);
}

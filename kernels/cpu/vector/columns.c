#include "kernels/cpu/vector/typed.h"
#include "kernels/cpu/vector/vector.h"

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
    if (rows == 0) {
        if (!accumulate)
            memset(db, 0, n * sizeof(float));
        return;
    }
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

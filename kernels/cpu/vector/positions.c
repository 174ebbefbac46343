#include "kernels/cpu/vector/dropout.h"
#include "kernels/cpu/vector/vector.h"

static size_t position_of(const struct positions *op, int row)
{
    return ((size_t)op->first_row + (size_t)row) % (size_t)op->seq;
}

INLINE void forward_row(enum dtype T, const struct positions *op, struct dropout_run *run, int row)
{
    size_t n = (size_t)op->cols, at = (size_t)row * n;
    void *x = typed_at_mutable(T, op->x, at);
    const void *wpe = typed_at(T, op->wpe, position_of(op, row) * n);
    const void *wtt = op->wtt ? typed_at(T, op->wtt, (size_t)op->types[row] * n) : NULL;

    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec v = typed_load_part(T, x, i, count) + typed_load_part(T, wpe, i, count);

        if (wtt)
            v += typed_load_part(T, wtt, i, count);
        if (run)
            v = dropout_apply(run, v, op->dropout.first + at + i);
        typed_store_part(T, x, i, v, count);
    }
}

void ISA(positions_forward)(struct device *dev, const struct positions *op)
{
    if (!device_ready(dev, op->dtype, "positions_forward"))
        return;
#pragma omp parallel num_threads(dev->threads)
    {
        struct dropout_run bits, *run = dropout_begin(&bits, &op->dropout) ? &bits : NULL;

#pragma omp for schedule(static)
        for (int row = 0; row < op->rows; row++)
            WITH_DTYPE(op->dtype, T, forward_row(T, op, run, row));
    }
}

static void zero_columns(float *sums, int rows, size_t n, size_t first, size_t end)
{
    for (int row = 0; sums && row < rows; row++)
        memset(sums + (size_t)row * n + first, 0, (end - first) * sizeof *sums);
}

/* Columns [first, end) of every row, in the order of rows: whatever the number of threads, the sums are the same. */
INLINE void strip_backward(enum dtype T, const struct positions *op, size_t first, size_t end)
{
    size_t n = (size_t)op->cols;

    zero_columns(op->dwpe, op->seq, n, first, end);
    zero_columns(op->dwtt, 2, n, first, end);
    for (int row = 0; row < op->rows; row++) {
        const void *x = typed_at(T, op->x, (size_t)row * n + first);

        if (op->dwpe)
            typed_add_to(T, op->dwpe + position_of(op, row) * n + first, x, end - first);
        if (op->dwtt)
            typed_add_to(T, op->dwtt + (size_t)op->types[row] * n + first, x, end - first);
    }
}

void ISA(positions_backward)(struct device *dev, const struct positions *op)
{
    size_t strip = column_strip(dev, op->cols), n = (size_t)op->cols;

    if (!device_ready(dev, op->dtype, "positions_backward"))
        return;
    if (op->dropout.p > 0)
        ISA(dropout_backward)(dev, op->dtype, op->x, op->x, (size_t)op->rows * n, &op->dropout);
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (size_t first = 0; first < n; first += strip)
        WITH_DTYPE(op->dtype, T, strip_backward(T, op, first, n - first < strip ? n : first + strip));
}

#include "kernels/cpu/vector/typed.h"
#include "kernels/cpu/vector/vector.h"

/* The row of this slice that a token's is, or -1 where another rank has it. */
static int64_t slice_row(const struct embedding *op, int row)
{
    int64_t index = (int64_t)op->tokens[row] - op->vocab_first;

    return index >= 0 && index < op->vocab ? index : -1;
}

void ISA(embedding_forward)(struct device *dev, const struct embedding *op)
{
    size_t bytes = (size_t)op->cols * dtype_size(op->dtype);

    if (!device_ready(dev, op->dtype, "embedding_forward"))
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < op->rows; row++) {
        char *x = (char *)op->x + (size_t)row * bytes;
        int64_t from = slice_row(op, row);

        if (from >= 0)
            memcpy(x, (const char *)op->wte + (size_t)from * bytes, bytes);
        else
            memset(x, 0, bytes);
    }
}

/* Columns [first, end) of every row, in the order of rows: whatever the number of threads, the sums are the same. */
INLINE void strip_backward(enum dtype T, const struct embedding *op, size_t first, size_t end)
{
    size_t n = (size_t)op->cols;

    for (int row = 0; row < op->rows; row++) {
        int64_t index = slice_row(op, row);

        if (index >= 0)
            typed_add_to(T, op->dwte + (size_t)index * n + first, typed_at(T, op->x, (size_t)row * n + first),
                         end - first);
    }
}

void ISA(embedding_backward)(struct device *dev, const struct embedding *op)
{
    size_t strip = column_strip(dev, op->cols), n = (size_t)op->cols;

    if (!device_ready(dev, op->dtype, "embedding_backward"))
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (size_t first = 0; first < n; first += strip)
        WITH_DTYPE(op->dtype, T, strip_backward(T, op, first, n - first < strip ? n : first + strip));
}

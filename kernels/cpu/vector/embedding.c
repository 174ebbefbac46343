#include "kernels/cpu/vector/dropout.h"

/* The columns of one thread where rows are summed in order: whole cache lines. */
static size_t column_strip(const struct device *dev, int cols)
{
    return (((size_t)cols + (size_t)dev->threads - 1) / (size_t)dev->threads + 15) / 16 * 16;
}

/* The index in this slice of the row's token, or -1 if another rank has it. */
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

static size_t position_of(const struct position_embedding *op, int row)
{
    size_t start = op->document_start ? (size_t)op->document_start[row] : 0;

    return ((size_t)op->first_row + (size_t)row) % (size_t)op->seq - start;
}

INLINE void position_row(enum dtype T, const struct position_embedding *op, struct dropout_run *run, int row)
{
    size_t n = (size_t)op->cols, at = (size_t)row * n;
    void *x = typed_at(T, op->x, at);
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

void ISA(position_embedding_forward)(struct device *dev, const struct position_embedding *op)
{
    if (!device_ready(dev, op->dtype, "position_embedding_forward"))
        return;
#pragma omp parallel num_threads(dev->threads)
    {
        struct dropout_run bits, *run = dropout_begin(&bits, &op->dropout) ? &bits : NULL;

#pragma omp for schedule(static)
        for (int row = 0; row < op->rows; row++)
            WITH_DTYPE(op->dtype, T, position_row(T, op, run, row));
    }
}

static void zero_columns(float *sums, int rows, size_t n, size_t first, size_t end)
{
    for (int row = 0; sums && row < rows; row++)
        memset(sums + (size_t)row * n + first, 0, (end - first) * sizeof *sums);
}

/* Adds columns [first, end) up, in the order of rows like strip_backward. */
INLINE void position_strip(enum dtype T, const struct position_embedding *op, size_t first, size_t end)
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

void ISA(position_embedding_backward)(struct device *dev, const struct position_embedding *op)
{
    size_t strip = column_strip(dev, op->cols), n = (size_t)op->cols;

    if (!device_ready(dev, op->dtype, "position_embedding_backward"))
        return;
    if (op->dropout.p > 0)
        ISA(dropout_backward)(dev, op->dtype, op->x, op->x, (size_t)op->rows * n, &op->dropout);
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (size_t first = 0; first < n; first += strip)
        WITH_DTYPE(op->dtype, T, position_strip(T, op, first, n - first < strip ? n : first + strip));
}

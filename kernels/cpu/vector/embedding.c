#include "kernels/cpu/vector/vector.h"

/* NULL where another rank has the row. */
static const float *token_row(const struct embedding *op, int row)
{
    int64_t index = (int64_t)op->tokens[row] - op->vocab_first;

    return index >= 0 && index < op->vocab ? (const float *)op->wte + index * op->cols : NULL;
}

void ISA(embedding_forward)(struct device *dev, const struct embedding *op)
{
    size_t n = op->cols;

    if (!device_ready(dev, op->dtype, "embedding_forward"))
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < op->rows; row++) {
        const float *token = token_row(op, row);
        const float *position = op->wpe ? (const float *)op->wpe + row % op->seq * n : NULL;
        float *x = (float *)op->x + row * n;

        for (size_t i = 0; i < n; i += LANES) {
            size_t count = vec_count(i, n);
            vec v = {0};

            if (token)
                v += vec_load_part(token + i, count);
            if (position)
                v += vec_load_part(position + i, count);
            vec_store_part(x + i, v, count);
        }
    }
}

static void add_to(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);

        vec_store_part(y + i, vec_load_part(y + i, count) + vec_load_part(x + i, count), count);
    }
}

/* Columns [first, end) of every row, in the order of rows: whatever the number of threads, the sums are the same. */
static void strip_backward(const struct embedding_backward *op, size_t first, size_t end)
{
    size_t n = op->cols;
    float *dwte = op->dwte, *dwpe = op->dwpe;

    if (dwpe)
        for (int position = 0; position < op->seq; position++)
            memset(dwpe + position * n + first, 0, (end - first) * sizeof *dwpe);
    for (int row = 0; row < op->rows; row++) {
        const float *dx = (const float *)op->dx + row * n + first;
        int64_t index = (int64_t)op->tokens[row] - op->vocab_first;

        if (index >= 0 && index < op->vocab)
            add_to(dwte + index * n + first, dx, end - first);
        if (dwpe)
            add_to(dwpe + row % op->seq * n + first, dx, end - first);
    }
}

void ISA(embedding_backward)(struct device *dev, const struct embedding_backward *op)
{
    size_t strip = ((op->cols + dev->threads - 1) / dev->threads + 15) / 16 * 16; /* whole cache lines */

    if (!device_ready(dev, op->dtype, "embedding_backward"))
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (size_t first = 0; first < (size_t)op->cols; first += strip)
        strip_backward(op, first, first + strip < (size_t)op->cols ? first + strip : (size_t)op->cols);
}

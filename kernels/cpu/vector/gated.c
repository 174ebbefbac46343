#include "kernels/cpu/vector/vector.h"

INLINE void forward_row(enum dtype T, const struct gated *op, size_t row)
{
    size_t n = (size_t)op->cols;
    const void *gate = typed_at(T, op->x, 2 * row * n), *up = typed_at(T, gate, n);

    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec z = typed_load_part(T, gate, i, count), silu = z * vec_sigmoid(z).value;

        typed_store_part(T, op->y, row * n + i, silu * typed_load_part(T, up, i, count), count);
    }
}

void ISA(gated_forward)(struct device *dev, const struct gated *op)
{
    if (!device_ready(dev, op->dtype, "gated_forward"))
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < op->rows; row++)
        WITH_DTYPE(op->dtype, T, forward_row(T, op, (size_t)row));
}

/* With s = 1 / (1 + e^-z): silu' = s + z s (1 - s). */
INLINE void backward_row(enum dtype T, const struct gated *op, size_t row)
{
    size_t n = (size_t)op->cols, at = 2 * row * n;
    const void *gate = typed_at(T, op->x, at), *up = typed_at(T, gate, n);
    void *d_gate = typed_at(T, op->dx, at), *d_up = typed_at(T, d_gate, n);

    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec z = typed_load_part(T, gate, i, count), dy = typed_load_part(T, d_up, i, count);
        struct sigmoid s = vec_sigmoid(z);
        vec slope = s.value + z * s.value * s.rest;

        typed_store_part(T, d_gate, i, dy * typed_load_part(T, up, i, count) * slope, count);
        typed_store_part(T, d_up, i, dy * (z * s.value), count);
    }
}

void ISA(gated_backward)(struct device *dev, const struct gated *op)
{
    if (!device_ready(dev, op->dtype, "gated_backward"))
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < op->rows; row++)
        WITH_DTYPE(op->dtype, T, backward_row(T, op, (size_t)row));
}

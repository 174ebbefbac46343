#include "kernels/cpu/vector/vector.h"

/* A row's length is not always a multiple of LANES; the last vector of each row is loaded and stored in part. */
static void gelu_row(float *c, const float *aux, size_t n, bool accumulate)
{
    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec y = vec_gelu(vec_load_part(aux + i, count));

        if (accumulate)
            y += vec_load_part(c + i, count);
        vec_store_part(c + i, y, count);
    }
}

void ISA(gelu)(struct device *dev, float *c, int ldc, const float *aux, int m, int n, bool accumulate)
{
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < m; row++)
        gelu_row(c + (size_t)row * ldc, aux + (size_t)row * n, n, accumulate);
}

static void gelu_backward_row(float *c, const float *aux, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec slope = vec_gelu_derivative(vec_load_part(aux + i, count));

        vec_store_part(c + i, vec_load_part(c + i, count) * slope, count);
    }
}

void ISA(gelu_backward)(struct device *dev, float *c, int ldc, const float *aux, int m, int n)
{
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < m; row++)
        gelu_backward_row(c + (size_t)row * ldc, aux + (size_t)row * n, n);
}

void ISA(add)(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count)
{
    float *to = y;
    const float *from = x;

    if (!device_ready(dev, dtype, "add"))
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (size_t i = 0; i < count; i += LANES) {
        size_t part = vec_count(i, count);

        vec_store_part(to + i, vec_load_part(to + i, part) + vec_load_part(from + i, part), part);
    }
}

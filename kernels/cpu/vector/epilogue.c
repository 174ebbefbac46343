#include "kernels/cpu/vector/typed.h"
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

void ISA(epilogue_gelu)(struct device *dev, float *c, int ldc, const float *aux, int m, int n, bool accumulate)
{
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < m; row++)
        gelu_row(c + (size_t)row * ldc, aux + (size_t)row * n, n, accumulate);
}

static void dgelu_row(float *c, const float *aux, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec slope = vec_gelu_derivative(vec_load_part(aux + i, count));

        vec_store_part(c + i, vec_load_part(c + i, count) * slope, count);
    }
}

void ISA(epilogue_dgelu)(struct device *dev, float *c, int ldc, const float *aux, int m, int n)
{
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < m; row++)
        dgelu_row(c + (size_t)row * ldc, aux + (size_t)row * n, n);
}

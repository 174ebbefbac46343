#include "kernels/cpu/vector/vector.h"

#include <math.h>

#define EPSILON 1e-5f

/* s = x + residual, while summing it up: the one pass over memory. What follows finds the row in the nearest cache. */
static float add_residual(float *s, const float *x, const float *residual, size_t n)
{
    vec total = {0};

    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec v = vec_load_part(x + i, count);

        if (residual) {
            v += vec_load_part(residual + i, count);
            vec_store_part(s + i, v, count);
        }
        total += v;
    }
    return vec_sum(total);
}

/* Two passes, and not the mean of squares less the square of the mean, which cancels when the mean is large. */
static float variance(const float *s, float mean, size_t n)
{
    size_t whole = n / LANES * LANES;
    vec total = {0};
    float rest = 0;

    for (size_t i = 0; i < whole; i += LANES) {
        vec d = vec_load(s + i) - mean;

        total += d * d;
    }
    for (size_t i = whole; i < n; i++)
        rest += (s[i] - mean) * (s[i] - mean);
    return (vec_sum(total) + rest) / (float)n;
}

static void normalise(float *y, const float *s, const float *gamma, const float *beta, float mean, float rstd, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec normal = (vec_load_part(s + i, count) - mean) * rstd;

        vec_store_part(y + i, normal * vec_load_part(gamma + i, count) + vec_load_part(beta + i, count), count);
    }
}

void ISA(layernorm_forward)(struct device *dev, const struct layernorm *op)
{
    size_t n = op->cols;

    if (!device_ready(dev, op->dtype, "layernorm_forward"))
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < op->rows; row++) {
        const float *x = (const float *)op->x + row * n;
        const float *residual = op->residual ? (const float *)op->residual + row * n : NULL;
        float *sum = op->residual ? (float *)op->sum + row * n : NULL;
        float mean = add_residual(sum, x, residual, n) / (float)n;
        const float *s = sum ? sum : x;
        float rstd = 1.0f / sqrtf(variance(s, mean, n) + EPSILON);

        normalise((float *)op->y + row * n, s, op->gamma, op->beta, mean, rstd, n);
        op->mean[row] = mean;
        op->rstd[row] = rstd;
    }
}

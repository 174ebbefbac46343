#include "kernels/cpu/vector/dropout.h"
#include "kernels/cpu/vector/vector.h"

#include <math.h>

#define EPSILON 1e-5f

struct norm_row {
    const void *x, *residual, *bias;
    void *sum;
    uint64_t element;        /* of the first column, for dropout */
    struct dropout_run *run; /* NULL: no dropout */
};

/* What is added to x in the columns from i on. */
INLINE vec residual_part(enum dtype T, const struct norm_row *r, size_t i, size_t count)
{
    vec v = typed_load_part(T, r->residual, i, count);

    if (r->bias)
        v += typed_load_part(T, r->bias, i, count);
    return r->run ? dropout_apply(r->run, v, r->element + i) : v;
}

/* Writes sum and adds it up: the one pass over memory. What follows finds the row in the nearest cache. */
INLINE float add_residual(enum dtype T, const struct norm_row *r, size_t n)
{
    vec total = {0};

    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec v = r->x ? typed_load_part(T, r->x, i, count) : (vec){0};

        if (r->residual) {
            v = typed_round(T, v + residual_part(T, r, i, count));
            typed_store_part(T, r->sum, i, v, count);
        }
        total += v;
    }
    return vec_sum(total);
}

/* Two passes, and not the mean of squares less the square of the mean, which cancels when the mean is large. */
INLINE float variance(enum dtype T, const void *s, float mean, size_t n)
{
    size_t whole = n / LANES * LANES;
    vec total = {0};
    float rest = 0;

    for (size_t i = 0; i < whole; i += LANES) {
        vec d = typed_load(T, s, i) - mean;

        total += d * d;
    }
    for (size_t i = whole; i < n; i++) {
        float d = typed_get(T, s, i) - mean;

        rest += d * d;
    }
    return (vec_sum(total) + rest) / (float)n;
}

INLINE void normalise(enum dtype T, void *y, const void *s, const struct layernorm *op, float mean, float rstd)
{
    size_t n = (size_t)op->cols;

    for (size_t i = 0; i < n; i += LANES) {
        size_t count = vec_count(i, n);
        vec normal = (typed_load_part(T, s, i, count) - mean) * rstd;

        typed_store_part(
            T, y, i, normal * typed_load_part(T, op->gamma, i, count) + typed_load_part(T, op->beta, i, count), count);
    }
}

INLINE struct norm_row row_at(enum dtype T, const struct residual *op, struct dropout_run *run, int index)
{
    size_t at = (size_t)index * (size_t)op->cols;

    return (struct norm_row){
        .x = op->x ? typed_at(T, op->x, at) : NULL,
        .residual = op->residual ? typed_at(T, op->residual, at) : NULL,
        .bias = op->bias,
        .sum = op->residual ? typed_at_mutable(T, op->sum, at) : NULL,
        .element = op->dropout.first + at,
        .run = run,
    };
}

INLINE void forward_row(enum dtype T, const struct layernorm *op, const struct residual *part, struct dropout_run *run,
                        int index)
{
    size_t n = (size_t)op->cols;
    struct norm_row r = row_at(T, part, run, index);
    float mean = add_residual(T, &r, n) / (float)n;
    const void *s = r.sum ? r.sum : r.x;
    float rstd = 1.0f / sqrtf(variance(T, s, mean, n) + EPSILON);

    normalise(T, typed_at_mutable(T, op->y, (size_t)index * n), s, op, mean, rstd);
    op->mean[index] = mean;
    op->rstd[index] = rstd;
}

void ISA(layernorm_forward)(struct device *dev, const struct layernorm *op)
{
    const struct residual part = {op->rows, op->cols, op->dtype, op->x, op->residual, op->bias, op->dropout, op->sum};

    if (!device_ready(dev, op->dtype, "layernorm_forward"))
        return;
#pragma omp parallel num_threads(dev->threads)
    {
        struct dropout_run bits, *run = op->residual && dropout_begin(&bits, &op->dropout) ? &bits : NULL;

#pragma omp for schedule(static)
        for (int row = 0; row < op->rows; row++)
            WITH_DTYPE(op->dtype, T, forward_row(T, op, &part, run, row));
    }
}

INLINE void residual_row(enum dtype T, const struct residual *op, struct dropout_run *run, int index)
{
    struct norm_row r = row_at(T, op, run, index);

    add_residual(T, &r, (size_t)op->cols);
}

void ISA(residual)(struct device *dev, const struct residual *op)
{
    if (!device_ready(dev, op->dtype, "residual"))
        return;
#pragma omp parallel num_threads(dev->threads)
    {
        struct dropout_run bits, *run = dropout_begin(&bits, &op->dropout) ? &bits : NULL;

#pragma omp for schedule(static)
        for (int row = 0; row < op->rows; row++)
            WITH_DTYPE(op->dtype, T, residual_row(T, op, run, row));
    }
}

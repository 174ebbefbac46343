#include <math.h>

#include "kernels/cpu/vector/vector.h"

/* One head of one row. Elements i and half + i are rotated together. */
struct head_row {
    void *x;      /* in place */
    void *before; /* the norm's input; NULL: there is no norm, and the next three are not used */
    const void *gamma;
    float *rstd, *dgamma; /* dgamma: the partial sums of this block of rows */
    const float *angles;  /* of this row's position; NULL: no rotation */
    size_t half;
};

struct vec_pair {
    vec low, high; /* elements from i and from half + i on */
};

INLINE struct vec_pair load_pair(enum dtype T, const void *x, size_t half, size_t i, size_t count)
{
    return (struct vec_pair){typed_load_part(T, x, i, count), typed_load_part(T, x, half + i, count)};
}

INLINE void store_pair(enum dtype T, void *x, size_t half, size_t i, struct vec_pair p, size_t count)
{
    typed_store_part(T, x, i, p.low, count);
    typed_store_part(T, x, half + i, p.high, count);
}

/* By the angle, or with `sign` -1 back. */
INLINE struct vec_pair rotate(const struct head_row *h, size_t i, size_t count, struct vec_pair p, float sign)
{
    struct vec_pair angle; /* its cosines and sines */

    if (!h->angles)
        return p;
    angle = load_pair(DTYPE_F32, h->angles, h->half, i, count);
    angle.high *= sign;
    return (struct vec_pair){p.low * angle.low - p.high * angle.high, p.high * angle.low + p.low * angle.high};
}

/* Returns rstd. */
INLINE float keep_and_measure(enum dtype T, const struct head_row *h, float eps)
{
    vec total = {0};

    for (size_t i = 0; i < h->half; i += LANES) {
        size_t count = vec_count(i, h->half);
        struct vec_pair p = load_pair(T, h->x, h->half, i, count);

        store_pair(T, h->before, h->half, i, p, count);
        total += p.low * p.low + p.high * p.high;
    }
    return 1.0f / sqrtf(vec_sum(total) / (float)(2 * h->half) + eps);
}

INLINE void head_forward(enum dtype T, const struct head_row *h, float eps)
{
    float rstd = 1;

    if (h->before)
        *h->rstd = rstd = keep_and_measure(T, h, eps);
    for (size_t i = 0; i < h->half; i += LANES) {
        size_t count = vec_count(i, h->half);
        struct vec_pair p = load_pair(T, h->x, h->half, i, count);

        if (h->before) {
            struct vec_pair gamma = load_pair(T, h->gamma, h->half, i, count);

            p.low = p.low * rstd * gamma.low;
            p.high = p.high * rstd * gamma.high;
        }
        store_pair(T, h->x, h->half, i, rotate(h, i, count, p, 1), count);
    }
}

struct gradient {
    struct vec_pair xhat, g;
};

INLINE struct gradient gradient_at(enum dtype T, const struct head_row *h, size_t i, size_t count, struct vec_pair dy)
{
    struct vec_pair before = load_pair(T, h->before, h->half, i, count),
                    gamma = load_pair(T, h->gamma, h->half, i, count);

    return (struct gradient){.xhat = {before.low * *h->rstd, before.high * *h->rstd},
                             .g = {dy.low * gamma.low, dy.high * gamma.high}};
}

/* Adds to dgamma; returns mean(g * xhat). */
INLINE float sum_gradient(enum dtype T, const struct head_row *h)
{
    vec total = {0};

    for (size_t i = 0; i < h->half; i += LANES) {
        size_t count = vec_count(i, h->half);
        struct vec_pair dy = rotate(h, i, count, load_pair(T, h->x, h->half, i, count), -1);
        struct vec_pair sum = load_pair(DTYPE_F32, h->dgamma, h->half, i, count);
        struct gradient of = gradient_at(T, h, i, count, dy);

        sum.low += dy.low * of.xhat.low;
        sum.high += dy.high * of.xhat.high;
        store_pair(DTYPE_F32, h->dgamma, h->half, i, sum, count);
        total += of.g.low * of.xhat.low + of.g.high * of.xhat.high;
    }
    return vec_sum(total) / (float)(2 * h->half);
}

INLINE void head_backward(enum dtype T, const struct head_row *h)
{
    float mean = h->before ? sum_gradient(T, h) : 0;

    for (size_t i = 0; i < h->half; i += LANES) {
        size_t count = vec_count(i, h->half);
        struct vec_pair dx = rotate(h, i, count, load_pair(T, h->x, h->half, i, count), -1);

        if (h->before) {
            struct gradient of = gradient_at(T, h, i, count, dx);

            dx.low = *h->rstd * (of.g.low - of.xhat.low * mean);
            dx.high = *h->rstd * (of.g.high - of.xhat.high * mean);
        }
        store_pair(T, h->x, h->half, i, dx, count);
    }
}

/* Query heads are followed by key heads. */
INLINE struct head_row head_at(enum dtype T, const struct query_key *op, int row, int head, float *dgamma)
{
    size_t size = (size_t)op->head_size, heads = (size_t)(op->heads + op->kv_heads);
    size_t position = (size_t)(row % op->seq - (op->document_start ? op->document_start[row] : 0));
    size_t at = (size_t)row * heads + (size_t)head;
    bool is_query = head < op->heads;

    return (struct head_row){
        .x = typed_at(T, op->qkv, (size_t)row * attention_row(op->heads, op->kv_heads, op->head_size) + head * size),
        .before = op->gamma_q ? typed_at(T, op->before, at * size) : NULL,
        .gamma = is_query ? op->gamma_q : op->gamma_k,
        .rstd = op->gamma_q ? op->rstd + at : NULL,
        .dgamma = dgamma ? dgamma + (is_query ? 0 : size) : NULL,
        .angles = op->angles ? op->angles + position * size : NULL,
        .half = size / 2,
    };
}

INLINE void row_forward(enum dtype T, const struct query_key *op, int row)
{
    for (int i = 0; i < op->heads + op->kv_heads; i++) {
        struct head_row head = head_at(T, op, row, i, NULL);

        head_forward(T, &head, op->eps);
    }
}

void ISA(query_key_forward)(struct device *dev, const struct query_key *op)
{
    if (!device_ready(dev, op->dtype, "query_key_forward") || !query_key_valid(dev, op))
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < op->rows; row++)
        WITH_DTYPE(op->dtype, T, row_forward(T, op, row));
}

/* dgamma: of the queries' norm, and behind it of the keys'; NULL: there is none. */
INLINE void block_backward(enum dtype T, const struct query_key *op, int first, int end, float *dgamma)
{
    if (dgamma)
        memset(dgamma, 0, 2 * (size_t)op->head_size * sizeof *dgamma);
    for (int row = first; row < end; row++)
        for (int i = 0; i < op->heads + op->kv_heads; i++) {
            struct head_row head = head_at(T, op, row, i, dgamma);

            head_backward(T, &head);
        }
}

void ISA(query_key_backward)(struct device *dev, const struct query_key *op)
{
    struct row_blocks blocks = row_blocks(op->rows);
    size_t stride = 0, size = (size_t)op->head_size;
    float *partial = NULL;

    if (!device_ready(dev, op->dtype, "query_key_backward") || !query_key_valid(dev, op))
        return;
    if (op->gamma_q && !(partial = cpu_scratch_parts(dev, blocks.count, 2 * size, &stride)))
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int block = 0; block < blocks.count; block++) {
        int first = block * blocks.rows;
        int end = op->rows - first < blocks.rows ? op->rows : first + blocks.rows;

        WITH_DTYPE(op->dtype, T, block_backward(T, op, first, end, partial ? partial + block * stride : NULL));
    }
    if (!partial)
        return;
    ISA(add_partial_sums)(dev, op->dgamma_q, partial, blocks.count, stride, op->head_size, false);
    ISA(add_partial_sums)(dev, op->dgamma_k, partial + size, blocks.count, stride, op->head_size, false);
}

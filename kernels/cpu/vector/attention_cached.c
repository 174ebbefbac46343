/*
 * attention_cached.c - attention of single tokens to the cached keys and values of their sequences.
 *
 * A thread has one head of one row at a time: its scores against all keys, in groups of CACHE_GROUP whose lanes are
 * keys, then softmax, then the sum of values. The order of every sum depends on the row's position alone.
 */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/vector/vector.h"

#define GROUP_VECTORS (CACHE_GROUP / LANES)
#define GROUPS        4 /* whose scores are summed at once, since each sum waits for the one before */
#define SIZE_VECTORS  4 /* of a row of values, summed at once */

/* One head of one row. */
struct cached_head {
    int size, keys;        /* of the head; the number of keys that it sees */
    const void *k, *v;     /* [room / CACHE_GROUP, size, CACHE_GROUP] and [room, size] of its slot */
    size_t q;              /* first element in qkv */
    float *query, *scores; /* scratch: [size] and [room] */
};

/* The element of a slot's keys where dimension d of the key at a position is. */
INLINE size_t key_element(int size, int position, int d)
{
    return ((size_t)(position / CACHE_GROUP) * (size_t)size + (size_t)d) * CACHE_GROUP +
           (size_t)(position % CACHE_GROUP);
}

/* The first element of a head in its slot, of keys and of values. */
static size_t slot_element(const struct cached_attention *op, int row, int head)
{
    return ((size_t)op->slots[row] * (size_t)op->heads + (size_t)head) * (size_t)op->room * (size_t)op->head_size;
}

/* ---- the cache's new rows ---- */

INLINE void append_row(enum dtype T, const struct cached_attention *op, int row)
{
    size_t hidden = (size_t)op->heads * (size_t)op->head_size, from = (size_t)row * 3 * hidden;
    int position = op->positions[row], size = op->head_size;

    for (int head = 0; head < op->heads; head++) {
        size_t slot = slot_element(op, row, head), at = from + (size_t)head * (size_t)size;

        memcpy(typed_at_mutable(T, op->values, slot + (size_t)position * (size_t)size),
               typed_at(T, op->qkv, at + 2 * hidden), (size_t)size * dtype_size(T));
        for (int d = 0; d < size; d++)
            memcpy(typed_at_mutable(T, op->keys, slot + key_element(size, position, d)),
                   typed_at(T, op->qkv, at + hidden + (size_t)d), dtype_size(T));
    }
}

/* ---- one head ---- */

/* scores of keys [key, key + groups * CACHE_GROUP) */
INLINE void score_groups(enum dtype T, const struct cached_head *head, int key, int groups)
{
    vec sum[GROUPS][GROUP_VECTORS] = {{{0}}};
    size_t at = key_element(head->size, key, 0), next = (size_t)head->size * CACHE_GROUP;

    for (int d = 0; d < head->size; d++)
#pragma GCC unroll 4
        for (int g = 0; g < groups; g++)
#pragma GCC unroll 4
            for (int i = 0; i < GROUP_VECTORS; i++)
                sum[g][i] += head->query[d] *
                             typed_load(T, head->k, at + (size_t)g * next + (size_t)(d * CACHE_GROUP + i * LANES));
    for (int g = 0; g < groups; g++)
        for (int i = 0; i < GROUP_VECTORS; i++)
            vec_store(head->scores + key + g * CACHE_GROUP + i * LANES, sum[g][i]);
}

/* Scores to 2^(score - highest), 0 for the lanes without a key; returns 1 / their sum. */
INLINE float soften_scores(const struct cached_head *head, int padded)
{
    vec highest = vec_all(-FLT_MAX), sum = {0};
    float top;

    for (int key = head->keys; key < padded; key++)
        head->scores[key] = -FLT_MAX;
    for (int key = 0; key < padded; key += LANES)
        highest = vec_max(highest, vec_load(head->scores + key));
    top = vec_highest(highest);
    for (int key = 0; key < padded; key += LANES) {
        vec p = vec_exp2(vec_load(head->scores + key) - top);

        vec_store(head->scores + key, p);
        sum += p;
    }
    return 1.0f / vec_sum(sum);
}

/* `count` vectors of out, from column d on; the last has `lanes` lanes. */
INLINE void sum_values(enum dtype T, const struct cached_head *head, void *out, size_t at, int d, int count,
                       size_t lanes, float scale)
{
    vec sum[SIZE_VECTORS] = {{0}};

    for (int key = 0; key < head->keys; key++)
#pragma GCC unroll 4
        for (int i = 0; i < count; i++)
            sum[i] += head->scores[key] * typed_load_part(T, head->v,
                                                          (size_t)key * (size_t)head->size + (size_t)(d + i * LANES),
                                                          i + 1 < count ? LANES : lanes);
    for (int i = 0; i < count; i++)
        typed_store_part(T, out, at + (size_t)(d + i * LANES), sum[i] * scale, i + 1 < count ? LANES : lanes);
}

INLINE void attend_head(enum dtype T, const struct cached_attention *op, const struct cached_head *head, size_t out)
{
    int size = head->size, padded = (head->keys + CACHE_GROUP - 1) / CACHE_GROUP * CACHE_GROUP, key = 0, d = 0;
    float factor = LOG2_E / sqrtf((float)size), scale;

    for (int i = 0; i < size; i++)
        head->query[i] = typed_get(T, op->qkv, head->q + (size_t)i) * factor;
    for (; key + GROUPS * CACHE_GROUP <= padded; key += GROUPS * CACHE_GROUP)
        score_groups(T, head, key, GROUPS);
    for (; key < padded; key += CACHE_GROUP)
        score_groups(T, head, key, 1);
    scale = soften_scores(head, padded);
    for (; d + SIZE_VECTORS * LANES <= size; d += SIZE_VECTORS * LANES)
        sum_values(T, head, op->out, out, d, SIZE_VECTORS, LANES, scale);
    for (; d < size; d += LANES)
        sum_values(T, head, op->out, out, d, 1, vec_count((size_t)d, (size_t)size), scale);
}

static void attend_pair(const struct cached_attention *op, int row, int h, float *scratch)
{
    size_t hidden = (size_t)op->heads * (size_t)op->head_size, column = (size_t)h * (size_t)op->head_size;
    size_t slot = slot_element(op, row, h);
    struct cached_head head = {
        .size = op->head_size,
        .keys = op->positions[row] + 1,
        .k = typed_at(op->dtype, op->keys, slot),
        .v = typed_at(op->dtype, op->values, slot),
        .q = (size_t)row * 3 * hidden + column,
        .scores = scratch,
        .query = scratch + op->room,
    };

    WITH_DTYPE(op->dtype, T, attend_head(T, op, &head, (size_t)row * hidden + column));
}

void ISA(attention_cached)(struct device *dev, const struct cached_attention *op)
{
    int pairs = op->rows * op->heads;
    size_t stride;
    float *scratch;

    if (!device_ready(dev, op->dtype, "attention_cached") || !cached_attention_valid(dev, op))
        return;
    scratch =
        cpu_scratch_parts(dev, (size_t)dev->threads, workspace_attention_cached(op->room, op->head_size), &stride);
    if (!scratch)
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < op->rows; row++)
        WITH_DTYPE(op->dtype, T, append_row(T, op, row));
#pragma omp parallel for num_threads(dev->threads) schedule(dynamic)
    for (int pair = 0; pair < pairs; pair++)
        attend_pair(op, pair / op->heads, pair % op->heads, scratch + (size_t)omp_get_thread_num() * stride);
}

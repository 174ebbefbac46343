#include "kernels/cpu/vector/attention.h"

#include <math.h>
#include <omp.h>

/*
 * FlashAttention-2's forward pass (Dao, arXiv 2307.08691, algorithm 1): a tile of queries meets every tile of keys
 * once, keeping for each query the highest score so far, the sum of 2^(score - highest), and the output before its
 * division by that sum.
 */
struct forward_work {
    float *q;     /* [size][QUERIES], scaled */
    float *out;   /* [size][QUERIES] */
    float *p;     /* [KEYS][QUERIES]: scores, then probabilities */
    float *space; /* [KEYS][padded], twice: keys and values of 16 bits, widened */
    float highest[QUERIES];
    float sum[QUERIES];
    uint64_t mask[KEYS];
};

_Static_assert(sizeof(struct forward_work) <= ATTENTION_STATE * sizeof(float), "workspace.h is to allow for it");

static struct forward_work *work_in(float *scratch, int padded)
{
    struct forward_work *w = (struct forward_work *)scratch;

    w->q = scratch + ATTENTION_STATE;
    w->out = w->q + padded * QUERIES;
    w->p = w->out + padded * QUERIES;
    w->space = w->p + KEYS * QUERIES;
    return w;
}

static vec highest_score(const float *s, int count, vec highest)
{
    vec high[4] = {highest, highest, highest, highest}; /* four chains, since each max waits for the one before */
    int j = 0;

    for (; j + 4 <= count; j += 4)
        for (int i = 0; i < 4; i++)
            high[i] = vec_max(high[i], vec_load(s + (j + i) * QUERIES));
    for (; j < count; j++)
        high[0] = vec_max(high[0], vec_load(s + j * QUERIES));
    return vec_max(vec_max(high[0], high[1]), vec_max(high[2], high[3]));
}

/* Scores to probabilities for one vector of queries; returns what everything summed so far is to be multiplied by. */
static vec softmax_update(struct forward_work *w, int lane, int count)
{
    vec before = vec_load(w->highest + lane);
    vec highest = highest_score(w->p + lane, count, before);
    vec correction = vec_exp2(before - highest);
    vec sum = vec_load(w->sum + lane) * correction;

    for (int j = 0; j < count; j++) {
        float *s = w->p + j * QUERIES + lane;
        vec p = vec_exp2(vec_load(s) - highest);

        vec_store(s, p);
        sum += p;
    }
    vec_store(w->highest + lane, highest);
    vec_store(w->sum + lane, sum);
    return correction;
}

/* Dropout leaves the sum alone; its factor waits until the output is divided by that. */
static void drop_scores(struct forward_work *w, const uint64_t *keep, int lane, int count)
{
    for (int j = 0; j < count; j++) {
        float *p = w->p + j * QUERIES + lane;

        vec_store(p, vec_select(vec_mask((uint32_t)(keep[j] >> lane)), vec_load(p), (vec){0}));
    }
}

static void rescale_rows(float *out, int size, vec correction)
{
    for (int d = 0; d < size; d++)
        vec_store(out + d * QUERIES, vec_load(out + d * QUERIES) * correction);
}

static void visit_keys(const struct head_slice *head, struct forward_work *w, struct key_tile tile,
                       const uint64_t *keep)
{
    int vectors = key_tile_vectors(&tile);
    struct rows k = ISA(attention_rows)(head, head->k, head->stride, tile.first, tile.count, w->space);
    struct rows v =
        ISA(attention_rows)(head, head->v, head->stride, tile.first, tile.count, w->space + KEYS * head->padded);

    ISA(attention_scores)(head, w->q, tile, k, w->p);
    for (int lane = tile.lane; lane < vectors * LANES; lane += LANES) {
        rescale_rows(w->out + lane, head->size, softmax_update(w, lane, tile.count));
        if (keep)
            drop_scores(w, keep, lane, tile.count);
    }
    ISA(tile_product)
    (&(struct tile_product){
        /* out^T += V^T P^T */
        .m = head->size,
        .vectors = vectors - tile.lane / LANES,
        .k = tile.count,
        .a = v.at,
        .a_row = 1,
        .a_column = v.stride,
        .b = w->p + tile.lane,
        .b_row = QUERIES,
        .c = w->out + tile.lane,
        .c_row = QUERIES,
        .accumulate = true,
    });
}

/* out = out / sum; lse in natural units. With no key to see, sum is 0: out is 0, and lse minus infinity. */
static void finish_rows(const struct head_slice *head, struct forward_work *w, int queries, float *lse)
{
    float scale = head->dropout ? dropout_scale(head->dropout->p) : 1.0f;

    for (int i = 0; i < queries; i++)
        lse[i] = w->sum[i] == 0 ? -INFINITY : (w->highest[i] + log2f(w->sum[i])) * LN_2;
    for (int lane = 0; lane < queries; lane += LANES) {
        vec sum = vec_load(w->sum + lane);

        rescale_rows(w->out + lane, head->size, vec_select(sum == 0.0f, (vec){0}, scale / sum));
    }
}

/* What begins a tile of queries: these, transposed, and nothing yet in the sums. */
static void begin_rows(const struct head_slice *head, struct forward_work *w, int query, int queries)
{
    ISA(attention_transpose)
    (w->q, ISA(attention_rows)(head, head->q, head->stride, query, queries, w->space), queries, head->size,
     head->scale * LOG2_E);
    memset(w->out, 0, (size_t)head->size * QUERIES * sizeof(float));
    for (int i = 0; i < QUERIES; i++) {
        w->highest[i] = -FLT_MAX;
        w->sum[i] = 0;
    }
}

static void write_out(const struct head_slice *head, struct forward_work *w, void *out, ptrdiff_t stride, int queries)
{
    if (head->dtype == DTYPE_F32) {
        ISA(attention_untranspose)(out, stride, w->out, queries, head->size);
        return;
    }
    ISA(attention_untranspose)(w->space, head->padded, w->out, queries, head->size);
    ISA(attention_unpack)(head, out, stride, w->space, queries, 1.0f);
}

static void one_tile(const struct attention *op, float *scratch, int pair, int query)
{
    struct head_slice head = ISA(attention_head)(op, pair);
    struct forward_work *w = work_in(scratch, head.padded);
    int queries = op->seq - query < QUERIES ? op->seq - query : QUERIES;
    size_t width = attention_width(op->heads, op->head_size);
    size_t row = (size_t)(pair / op->heads) * (size_t)op->seq + (size_t)query;
    struct key_tile tile;

    begin_rows(&head, w, query, queries);
    for (int key = attention_first_tile(&head, query);; key += tile.count) {
        tile = ISA(attention_key_tile)(&head, query, queries, key);
        if (tile.count == 0)
            break;
        visit_keys(&head, w, tile, ISA(attention_mask)(&head, w->mask, query, queries, tile));
    }
    finish_rows(&head, w, queries, op->lse + (size_t)pair * (size_t)op->seq + query);
    write_out(&head, w, typed_at(op->dtype, op->out, row * width + (size_t)(pair % op->heads) * (size_t)op->head_size),
              (ptrdiff_t)width, queries);
}

void ISA(attention_forward)(struct device *dev, const struct attention *op)
{
    int tiles = (op->seq + QUERIES - 1) / QUERIES, pairs = op->batch * op->heads;
    size_t stride;
    float *scratch;

    if (!device_ready(dev, op->dtype, "attention_forward") || !attention_valid(dev, op))
        return;
    scratch = cpu_scratch_parts(dev, dev->threads, workspace_attention_forward_floats(op->head_size), &stride);
    if (!scratch)
        return;
        /*
         * Tiles do not depend on each other, so any thread may take any; the longest (the last, when causal) go first.
         */
#pragma omp parallel for num_threads(dev->threads) schedule(dynamic)
    for (int i = 0; i < pairs * tiles; i++)
        one_tile(op, scratch + omp_get_thread_num() * stride, i / tiles, (tiles - 1 - i % tiles) * QUERIES);
}

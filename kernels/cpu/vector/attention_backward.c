#include "kernels/cpu/vector/attention.h"
#include "kernels/cpu/vector/vector.h"

#include <omp.h>

/*
 * FlashAttention-2's backward pass (arXiv 2307.08691, algorithm 2), a head at a time. With delta = rowsum(dout * out):
 *   P = 2^(S - lse)     dP = dout V^T        dS = P * (dP - delta)
 *   dV += P^T dout      dK += dS^T Q         dQ += dS K
 * and the scale of the scores applied to dQ and dK when they are written.
 *
 * One thread does a whole head, tile after tile: so the sums dK and dV are made in the same order every time.
 */
struct work {
    /* of the tile of queries */
    float *q_transposed, *dout_transposed; /* [size][QUERIES]; q scaled */
    float *q, *dout, *dq;                  /* [QUERIES][padded] */
    float *p, *ds;                         /* [KEYS][QUERIES] */
    float lse[QUERIES], delta[QUERIES];
    uint64_t mask[KEYS];
    /* of the head */
    float *k, *dk, *dv; /* [seq][padded] */
};

/* Where dqkv and the gradient that comes in lie, in addition to the head. */
struct gradients {
    const float *out, *dout; /* rows are `stride` apart */
    ptrdiff_t stride;
    const float *lse;
    float *dq, *dk, *dv; /* rows are head.stride apart */
};

static size_t header_floats(void)
{
    return (sizeof(struct work) / sizeof(float) + 15) / 16 * 16;
}

static size_t work_floats(int seq, int size, int padded)
{
    return header_floats() + (size_t)(2 * size + 3 * padded + 2 * KEYS) * QUERIES + (size_t)3 * seq * padded;
}

static struct work *work_in(float *scratch, int seq, int size, int padded)
{
    struct work *w = (struct work *)scratch;
    ptrdiff_t whole = (ptrdiff_t)seq * padded;

    w->q_transposed = scratch + header_floats();
    w->dout_transposed = w->q_transposed + size * QUERIES;
    w->q = w->dout_transposed + size * QUERIES;
    w->dout = w->q + padded * QUERIES;
    w->dq = w->dout + padded * QUERIES;
    w->p = w->dq + padded * QUERIES;
    w->ds = w->p + KEYS * QUERIES;
    w->k = w->ds + KEYS * QUERIES;
    w->dk = w->k + whole;
    w->dv = w->dk + whole;
    return w;
}

/* Rows copied close together, and filled up with zeros to whole vectors. */
static void pack_rows(float *to, const float *from, ptrdiff_t stride, int rows, int size, int padded)
{
    for (int r = 0; r < rows; r++) {
        memcpy(to + (ptrdiff_t)r * padded, from + r * stride, size * sizeof *to);
        memset(to + (ptrdiff_t)r * padded + size, 0, (padded - size) * sizeof *to);
    }
}

static void write_rows(float *to, ptrdiff_t stride, const float *from, int rows, int size, int padded, float scale)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < size; i++)
            to[r * stride + i] = scale * from[(ptrdiff_t)r * padded + i];
}

static float dot(const float *x, const float *y, int size)
{
    vec sum = {0};

    for (int i = 0; i < size; i += LANES) {
        size_t count = vec_count(i, size);

        sum += vec_load_part(x + i, count) * vec_load_part(y + i, count);
    }
    return vec_sum(sum);
}

static void load_queries(const struct head *head, const struct gradients *g, struct work *w, int query, int queries)
{
    const float *q = head->q + query * head->stride;
    const float *out = g->out + query * g->stride, *dout = g->dout + query * g->stride;

    ISA(attention_transpose)(w->q_transposed, q, head->stride, queries, head->size, head->scale * LOG2_E);
    ISA(attention_transpose)(w->dout_transposed, dout, g->stride, queries, head->size, 1.0f);
    pack_rows(w->q, q, head->stride, queries, head->size, head->padded);
    pack_rows(w->dout, dout, g->stride, queries, head->size, head->padded);
    memset(w->dq, 0, (size_t)queries * head->padded * sizeof *w->dq);
    for (int i = 0; i < QUERIES; i++) {
        w->lse[i] = i < queries ? g->lse[query + i] * LOG2_E : 0;
        w->delta[i] = i < queries ? dot(out + i * g->stride, dout + i * g->stride, head->size) : 0;
    }
}

/* p becomes the probabilities, and ds, which holds dP, the gradient of the scores. */
static void scores_backward(struct work *w, int vectors, struct key_tile tile)
{
    for (int lane = tile.lane; lane < vectors * LANES; lane += LANES) {
        vec lse = vec_load(w->lse + lane), delta = vec_load(w->delta + lane);

        for (int j = 0; j < tile.count; j++) {
            float *s = w->p + j * QUERIES + lane, *ds = w->ds + j * QUERIES + lane;
            vec p = vec_exp2(vec_load(s) - lse);

            vec_store(s, p);
            vec_store(ds, p * (vec_load(ds) - delta));
        }
    }
}

/* The same with dropout: p becomes what is left of the probabilities, with which out was made. */
static void dropped_scores_backward(struct work *w, int vectors, struct key_tile tile, const uint64_t *keep,
                                    float scale)
{
    for (int lane = tile.lane; lane < vectors * LANES; lane += LANES) {
        vec lse = vec_load(w->lse + lane), delta = vec_load(w->delta + lane);

        for (int j = 0; j < tile.count; j++) {
            float *s = w->p + j * QUERIES + lane, *ds = w->ds + j * QUERIES + lane;
            vec p = vec_exp2(vec_load(s) - lse);
            vec factor = vec_select(vec_mask((uint32_t)(keep[j] >> lane)), vec_all(scale), (vec){0});

            vec_store(s, p * factor);
            vec_store(ds, p * (vec_load(ds) * factor - delta));
        }
    }
}

/* sum[keys, size] += x[keys, queries] * rows[queries, size], for dV and dK */
static void add_over_queries(const struct head *head, float *sum, const float *x, const float *rows, int queries,
                             struct key_tile tile)
{
    ISA(tile_product)
    (&(struct tile_product){
        .m = tile.count,
        .vectors = head->padded / LANES,
        .k = queries - tile.lane,
        .a = x + tile.lane,
        .a_row = QUERIES,
        .a_column = 1,
        .b = rows + tile.lane * head->padded,
        .b_row = head->padded,
        .c = sum + (ptrdiff_t)tile.first * head->padded,
        .c_row = head->padded,
        .accumulate = true,
    });
}

static void visit_keys(const struct head *head, struct work *w, int queries, struct key_tile tile, const uint64_t *keep)
{
    int vectors = (queries + LANES - 1) / LANES;

    ISA(attention_scores)(head, w->q_transposed, vectors, tile, w->p);
    ISA(tile_product)
    (&(struct tile_product){
        /* dP^T = V dout^T */
        .m = tile.count,
        .vectors = vectors - tile.lane / LANES,
        .k = head->size,
        .a = head->v + tile.first * head->stride,
        .a_row = head->stride,
        .a_column = 1,
        .b = w->dout_transposed + tile.lane,
        .b_row = QUERIES,
        .c = w->ds + tile.lane,
        .c_row = QUERIES,
    });
    if (keep)
        dropped_scores_backward(w, vectors, tile, keep, dropout_scale(head->dropout->p));
    else
        scores_backward(w, vectors, tile);
    add_over_queries(head, w->dv, w->p, w->dout, queries, tile);
    add_over_queries(head, w->dk, w->ds, w->q, queries, tile);
    ISA(tile_product)
    (&(struct tile_product){
        /* dQ += dS K */
        .m = queries - tile.lane,
        .vectors = head->padded / LANES,
        .k = tile.count,
        .a = w->ds + tile.lane,
        .a_row = 1,
        .a_column = QUERIES,
        .b = w->k + (ptrdiff_t)tile.first * head->padded,
        .b_row = head->padded,
        .c = w->dq + tile.lane * head->padded,
        .c_row = head->padded,
        .accumulate = true,
    });
}

static void head_backward(const struct head *head, const struct gradients *g, struct work *w, int seq)
{
    size_t whole = (size_t)seq * head->padded;

    memset(w->dk, 0, whole * sizeof *w->dk);
    memset(w->dv, 0, whole * sizeof *w->dv);
    pack_rows(w->k, head->k, head->stride, head->keys, head->size, head->padded);
    for (int query = 0; query < seq; query += QUERIES) {
        int queries = seq - query < QUERIES ? seq - query : QUERIES;
        struct key_tile tile;

        load_queries(head, g, w, query, queries);
        for (int key = 0;; key += tile.count) {
            tile = ISA(attention_key_tile)(head, query, queries, key);
            if (tile.count == 0)
                break;
            visit_keys(head, w, queries, tile, ISA(attention_mask)(head, w->mask, query, queries, tile));
        }
        write_rows(g->dq + query * head->stride, head->stride, w->dq, queries, head->size, head->padded, head->scale);
    }
    write_rows(g->dk, head->stride, w->dk, seq, head->size, head->padded, head->scale);
    write_rows(g->dv, head->stride, w->dv, seq, head->size, head->padded, 1.0f);
}

static void one_head(const struct attention_backward *op, const struct attention *forward, float *scratch, int pair)
{
    int batch_index = pair / op->heads, head_index = pair % op->heads;
    ptrdiff_t hidden = (ptrdiff_t)op->heads * op->head_size;
    ptrdiff_t at = (ptrdiff_t)batch_index * op->seq * hidden, column = (ptrdiff_t)head_index * op->head_size;
    struct head head = ISA(attention_head)(forward, pair);
    float *dq = (float *)op->dqkv + 3 * at + column;
    struct gradients g = {
        .out = (const float *)op->out + at + column,
        .dout = (const float *)op->dout + at + column,
        .stride = hidden,
        .lse = op->lse + (ptrdiff_t)pair * op->seq,
        .dq = dq,
        .dk = dq + hidden,
        .dv = dq + 2 * hidden,
    };

    head_backward(&head, &g, work_in(scratch, op->seq, head.size, head.padded), op->seq);
}

void ISA(attention_backward)(struct device *dev, const struct attention_backward *op)
{
    const struct attention forward = {
        .batch = op->batch,
        .seq = op->seq,
        .heads = op->heads,
        .head_size = op->head_size,
        .causal = op->causal,
        .dtype = op->dtype,
        .qkv = op->qkv,
        .lengths = op->lengths,
        .dropout = op->dropout,
        .dropout_stride = op->dropout_stride,
    };
    int padded = (op->head_size + LANES - 1) / LANES * LANES, pairs = op->batch * op->heads;
    size_t stride;
    float *scratch;

    if (!device_ready(dev, op->dtype, "attention_backward"))
        return;
    scratch = cpu_scratch_parts(dev, dev->threads, work_floats(op->seq, op->head_size, padded), &stride);
    if (!scratch)
        return;
#pragma omp parallel for num_threads(dev->threads) schedule(dynamic)
    for (int pair = 0; pair < pairs; pair++)
        one_head(op, &forward, scratch + omp_get_thread_num() * stride, pair);
}

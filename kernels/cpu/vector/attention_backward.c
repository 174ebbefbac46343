#include "kernels/cpu/vector/attention.h"

#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>

/*
 * FlashAttention-2's backward pass (arXiv 2307.08691, algorithm 2), a head at a time. With delta = rowsum(dout * out):
 *   P = 2^(S - lse)     dP = dout V^T        dS = P * (dP - delta)
 *   dV += P^T dout      dK += dS^T Q         dQ += dS K
 * and the scale of the scores applied to dQ and dK when they are written.
 *
 * One thread does a whole head, tile after tile: so the sums dK and dV are made in the same order every time. Query heads
 * that share a head of keys are then added up in their order, whichever thread has computed them.
 */
struct backward_work {
    /* of the tile of queries */
    float *q_transposed, *dout_transposed; /* [size][QUERIES]; q scaled */
    float *q, *dout, *dq;                  /* [QUERIES][padded] */
    float *p, *ds;                         /* [KEYS][QUERIES] */
    float lse[QUERIES], delta[QUERIES];
    uint64_t mask[KEYS];
    /* of the head */
    float *k, *v, *dk, *dv; /* [seq][padded]; dv follows dk */
};

/* Where dqkv and the gradient that comes in lie, in addition to the head. */
struct gradients {
    const void *out, *dout; /* rows are `stride` apart */
    ptrdiff_t stride;
    const float *lse;
    void *dq, *dk, *dv; /* rows are head.stride apart */
};

/* Of the heads of a group that share their keys: dK and, behind it, dV of those before `turn`. */
struct group_sums {
    atomic_int turn; /* the head that is to be added next */
    _Alignas(64) float dk[];
};

_Static_assert(sizeof(struct group_sums) == ATTENTION_TURN * sizeof(float), "workspace.h is to allow for it");
_Static_assert(sizeof(struct backward_work) <= ATTENTION_STATE * sizeof(float), "workspace.h is to allow for it");

static struct backward_work *work_in(float *scratch, int seq, int padded)
{
    struct backward_work *w = (struct backward_work *)scratch;
    ptrdiff_t whole = (ptrdiff_t)seq * padded;

    w->q_transposed = scratch + ATTENTION_STATE;
    w->dout_transposed = w->q_transposed + padded * QUERIES;
    w->q = w->dout_transposed + padded * QUERIES;
    w->dout = w->q + padded * QUERIES;
    w->dq = w->dout + padded * QUERIES;
    w->p = w->dq + padded * QUERIES;
    w->ds = w->p + KEYS * QUERIES;
    w->k = w->ds + KEYS * QUERIES;
    w->v = w->k + whole;
    w->dk = w->v + whole;
    w->dv = w->dk + whole;
    return w;
}

static float dot_product(const float *x, const float *y, int size)
{
    vec sum = {0};

    for (int i = 0; i < size; i += LANES) {
        size_t count = vec_count(i, size);

        sum += vec_load_part(x + i, count) * vec_load_part(y + i, count);
    }
    return vec_sum(sum);
}

static void load_queries(const struct head_slice *head, const struct gradients *g, struct backward_work *w, int query,
                         int queries)
{
    struct rows out;

    ISA(attention_pack)
    (head, w->q, typed_at(head->dtype, head->q, (size_t)(query * head->stride)), head->stride, queries);
    ISA(attention_pack)(head, w->dout, typed_at(head->dtype, g->dout, (size_t)(query * g->stride)), g->stride, queries);
    out = ISA(attention_rows)(head, g->out, g->stride, query, queries, w->dq);
    for (int i = 0; i < QUERIES; i++) {
        w->lse[i] = i < queries && g->lse[query + i] != -INFINITY ? g->lse[query + i] * LOG2_E : 0;
        w->delta[i] = i < queries ? dot_product(out.at + i * out.stride, w->dout + i * head->padded, head->size) : 0;
    }
    ISA(attention_transpose)
    (w->q_transposed, (struct rows){w->q, head->padded}, queries, head->size, head->scale * LOG2_E);
    ISA(attention_transpose)
    (w->dout_transposed, (struct rows){w->dout, head->padded}, queries, head->size, 1.0f);
    memset(w->dq, 0, (size_t)queries * head->padded * sizeof *w->dq);
}

/* p becomes the probabilities, and ds, which holds dP, the gradient of the scores. With dropout (keep is not NULL) p
 * becomes what is left of the probabilities, with which out was made. */
INLINE void scores_backward(struct backward_work *w, int vectors, struct key_tile tile, const uint64_t *keep,
                            float scale)
{
    for (int lane = tile.lane; lane < vectors * LANES; lane += LANES) {
        vec lse = vec_load(w->lse + lane), delta = vec_load(w->delta + lane);

        for (int j = 0; j < tile.count; j++) {
            float *s = w->p + j * QUERIES + lane, *ds = w->ds + j * QUERIES + lane;
            vec p = vec_exp2(vec_load(s) - lse), left = p, dp = vec_load(ds);

            if (keep) {
                vec factor = vec_select(vec_mask((uint32_t)(keep[j] >> lane)), vec_all(scale), (vec){0});

                left = p * factor;
                dp = dp * factor;
            }
            vec_store(s, left);
            vec_store(ds, p * (dp - delta));
        }
    }
}

/* sum[keys, size] += x[keys, queries] * rows[queries, size], for dV and dK */
static void add_over_queries(const struct head_slice *head, float *sum, const float *x, const float *rows,
                             struct key_tile tile)
{
    ISA(tile_product)
    (&(struct tile_product){
        .m = tile.count,
        .vectors = head->padded / LANES,
        .k = tile.end - tile.lane,
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

static struct rows rows_at(const struct head_slice *head, const float *rows, struct key_tile tile)
{
    return (struct rows){rows + (ptrdiff_t)tile.first * head->padded, head->padded};
}

static void visit_keys(const struct head_slice *head, struct backward_work *w, struct key_tile tile,
                       const uint64_t *keep)
{
    int vectors = key_tile_vectors(&tile);

    ISA(attention_scores)(head, w->q_transposed, tile, rows_at(head, w->k, tile), w->p);
    ISA(tile_product)
    (&(struct tile_product){
        /* dP^T = V dout^T */
        .m = tile.count,
        .vectors = vectors - tile.lane / LANES,
        .k = head->size,
        .a = rows_at(head, w->v, tile).at,
        .a_row = head->padded,
        .a_column = 1,
        .b = w->dout_transposed + tile.lane,
        .b_row = QUERIES,
        .c = w->ds + tile.lane,
        .c_row = QUERIES,
    });
    if (keep)
        scores_backward(w, vectors, tile, keep, dropout_scale(head->dropout->p));
    else
        scores_backward(w, vectors, tile, NULL, 1);
    add_over_queries(head, w->dv, w->p, w->dout, tile);
    add_over_queries(head, w->dk, w->ds, w->q, tile);
    ISA(tile_product)
    (&(struct tile_product){
        /* dQ += dS K */
        .m = tile.end - tile.lane,
        .vectors = head->padded / LANES,
        .k = tile.count,
        .a = w->ds + tile.lane,
        .a_row = 1,
        .a_column = QUERIES,
        .b = rows_at(head, w->k, tile).at,
        .b_row = head->padded,
        .c = w->dq + tile.lane * head->padded,
        .c_row = head->padded,
        .accumulate = true,
    });
}

static void head_backward(const struct head_slice *head, const struct gradients *g, struct backward_work *w, int seq)
{
    size_t whole = (size_t)seq * head->padded;

    memset(w->dk, 0, whole * sizeof *w->dk);
    memset(w->dv, 0, whole * sizeof *w->dv);
    ISA(attention_pack)(head, w->k, head->k, head->stride, head->keys);
    ISA(attention_pack)(head, w->v, head->v, head->stride, head->keys);
    for (int query = 0; query < seq; query += QUERIES) {
        int queries = seq - query < QUERIES ? seq - query : QUERIES;
        struct key_tile tile;

        load_queries(head, g, w, query, queries);
        for (int key = attention_first_tile(head, query);; key += tile.count) {
            tile = ISA(attention_key_tile)(head, query, queries, key);
            if (tile.count == 0)
                break;
            visit_keys(head, w, tile, ISA(attention_mask)(head, w->mask, query, queries, tile));
        }
        ISA(attention_unpack)
        (head, typed_at(head->dtype, g->dq, (size_t)(query * head->stride)), head->stride, w->dq, queries, head->scale);
    }
}

/* Adds a head's dK and dV to those of the heads before it; the last of the group writes them. */
static void write_keys(const struct head_slice *head, const struct gradients *g, struct backward_work *w, int seq,
                       struct group_sums *sums, int place, int group)
{
    size_t both = 2 * (size_t)seq * (size_t)head->padded;

    while (place > 0 && atomic_load(&sums->turn) != place)
        sched_yield();
    for (size_t i = 0; i < both && place > 0; i += LANES)
        vec_store(w->dk + i, vec_load(sums->dk + i) + vec_load(w->dk + i));
    if (place < group - 1) {
        memcpy(sums->dk, w->dk, both * sizeof *sums->dk);
        atomic_store(&sums->turn, place + 1);
        return;
    }
    ISA(attention_unpack)(head, g->dk, head->stride, w->dk, seq, head->scale);
    ISA(attention_unpack)(head, g->dv, head->stride, w->dv, seq, 1.0f);
}

static struct gradients gradients_of(const struct attention *op, const struct head_slice *head, int pair)
{
    size_t width = attention_width(op->heads, op->head_size), sample = (size_t)(pair / op->heads) * (size_t)op->seq;
    int group = op->heads / op->kv_heads;
    size_t column = (size_t)(pair % op->heads) * (size_t)op->head_size, at = sample * width + column;
    size_t dq = sample * (size_t)head->stride;
    size_t dk = dq + width + (size_t)(pair % op->heads / group) * (size_t)op->head_size;

    return (struct gradients){
        .out = typed_at(op->dtype, op->out, at),
        .dout = typed_at(op->dtype, op->dout, at),
        .stride = (ptrdiff_t)width,
        .lse = op->lse + (size_t)pair * (size_t)op->seq,
        .dq = typed_at(op->dtype, op->dqkv, dq + column),
        .dk = typed_at(op->dtype, op->dqkv, dk),
        .dv = typed_at(op->dtype, op->dqkv, dk + attention_width(op->kv_heads, op->head_size)),
    };
}

/* Head `place` of the group of heads that share head number `index` of all samples' keys. */
static void one_head(const struct attention *op, float *scratch, struct group_sums *sums, int index, int place)
{
    int group = op->heads / op->kv_heads, pair = index * group + place;
    struct head_slice head = ISA(attention_head)(op, pair);
    struct gradients g = gradients_of(op, &head, pair);
    struct backward_work *w = work_in(scratch, op->seq, head.padded);

    head_backward(&head, &g, w, op->seq);
    write_keys(&head, &g, w, op->seq, sums, place, group);
}

/*
 * Threads take the first head of all groups, then the second of all, and so on: the one before is mostly done when a
 * head is to be added to it. A thread never waits for a head that no thread has begun.
 */
void ISA(attention_backward)(struct device *dev, const struct attention *op)
{
    int groups = op->batch * op->kv_heads;
    size_t each = op->kv_heads < op->heads ? workspace_attention_group_floats(op->seq, op->head_size) : 0;
    size_t stride = workspace_part_floats(workspace_attention_backward_floats(op->seq, op->head_size));
    float *scratch, *sums;

    if (!device_ready(dev, op->dtype, "attention_backward") || !attention_valid(dev, op))
        return;
    scratch = cpu_scratch(dev, (size_t)dev->threads * stride + (size_t)groups * each);
    if (!scratch)
        return;
    sums = scratch + (size_t)dev->threads * stride;
    for (int i = 0; i < groups && each; i++)
        atomic_init(&((struct group_sums *)(sums + (size_t)i * each))->turn, 0);
#pragma omp parallel for num_threads(dev->threads) schedule(monotonic : dynamic)
    for (int i = 0; i < op->batch * op->heads; i++)
        one_head(op, scratch + omp_get_thread_num() * stride, (struct group_sums *)(sums + (size_t)(i % groups) * each),
                 i % groups, i / groups);
}

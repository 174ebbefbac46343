/* block.c - the forward pass, and what it needs; block_backward.c has the rest. */
#include "trainer/model/block.h"

#include <stdio.h>

struct block block_of(const struct context *c, const struct units *units, int layer)
{
    struct block b = {.c = c, .unit = &units->units[UNIT_BLOCK0 + layer], .layer = layer};
    char name[64];

    snprintf(name, sizeof name, "h.%d.attn.dropout", layer);
    b.site_attention = philox_site(name);
    snprintf(name, sizeof name, "h.%d.attn.c_proj.dropout", layer);
    b.site_projection = philox_site(name);
    snprintf(name, sizeof name, "h.%d.mlp.dropout", layer);
    b.site_mlp = philox_site(name);
    return b;
}

void block_activations_carve(struct block_activations *a, const struct context *c, enum recompute recompute,
                             int max_samples, struct carver *kept, struct carver *shared)
{
    size_t rows = (size_t)context_rows(c, max_samples), local = (size_t)context_local_rows(c, max_samples);
    size_t d = (size_t)c->shape->hidden, split = d / (size_t)c->tp_size, element = dtype_size(c->dtype);
    size_t heads = (size_t)(c->shape->heads / c->tp_size);
    struct carver *all = recompute == RECOMPUTE_FULL ? shared : kept;
    struct carver *attention = recompute == RECOMPUTE_NONE ? kept : shared;

    a->y1 = carve(all, local * d * element);
    a->mid = carve(all, local * d * element);
    a->y2 = carve(all, local * d * element);
    a->mean1 = carve(all, local * sizeof(float));
    a->rstd1 = carve(all, local * sizeof(float));
    a->mean2 = carve(all, local * sizeof(float));
    a->rstd2 = carve(all, local * sizeof(float));
    a->pre = carve(all, rows * 4 * split * element);
    a->act = carve(all, rows * 4 * split * element);
    a->qkv = carve(attention, rows * 3 * split * element);
    a->att = carve(attention, rows * split * element);
    a->lse = carve(attention, rows * heads * sizeof(float));
}

void block_scratch_carve(struct block_scratch *s, const struct context *c, int max_samples, struct carver *carver)
{
    size_t rows = (size_t)context_rows(c, max_samples), local = (size_t)context_local_rows(c, max_samples);
    size_t d = (size_t)c->shape->hidden, split = d / (size_t)c->tp_size, element = dtype_size(c->dtype);

    s->wide = carve(carver, rows * 4 * split * element);
    s->narrow = carve(carver, rows * split * element);
    s->part = carve(carver, rows * d * element);
    s->local = s->full_a = s->full_b = NULL;
    if (c->tp_size > 1 || c->dropout > 0)
        s->local = carve(carver, local * d * element);
    if (c->tp_size > 1) {
        s->full_a = carve(carver, rows * d * element);
        s->full_b = carve(carver, rows * d * element);
    }
}

static const void *block_weight(const struct block *b, const void *param, int tensor)
{
    return context_weight(b->c, b->unit, param, tensor);
}

struct attention block_attention(const struct block *b, const struct block_activations *a, const struct micro_batch *mb)
{
    const struct context *c = b->c;
    const struct model_shape *m = c->shape;
    uint64_t square = (uint64_t)m->seq_length * (uint64_t)m->seq_length;
    struct attention attention = {
        .batch = mb->samples,
        .seq = m->seq_length,
        .heads = m->heads / c->tp_size,
        .head_size = m->hidden / m->heads,
        .causal = m->kind == MODEL_GPT,
        .dtype = c->dtype,
        .qkv = a->qkv,
        .lengths = m->kind == MODEL_GPT ? NULL : mb->lengths,
        .out = a->att,
        .lse = a->lse,
    };

    if (mb->training && c->attention_dropout > 0) {
        attention.dropout_stride = (uint64_t)m->heads * square;
        attention.dropout = (struct dropout){
            .p = c->attention_dropout,
            .stream = {.seed = c->seed, .site = b->site_attention},
            .first = mb->first_sample * attention.dropout_stride +
                     (uint64_t)c->tp->rank * (uint64_t)attention.heads * square,
        };
    }
    return attention;
}

/* ---- forward, in pieces that recomputing shares ---- */

static void first_norm(const struct block *b, const void *param, const struct block_activations *a, int local)
{
    const struct context *c = b->c;

    c->k->layernorm_forward(c->dev, &(struct layernorm){.rows = local,
                                                        .cols = c->shape->hidden,
                                                        .dtype = c->dtype,
                                                        .x = a->x,
                                                        .y = a->y1,
                                                        .mean = a->mean1,
                                                        .rstd = a->rstd1,
                                                        .gamma = block_weight(b, param, BLOCK_LN_1_WEIGHT),
                                                        .beta = block_weight(b, param, BLOCK_LN_1_BIAS)});
}

static void attend_heads(const struct block *b, const void *param, const struct block_activations *a,
                              const struct block_scratch *s, const struct micro_batch *mb)
{
    const struct context *c = b->c;
    int rows = context_rows(c, mb->samples), d = c->shape->hidden;
    struct attention attention = block_attention(b, a, mb);
    const void *y1;

    tensor_gather(c->tp, a->y1, s->full_a, rows, d, b->unit->name);
    y1 = tensor_gathered(c->tp, a->y1, s->full_a);
    linear_forward(c, a->qkv, y1, block_weight(b, param, BLOCK_ATTN_WEIGHT), block_weight(b, param, BLOCK_ATTN_BIAS),
                   NULL, rows, d, 3 * d / c->tp_size);
    c->k->attention_forward(c->dev, &attention);
}

/* part = in[rows, n] W, summed over the group: where this rank's rows of it are. */
static const void *project_output(const struct block *b, const void *in, const void *w, const struct block_scratch *s,
                                  int rows, int n)
{
    const struct context *c = b->c;
    int d = c->shape->hidden;

    linear_forward(c, s->part, in, w, NULL, NULL, rows, n, d);
    tensor_reduce(c->tp, s->local, s->part, rows, d, b->unit->name);
    return tensor_reduced(c->tp, s->local, s->part);
}

static void second_norm(const struct block *b, const void *param, const struct block_activations *a,
                        const struct micro_batch *mb, const void *projected)
{
    const struct context *c = b->c;

    c->k->layernorm_forward(c->dev, &(struct layernorm){.rows = context_local_rows(c, mb->samples),
                                                        .cols = c->shape->hidden,
                                                        .dtype = c->dtype,
                                                        .x = a->x,
                                                        .residual = projected,
                                                        .bias = block_weight(b, param, BLOCK_ATTN_PROJ_BIAS),
                                                        .dropout = context_dropout(c, mb, b->site_projection),
                                                        .sum = a->mid,
                                                        .y = a->y2,
                                                        .mean = a->mean2,
                                                        .rstd = a->rstd2,
                                                        .gamma = block_weight(b, param, BLOCK_LN_2_WEIGHT),
                                                        .beta = block_weight(b, param, BLOCK_LN_2_BIAS)});
}

/* Everything from y1 to act. */
static void inner_width(const struct block *b, const void *param, const struct block_activations *a,
                        const struct block_scratch *s, const struct micro_batch *mb)
{
    const struct context *c = b->c;
    int rows = context_rows(c, mb->samples), d = c->shape->hidden, split = d / c->tp_size;
    const void *y2;

    first_norm(b, param, a, context_local_rows(c, mb->samples));
    attend_heads(b, param, a, s, mb);
    second_norm(b, param, a, mb,
                project_output(b, a->att, block_weight(b, param, BLOCK_ATTN_PROJ_WEIGHT), s, rows, split));
    tensor_gather(c->tp, a->y2, s->full_a, rows, d, b->unit->name);
    y2 = tensor_gathered(c->tp, a->y2, s->full_a);
    linear_forward(c, a->act, y2, block_weight(b, param, BLOCK_FC_WEIGHT), block_weight(b, param, BLOCK_FC_BIAS),
                   a->pre, rows, d, 4 * split);
}

void block_forward(const struct block *b, const void *param, const struct block_activations *a,
                   const struct block_scratch *s, const struct micro_batch *mb, void *out)
{
    const struct context *c = b->c;
    int rows = context_rows(c, mb->samples), split = c->shape->hidden / c->tp_size;
    const void *projected;

    inner_width(b, param, a, s, mb);
    projected = project_output(b, a->act, block_weight(b, param, BLOCK_PROJ_WEIGHT), s, rows, 4 * split);
    c->k->residual(c->dev, &(struct residual){.rows = context_local_rows(c, mb->samples),
                                              .cols = c->shape->hidden,
                                              .dtype = c->dtype,
                                              .x = a->mid,
                                              .residual = projected,
                                              .bias = block_weight(b, param, BLOCK_PROJ_BIAS),
                                              .dropout = context_dropout(c, mb, b->site_mlp),
                                              .sum = out});
}

void block_recompute(const struct block *b, enum recompute recompute, const void *param,
                     const struct block_activations *a, const struct block_scratch *s, const struct micro_batch *mb)
{
    if (recompute == RECOMPUTE_FULL)
        inner_width(b, param, a, s, mb);
    else if (recompute == RECOMPUTE_SELECTIVE)
        attend_heads(b, param, a, s, mb);
}

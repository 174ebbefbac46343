/* block.c - one transformer block, forward and backward. */
#include "trainer/model/block.h"

#include <stdio.h>

struct transformer_block block_of(const struct context *c, const struct units *units, int layer)
{
    struct transformer_block b = {.c = c, .unit = &units->units[UNIT_BLOCK0 + layer], .layer = layer};
    char name[64];

    snprintf(name, sizeof name, "h.%d.attn.dropout", layer);
    b.site_attention = philox_site(name);
    snprintf(name, sizeof name, "h.%d.attn.c_proj.dropout", layer);
    b.site_projection = philox_site(name);
    snprintf(name, sizeof name, "h.%d.mlp.dropout", layer);
    b.site_mlp = philox_site(name);
    return b;
}

void block_activations_place(struct block_activations *a, const struct context *c, enum recompute recompute,
                             int max_samples, struct buffer_layout *kept, struct buffer_layout *shared)
{
    size_t rows = (size_t)context_rows(c, max_samples), local = (size_t)context_local_rows(c, max_samples);
    size_t d = (size_t)c->shape->hidden, split = d / (size_t)c->tp_size, element = dtype_size(c->dtype);
    size_t heads = (size_t)(c->shape->heads / c->tp_size);
    struct buffer_layout *all = recompute == RECOMPUTE_FULL ? shared : kept;
    struct buffer_layout *attention = recompute == RECOMPUTE_NONE ? kept : shared;

    a->y1 = place_buffer(all, local * d * element);
    a->mid = place_buffer(all, local * d * element);
    a->y2 = place_buffer(all, local * d * element);
    a->mean1 = place_buffer(all, local * sizeof(float));
    a->rstd1 = place_buffer(all, local * sizeof(float));
    a->mean2 = place_buffer(all, local * sizeof(float));
    a->rstd2 = place_buffer(all, local * sizeof(float));
    a->pre = place_buffer(all, rows * 4 * split * element);
    a->act = place_buffer(all, rows * 4 * split * element);
    a->qkv = place_buffer(attention, rows * 3 * split * element);
    a->att = place_buffer(attention, rows * split * element);
    a->lse = place_buffer(attention, rows * heads * sizeof(float));
}

void block_scratch_place(struct block_scratch *s, const struct context *c, int max_samples,
                         struct buffer_layout *layout)
{
    size_t rows = (size_t)context_rows(c, max_samples), local = (size_t)context_local_rows(c, max_samples);
    size_t d = (size_t)c->shape->hidden, split = d / (size_t)c->tp_size, element = dtype_size(c->dtype);

    s->wide = place_buffer(layout, rows * 4 * split * element);
    s->narrow = place_buffer(layout, rows * split * element);
    s->part = place_buffer(layout, rows * d * element);
    s->local = s->full_a = s->full_b = NULL;
    if (c->tp_size > 1 || c->dropout > 0)
        s->local = place_buffer(layout, local * d * element);
    if (c->tp_size > 1) {
        s->full_a = place_buffer(layout, rows * d * element);
        s->full_b = place_buffer(layout, rows * d * element);
    }
}

static const void *block_weight(const struct transformer_block *b, const void *param, int tensor)
{
    return context_weight(b->c, b->unit, param, tensor);
}

/* The arguments of attention, forward and backward. */
static struct attention attention_arguments(const struct transformer_block *b, const struct block_activations *a,
                                            const struct micro_batch *mb)
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

static void attend_heads(const struct transformer_block *b, const void *param, const struct block_activations *a,
                         const struct block_scratch *s, const struct micro_batch *mb)
{
    const struct context *c = b->c;
    int rows = context_rows(c, mb->samples), d = c->shape->hidden;
    struct attention attention = attention_arguments(b, a, mb);
    const void *y1;

    tensor_gather(c->tp, a->y1, s->full_a, rows, d, b->unit->name);
    y1 = tensor_gathered(c->tp, a->y1, s->full_a);
    linear_forward(c, a->qkv, y1, block_weight(b, param, BLOCK_ATTN_WEIGHT), block_weight(b, param, BLOCK_ATTN_BIAS),
                   NULL, rows, d, 3 * d / c->tp_size);
    c->k->attention_forward(c->dev, &attention);
}

/* part = in[rows, n] W, summed over the group; returns this rank's rows of the sum. */
static const void *project_output(const struct transformer_block *b, const void *in, const void *w,
                                  const struct block_scratch *s, int rows, int n)
{
    const struct context *c = b->c;
    int d = c->shape->hidden;

    linear_forward(c, s->part, in, w, NULL, NULL, rows, n, d);
    tensor_reduce(c->tp, s->local, s->part, rows, d, b->unit->name);
    return tensor_reduced(c->tp, s->local, s->part);
}

static void second_norm(const struct transformer_block *b, const void *param, const struct block_activations *a,
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

/* The forward pass from y1 to act. */
static void inner_width(const struct transformer_block *b, const void *param, const struct block_activations *a,
                        const struct block_scratch *s, const struct micro_batch *mb)
{
    const struct context *c = b->c;
    int rows = context_rows(c, mb->samples), d = c->shape->hidden, split = d / c->tp_size;
    const void *y2;

    norm_forward(c, b->unit, param, BLOCK_LN_1_WEIGHT, a->x, a->y1, a->mean1, a->rstd1,
                 context_local_rows(c, mb->samples));
    attend_heads(b, param, a, s, mb);
    second_norm(b, param, a, mb,
                project_output(b, a->att, block_weight(b, param, BLOCK_ATTN_PROJ_WEIGHT), s, rows, split));
    tensor_gather(c->tp, a->y2, s->full_a, rows, d, b->unit->name);
    y2 = tensor_gathered(c->tp, a->y2, s->full_a);
    linear_forward(c, a->act, y2, block_weight(b, param, BLOCK_FC_WEIGHT), block_weight(b, param, BLOCK_FC_BIAS),
                   a->pre, rows, d, 4 * split);
}

void block_forward(const struct transformer_block *b, const void *param, const struct block_activations *a,
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

void block_recompute(const struct transformer_block *b, enum recompute recompute, const void *param,
                     const struct block_activations *a, const struct block_scratch *s, const struct micro_batch *mb)
{
    if (recompute == RECOMPUTE_FULL)
        inner_width(b, param, a, s, mb);
    else if (recompute == RECOMPUTE_SELECTIVE)
        attend_heads(b, param, a, s, mb);
}

/*
 * ---- backward, from out to x ----
 *
 * Rows are gathered for a product's inputs, and partial sums reduced, while another product of the same layer is
 * computed.
 */

static float *block_gradient(const struct transformer_block *b, float *grad, int tensor)
{
    return context_gradient(b->unit, grad, tensor);
}

/*
 * The gradient before a dropout and a bias: dx through the mask, in s->local if there is a dropout; and dbias. Returns
 * all rows of the gradient.
 */
static const void *residual_backward(const struct transformer_block *b, float *dbias, const struct block_scratch *s,
                                     const struct micro_batch *mb, uint32_t site, const void *dx)
{
    const struct context *c = b->c;
    struct dropout dropout = context_dropout(c, mb, site);
    int rows = context_rows(c, mb->samples), local = context_local_rows(c, mb->samples), d = c->shape->hidden;
    const void *dz = dx;

    if (dropout.p > 0) {
        c->k->dropout_backward(c->dev, c->dtype, s->local, dx, (size_t)local * (size_t)d, &dropout);
        dz = s->local;
    }
    c->k->bias_backward(c->dev, c->dtype, dbias, dz, local, d, false);
    tensor_gather(c->tp, dz, s->full_a, rows, d, b->unit->name);
    return tensor_gathered(c->tp, dz, s->full_a);
}

/*
 * A column-parallel layer after a norm: computes its gradients from dy [R, out]. Returns the gradient of the norm's
 * output y (local rows), summed over the group. The weight's gradient is computed during the exchange.
 */
static const void *column_backward(const struct transformer_block *b, const void *param, float *grad, int weight_tensor,
                                   const void *dy, const void *y, const struct block_scratch *s, int rows, int out)
{
    const struct context *c = b->c;
    int d = c->shape->hidden;
    const void *all;

    tensor_gather(c->tp, y, s->full_b, rows, d, b->unit->name);
    linear_backward_input(c, s->part, dy, block_weight(b, param, weight_tensor), NULL, rows, d, out);
    all = tensor_gathered(c->tp, y, s->full_b);
    tensor_reduce(c->tp, s->local, s->part, rows, d, b->unit->name);
    linear_backward_weight(c, block_gradient(b, grad, weight_tensor), block_gradient(b, grad, weight_tensor + 1), dy,
                           all, rows, d, out);
    return tensor_reduced(c->tp, s->local, s->part);
}

static void mlp_backward(const struct transformer_block *b, const void *param, float *grad,
                         const struct block_activations *a, const struct block_scratch *s, const struct micro_batch *mb,
                         void *dx)
{
    const struct context *c = b->c;
    int rows = context_rows(c, mb->samples), d = c->shape->hidden, wide = 4 * d / c->tp_size;
    const void *dz = residual_backward(b, block_gradient(b, grad, BLOCK_PROJ_BIAS), s, mb, b->site_mlp, dx), *dy;

    linear_backward_input(c, s->wide, dz, block_weight(b, param, BLOCK_PROJ_WEIGHT), a->pre, rows, wide, d);
    linear_backward_weight(c, block_gradient(b, grad, BLOCK_PROJ_WEIGHT), NULL, dz, a->act, rows, wide, d);
    dy = column_backward(b, param, grad, BLOCK_FC_WEIGHT, s->wide, a->y2, s, rows, wide);
    norm_backward(c, b->unit, param, grad, BLOCK_LN_2_WEIGHT, dy, a->mid, a->mean2, a->rstd2, dx,
                  context_local_rows(c, mb->samples), dx);
}

static void attention_backward(const struct transformer_block *b, const struct block_activations *a,
                               const struct block_scratch *s, const struct micro_batch *mb)
{
    struct attention forward = attention_arguments(b, a, mb);

    b->c->k->attention_backward(b->c->dev, &(struct attention_backward){.batch = forward.batch,
                                                                        .seq = forward.seq,
                                                                        .heads = forward.heads,
                                                                        .head_size = forward.head_size,
                                                                        .causal = forward.causal,
                                                                        .dtype = forward.dtype,
                                                                        .qkv = a->qkv,
                                                                        .out = a->att,
                                                                        .dout = s->narrow,
                                                                        .lse = a->lse,
                                                                        .lengths = forward.lengths,
                                                                        .dropout = forward.dropout,
                                                                        .dropout_stride = forward.dropout_stride,
                                                                        .dqkv = s->wide});
}

void block_backward(const struct transformer_block *b, const void *param, float *grad,
                    const struct block_activations *a, const struct block_scratch *s, const struct micro_batch *mb,
                    void *dx)
{
    const struct context *c = b->c;
    int rows = context_rows(c, mb->samples), d = c->shape->hidden, split = d / c->tp_size;
    const void *dz, *dy;

    mlp_backward(b, param, grad, a, s, mb, dx); /* dx becomes the gradient of mid */
    dz = residual_backward(b, block_gradient(b, grad, BLOCK_ATTN_PROJ_BIAS), s, mb, b->site_projection, dx);
    linear_backward_input(c, s->narrow, dz, block_weight(b, param, BLOCK_ATTN_PROJ_WEIGHT), NULL, rows, split, d);
    linear_backward_weight(c, block_gradient(b, grad, BLOCK_ATTN_PROJ_WEIGHT), NULL, dz, a->att, rows, split, d);
    attention_backward(b, a, s, mb);
    dy = column_backward(b, param, grad, BLOCK_ATTN_WEIGHT, s->wide, a->y1, s, rows, 3 * split);
    norm_backward(c, b->unit, param, grad, BLOCK_LN_1_WEIGHT, dy, a->x, a->mean1, a->rstd1, dx,
                  context_local_rows(c, mb->samples), dx);
    tensor_sum(c->tp, grad, b->unit->replicated, b->unit->name);
}

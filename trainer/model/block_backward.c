/*
 * block_backward.c - the backward pass of block.h, from out to x. Rows are gathered for a product's inputs and partial
 * sums reduced while another product of the same layer is computed.
 */
#include "trainer/model/block.h"

static const void *block_weight(const struct block *b, const void *param, int tensor)
{
    return context_weight(b->c, b->unit, param, tensor);
}

static float *block_gradient(const struct block *b, float *grad, int tensor)
{
    return context_gradient(b->unit, grad, tensor);
}

/*
 * The gradient behind a dropout and a bias: dx through the mask, into s->local where there is one; dbias; and then all
 * rows of it.
 */
static const void *residual_backward(const struct block *b, float *dbias, const struct block_scratch *s,
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

static void norm_backward(const struct block *b, const void *param, float *grad, const void *dy, const void *sum,
                          const float *mean, const float *rstd, int weight_tensor, int local, void *dx)
{
    const struct context *c = b->c;

    c->k->layernorm_backward(c->dev, &(struct layernorm_backward){.rows = local,
                                                                  .cols = c->shape->hidden,
                                                                  .dtype = c->dtype,
                                                                  .dy = dy,
                                                                  .sum = sum,
                                                                  .dresidual = dx,
                                                                  .dx = dx,
                                                                  .mean = mean,
                                                                  .rstd = rstd,
                                                                  .gamma = block_weight(b, param, weight_tensor),
                                                                  .dgamma = block_gradient(b, grad, weight_tensor),
                                                                  .dbeta = block_gradient(b, grad, weight_tensor + 1)});
}

/*
 * A column-parallel layer after a norm: from dy [R, out] its gradients, and those of the norm's output y (local rows),
 * summed over the group. The weight's gradient is computed while the sums are under way.
 */
static const void *column_backward(const struct block *b, const void *param, float *grad, int weight_tensor,
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

static void mlp_backward(const struct block *b, const void *param, float *grad, const struct block_activations *a,
                         const struct block_scratch *s, const struct micro_batch *mb, void *dx)
{
    const struct context *c = b->c;
    int rows = context_rows(c, mb->samples), d = c->shape->hidden, wide = 4 * d / c->tp_size;
    const void *dz = residual_backward(b, block_gradient(b, grad, BLOCK_PROJ_BIAS), s, mb, b->site_mlp, dx), *dy;

    linear_backward_input(c, s->wide, dz, block_weight(b, param, BLOCK_PROJ_WEIGHT), a->pre, rows, wide, d);
    linear_backward_weight(c, block_gradient(b, grad, BLOCK_PROJ_WEIGHT), NULL, dz, a->act, rows, wide, d);
    dy = column_backward(b, param, grad, BLOCK_FC_WEIGHT, s->wide, a->y2, s, rows, wide);
    norm_backward(b, param, grad, dy, a->mid, a->mean2, a->rstd2, BLOCK_LN_2_WEIGHT, context_local_rows(c, mb->samples),
                  dx);
}

static void attention_backward(const struct block *b, const struct block_activations *a, const struct block_scratch *s,
                               const struct micro_batch *mb)
{
    struct attention forward = block_attention(b, a, mb);

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

void block_backward(const struct block *b, const void *param, float *grad, const struct block_activations *a,
                    const struct block_scratch *s, const struct micro_batch *mb, void *dx)
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
    norm_backward(b, param, grad, dy, a->x, a->mean1, a->rstd1, BLOCK_LN_1_WEIGHT, context_local_rows(c, mb->samples),
                  dx);
    tensor_sum(c->tp, grad, b->unit->replicated, b->unit->name);
}

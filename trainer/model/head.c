#include "trainer/model/head.h"

static bool is_bert(const struct model_head *h)
{
    return h->c->shape->kind == MODEL_BERT;
}

void head_place(struct model_head *h, const struct context *c, const struct units *units, int max_samples,
                struct buffer_layout *layout, struct buffer_layout *host)
{
    size_t local = (size_t)context_local_rows(c, max_samples);
    size_t bytes = local * (size_t)c->shape->hidden * dtype_size(c->dtype);

    *h = (struct model_head){.c = c, .unit = &units->units[units_head(units)]};
    vocabulary_place(&h->vocabulary, c, units, max_samples, layout, host);
    h->h = place_buffer(layout, bytes);
    h->mean = place_buffer(layout, local * sizeof(float));
    h->rstd = place_buffer(layout, local * sizeof(float));
    if (!is_bert(h))
        return;
    head_order_place(&h->order, c, h->unit, max_samples, layout, host);
    h->pre = place_buffer(layout, bytes);
    h->act = place_buffer(layout, bytes);
    h->y = place_buffer(layout, bytes);
    h->dact = place_buffer(layout, bytes);
    h->mlm_mean = place_buffer(layout, local * sizeof(float));
    h->mlm_rstd = place_buffer(layout, local * sizeof(float));
}

static const void *head_weight(const struct model_head *h, const void *param, int tensor)
{
    return context_weight(h->c, h->unit, param, tensor);
}

static float *head_gradient(const struct model_head *h, float *grad, int tensor)
{
    return context_gradient(h->unit, grad, tensor);
}

/* The input of the projection to the vocabulary: the final norm's output, or BERT's transform of it. */
static void *mlm_forward(struct model_head *h, const void *param, const void *x, const struct micro_batch *mb)
{
    int local = context_local_rows(h->c, mb->samples), d = h->c->shape->hidden;

    norm_forward(h->c, h->unit, param, HEAD_LN_F_WEIGHT, x, h->h, h->mean, h->rstd, local);
    if (!is_bert(h))
        return h->h;
    linear_forward(h->c, h->act, h->h, head_weight(h, param, HEAD_MLM_WEIGHT), head_weight(h, param, HEAD_MLM_BIAS),
                   h->pre, local, d, d);
    norm_forward(h->c, h->unit, param, HEAD_MLM_LN_WEIGHT, h->act, h->y, h->mlm_mean, h->mlm_rstd, local);
    return h->y;
}

static const void *vocabulary_bias(const struct model_head *h, const void *param)
{
    return is_bert(h) ? head_weight(h, param, HEAD_VOCAB_BIAS) : NULL;
}

struct losses head_loss(struct model_head *h, const void *param, const void *wte, const void *x,
                        const struct micro_batch *mb)
{
    const void *y = mlm_forward(h, param, x, mb);
    struct losses losses = {.tokens = vocabulary_loss(&h->vocabulary, wte, vocabulary_bias(h, param), y, mb)};

    if (is_bert(h))
        losses.order = head_order_loss(&h->order, param, h->h, mb);
    return losses;
}

/* Computes the gradient of h, in h->act, from that of y, in h->y; and the transform's gradients. */
static void transform_backward(struct model_head *h, const void *param, float *grad, const struct micro_batch *mb)
{
    const struct context *c = h->c;
    int local = context_local_rows(c, mb->samples), d = c->shape->hidden;

    norm_backward(c, h->unit, param, grad, HEAD_MLM_LN_WEIGHT, h->y, h->act, h->mlm_mean, h->mlm_rstd, NULL, local,
                  h->dact);
    c->k->gelu_backward(c->dev, c->dtype, h->pre, h->dact, h->pre, (size_t)local * (size_t)d);
    linear_backward_weight(c, head_gradient(h, grad, HEAD_MLM_WEIGHT), head_gradient(h, grad, HEAD_MLM_BIAS), h->pre,
                           h->h, local, d, d);
    linear_backward_input(c, h->act, h->pre, head_weight(h, param, HEAD_MLM_WEIGHT), NULL, local, d, d);
}

struct losses head_loss_backward(struct model_head *h, const void *param, const void *wte, float *grad, float *wte_grad,
                                 const void *x, const struct micro_batch *mb, const struct loss_scales *scales,
                                 void *dx)
{
    void *y = mlm_forward(h, param, x, mb), *dh = y;
    float *bias_grad = is_bert(h) ? head_gradient(h, grad, HEAD_VOCAB_BIAS) : NULL;
    struct losses losses = {.tokens = vocabulary_loss_backward(&h->vocabulary, wte, vocabulary_bias(h, param), wte_grad,
                                                               bias_grad, y, mb, scales->tokens)};

    if (is_bert(h)) {
        transform_backward(h, param, grad, mb);
        dh = h->act;
        losses.order = head_order_loss_backward(&h->order, param, grad, h->h, mb, scales->order, dh);
    }
    norm_backward(h->c, h->unit, param, grad, HEAD_LN_F_WEIGHT, dh, x, h->mean, h->rstd, NULL,
                  context_local_rows(h->c, mb->samples), dx);
    tensor_sum(h->c->tp, grad, h->unit->replicated, "head");
    return losses;
}

void head_logits(struct model_head *h, const void *param, const void *wte, const void *x, const struct micro_batch *mb,
                 int row, float *out)
{
    const void *y = mlm_forward(h, param, x, mb);

    vocabulary_logits(&h->vocabulary, wte, vocabulary_bias(h, param), y, row, out);
}

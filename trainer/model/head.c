#include "trainer/model/head.h"

static bool is_bert(const struct model_head *h)
{
    return h->c->shape->kind == MODEL_BERT;
}

void head_carve(struct model_head *h, const struct context *c, const struct units *units, int max_samples,
                struct carver *carver, struct carver *host)
{
    size_t local = (size_t)context_local_rows(c, max_samples);
    size_t bytes = local * (size_t)c->shape->hidden * dtype_size(c->dtype);

    *h = (struct model_head){.c = c, .unit = &units->units[units_head(units)]};
    vocabulary_carve(&h->vocabulary, c, units, max_samples, carver, host);
    h->h = carve(carver, bytes);
    h->mean = carve(carver, local * sizeof(float));
    h->rstd = carve(carver, local * sizeof(float));
    if (!is_bert(h))
        return;
    head_order_carve(&h->order, c, h->unit, max_samples, carver, host);
    h->pre = carve(carver, bytes);
    h->act = carve(carver, bytes);
    h->y = carve(carver, bytes);
    h->dact = carve(carver, bytes);
    h->mlm_mean = carve(carver, local * sizeof(float));
    h->mlm_rstd = carve(carver, local * sizeof(float));
}

static const void *head_weight(const struct model_head *h, const void *param, int tensor)
{
    return context_weight(h->c, h->unit, param, tensor);
}

static float *head_gradient(const struct model_head *h, float *grad, int tensor)
{
    return context_gradient(h->unit, grad, tensor);
}

static void norm_forward(const struct model_head *h, const void *param, int weight_tensor, const void *x, void *y,
                         float *mean, float *rstd, const struct micro_batch *mb)
{
    const struct context *c = h->c;

    c->k->layernorm_forward(c->dev, &(struct layernorm){.rows = context_local_rows(c, mb->samples),
                                                        .cols = c->shape->hidden,
                                                        .dtype = c->dtype,
                                                        .x = x,
                                                        .y = y,
                                                        .mean = mean,
                                                        .rstd = rstd,
                                                        .gamma = head_weight(h, param, weight_tensor),
                                                        .beta = head_weight(h, param, weight_tensor + 1)});
}

static void norm_backward(const struct model_head *h, const void *param, float *grad, int weight_tensor, const void *dy,
                          const void *x, const float *mean, const float *rstd, const struct micro_batch *mb, void *dx)
{
    const struct context *c = h->c;

    c->k->layernorm_backward(c->dev, &(struct layernorm_backward){.rows = context_local_rows(c, mb->samples),
                                                                  .cols = c->shape->hidden,
                                                                  .dtype = c->dtype,
                                                                  .dy = dy,
                                                                  .sum = x,
                                                                  .mean = mean,
                                                                  .rstd = rstd,
                                                                  .dx = dx,
                                                                  .gamma = head_weight(h, param, weight_tensor),
                                                                  .dgamma = head_gradient(h, grad, weight_tensor),
                                                                  .dbeta = head_gradient(h, grad, weight_tensor + 1)});
}

/* What the vocabulary's projection takes: the final norm's output, or BERT's transform of it. */
static void *mlm_forward(struct model_head *h, const void *param, const void *x, const struct micro_batch *mb)
{
    int local = context_local_rows(h->c, mb->samples), d = h->c->shape->hidden;

    norm_forward(h, param, HEAD_LN_F_WEIGHT, x, h->h, h->mean, h->rstd, mb);
    if (!is_bert(h))
        return h->h;
    linear_forward(h->c, h->act, h->h, head_weight(h, param, HEAD_MLM_WEIGHT), head_weight(h, param, HEAD_MLM_BIAS),
                   h->pre, local, d, d);
    norm_forward(h, param, HEAD_MLM_LN_WEIGHT, h->act, h->y, h->mlm_mean, h->mlm_rstd, mb);
    return h->y;
}

static const void *vocabulary_bias(const struct model_head *h, const void *param)
{
    return is_bert(h) ? head_weight(h, param, HEAD_VOCAB_BIAS) : NULL;
}

struct losses head_loss(struct model_head *h, const void *param, const void *wte, const void *x, const struct micro_batch *mb)
{
    const void *y = mlm_forward(h, param, x, mb);
    struct losses losses = {.tokens = vocabulary_loss(&h->vocabulary, wte, vocabulary_bias(h, param), y, mb)};

    if (is_bert(h))
        losses.order = head_order_loss(&h->order, param, h->h, mb);
    return losses;
}

/* From the gradient of y, in h->y, to that of h, in h->act, and all gradients of the transform. */
static void transform_backward(struct model_head *h, const void *param, float *grad, const struct micro_batch *mb)
{
    const struct context *c = h->c;
    int local = context_local_rows(c, mb->samples), d = c->shape->hidden;

    norm_backward(h, param, grad, HEAD_MLM_LN_WEIGHT, h->y, h->act, h->mlm_mean, h->mlm_rstd, mb, h->dact);
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
    norm_backward(h, param, grad, HEAD_LN_F_WEIGHT, dh, x, h->mean, h->rstd, mb, dx);
    tensor_sum(h->c->tp, grad, h->unit->replicated, "head");
    return losses;
}

void head_logits(struct model_head *h, const void *param, const void *wte, const void *x, const struct micro_batch *mb,
                 int row, float *out)
{
    const void *y = mlm_forward(h, param, x, mb);

    vocabulary_logits(&h->vocabulary, wte, vocabulary_bias(h, param), y, row, out);
}

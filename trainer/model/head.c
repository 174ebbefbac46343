#include "trainer/model/head.h"

static bool is_bert(const struct model_head *h)
{
    return h->w.c->shape->kind == MODEL_BERT;
}

static void place_order(struct head_order *o, const struct context *c, const size_t bytes[HEAD_PIECES],
                        struct buffer_layout *layout)
{
    o->first = place_buffer(layout, bytes[HEAD_SAMPLES]);
    o->pooled = place_buffer(layout, bytes[HEAD_SAMPLES]);
    o->gradient = place_buffer(layout, bytes[HEAD_SAMPLES]);
    o->targets = place_buffer(layout, bytes[HEAD_TARGETS]);
    cross_entropy_place(&o->ce, bytes[HEAD_ORDER_LOSS], layout);
    o->ce.logits = place_buffer(layout, bytes[HEAD_ORDER_LOGITS]);
    o->ce.targets = o->targets;
    o->ce.dtype = c->dtype;
    o->ce.vocab = o->ce.stride = 2;
}

void head_place(struct model_head *h, const struct context *c, const struct units *units, struct buffer_layout *layout,
                struct buffer_layout *host)
{
    size_t bytes[HEAD_PIECES];

    head_pieces(&c->sizes, bytes);
    *h = (struct model_head){.w = {.c = c, .unit = &units->units[units_head(units)]}};
    vocabulary_place(&h->vocabulary, c, units, bytes, layout, host);
    h->h = place_buffer(layout, bytes[HEAD_NORM]);
    h->mean = place_buffer(layout, bytes[HEAD_MEAN]);
    h->rstd = place_buffer(layout, bytes[HEAD_MEAN]);
    if (!is_bert(h))
        return;
    place_order(&h->order, c, bytes, layout);
    h->pre = place_buffer(layout, bytes[HEAD_NORM]);
    h->act = place_buffer(layout, bytes[HEAD_NORM]);
    h->y = place_buffer(layout, bytes[HEAD_NORM]);
    h->dact = place_buffer(layout, bytes[HEAD_NORM]);
    h->mlm_mean = place_buffer(layout, bytes[HEAD_MEAN]);
    h->mlm_rstd = place_buffer(layout, bytes[HEAD_MEAN]);
}

/* ---- the order of sentences ---- */

/* True if this rank holds the sample's first token, in row *row. */
static bool is_ours(const struct context *c, const struct micro_batch *mb, int sample, int *row)
{
    int local = context_local_rows(c, mb->samples);

    *row = sample * c->shape->seq_length - c->tp->rank * local;
    return *row >= 0 && *row < local;
}

static int take_first_rows(struct model_head *h, const struct micro_batch *mb)
{
    const struct context *c = h->w.c;
    size_t bytes = (size_t)c->shape->hidden * dtype_size(c->dtype);
    int n = 0, row;

    for (int i = 0; i < mb->samples; i++)
        if (is_ours(c, mb, i, &row)) {
            c->k->copy(c->dev, (char *)h->order.first + (size_t)n * bytes, (char *)h->h + (size_t)row * bytes, bytes);
            c->k->copy(c->dev, &h->order.targets[n++], &mb->order[i], sizeof *h->order.targets);
        }
    return n;
}

/* The forward pass; replaces the logits by their gradient. */
static double order_forward(struct model_head *h, int n, double scale)
{
    const struct context *c = h->w.c;
    struct head_order *o = &h->order;
    const float *losses;
    double total = 0;
    int d = c->shape->hidden;

    o->ce.rows = n;
    o->ce.scale = (float)scale;
    linear_forward(&h->w, HEAD_POOLER_WEIGHT, o->pooled, o->first, NULL, n, d, d);
    c->k->tanh_forward(c->dev, c->dtype, o->pooled, o->pooled, (size_t)n * (size_t)d);
    linear_forward(&h->w, HEAD_ORDER_WEIGHT, o->ce.logits, o->pooled, NULL, n, d, 2);
    c->k->cross_entropy_stats(c->dev, &o->ce);
    c->k->cross_entropy_finish(c->dev, &o->ce);
    losses = context_read(c, h->vocabulary.host, o->ce.loss, (size_t)n);
    for (int i = 0; i < n; i++)
        total += losses[i];
    return total;
}

static void zero_gradients(struct model_head *h)
{
    const int tensors[] = {HEAD_POOLER_WEIGHT, HEAD_POOLER_BIAS, HEAD_ORDER_WEIGHT, HEAD_ORDER_BIAS};

    for (int i = 0; i < 4; i++)
        h->w.c->k->zero(h->w.c->dev, weights_gradient(&h->w, tensors[i]),
                        h->w.unit->tensors[tensors[i]].count * sizeof(float));
}

static void add_first_rows(struct model_head *h, void *dh, const struct micro_batch *mb)
{
    const struct context *c = h->w.c;
    size_t d = (size_t)c->shape->hidden, bytes = d * dtype_size(c->dtype);
    char *first = h->order.first;
    int row;

    for (int i = 0; i < mb->samples; i++)
        if (is_ours(c, mb, i, &row)) {
            c->k->add(c->dev, c->dtype, (char *)dh + (size_t)row * bytes, first, d);
            first += bytes;
        }
}

/* Overwrites the gradients of the pooler and the order, and adds the gradient of h to dh. */
static void order_backward(struct model_head *h, int n, const struct micro_batch *mb, void *dh)
{
    const struct context *c = h->w.c;
    struct head_order *o = &h->order;
    void *dpooled = o->gradient;
    int d = c->shape->hidden;

    linear_backward_weight(&h->w, HEAD_ORDER_WEIGHT, true, o->ce.logits, o->pooled, n, d, 2);
    linear_backward_input(&h->w, HEAD_ORDER_WEIGHT, dpooled, o->ce.logits, NULL, n, d, 2);
    c->k->tanh_backward(c->dev, c->dtype, dpooled, dpooled, o->pooled, (size_t)n * (size_t)d);
    linear_backward_weight(&h->w, HEAD_POOLER_WEIGHT, true, dpooled, o->first, n, d, d);
    linear_backward_input(&h->w, HEAD_POOLER_WEIGHT, o->first, dpooled, NULL, n, d, d);
    add_first_rows(h, dh, mb);
}

/* Sum of the losses of the samples whose first token this rank holds. dh: as in order_backward. */
static double order_loss(struct model_head *h, const struct micro_batch *mb, const struct head_gradients *gradients,
                         void *dh)
{
    int n = take_first_rows(h, mb);
    double total = n ? order_forward(h, n, gradients ? gradients->scales->order : 0) : 0;

    if (gradients && n > 0)
        order_backward(h, n, mb, dh);
    else if (gradients)
        zero_gradients(h);
    return total;
}

/* ---- the head ---- */

/* The input of the projection to the vocabulary: the final norm's output, or BERT's transform of it. */
static void *mlm_forward(struct model_head *h, const void *x, const struct micro_batch *mb)
{
    int local = context_local_rows(h->w.c, mb->samples), d = h->w.c->shape->hidden;

    norm_forward(&h->w, HEAD_LN_F_WEIGHT, x, h->h, h->mean, h->rstd, local);
    if (!is_bert(h))
        return h->h;
    linear_forward(&h->w, HEAD_MLM_WEIGHT, h->act, h->h, h->pre, local, d, d);
    norm_forward(&h->w, HEAD_MLM_LN_WEIGHT, h->act, h->y, h->mlm_mean, h->mlm_rstd, local);
    return h->y;
}

static const void *vocabulary_bias(const struct model_head *h)
{
    return is_bert(h) ? weights_at(&h->w, HEAD_VOCAB_BIAS) : NULL;
}

/* Computes the gradient of h, in h->act, from that of y, in h->y; and the transform's gradients. */
static void transform_backward(struct model_head *h, const struct micro_batch *mb)
{
    const struct context *c = h->w.c;
    int local = context_local_rows(c, mb->samples), d = c->shape->hidden;

    norm_backward(&h->w, HEAD_MLM_LN_WEIGHT, h->y, h->act, h->mlm_mean, h->mlm_rstd, NULL, local, h->dact);
    c->k->gelu_backward(c->dev, c->dtype, h->pre, h->dact, h->pre, (size_t)local * (size_t)d);
    linear_backward_weight(&h->w, HEAD_MLM_WEIGHT, true, h->pre, h->h, local, d, d);
    linear_backward_input(&h->w, HEAD_MLM_WEIGHT, h->act, h->pre, NULL, local, d, d);
}

struct losses head_loss(struct model_head *h, const void *param, const void *wte, const void *x,
                        const struct micro_batch *mb, const struct head_gradients *gradients)
{
    struct vocabulary_gradients vocabulary = {0};
    struct losses losses = {0};
    void *y;

    h->w.param = param;
    y = mlm_forward(h, x, mb);
    if (gradients) {
        h->w.grad = gradients->head;
        vocabulary.scale = gradients->scales->tokens;
        vocabulary.wte = gradients->wte;
        vocabulary.bias = is_bert(h) ? weights_gradient(&h->w, HEAD_VOCAB_BIAS) : NULL;
    }
    losses.token_loss = vocabulary_loss(&h->vocabulary, wte, vocabulary_bias(h), y, mb, gradients ? &vocabulary : NULL);
    if (gradients && is_bert(h))
        transform_backward(h, mb);
    if (is_bert(h))
        losses.order = order_loss(h, mb, gradients, h->act);
    if (!gradients)
        return losses;
    norm_backward(&h->w, HEAD_LN_F_WEIGHT, is_bert(h) ? h->act : y, x, h->mean, h->rstd, NULL,
                  context_local_rows(h->w.c, mb->samples), gradients->dx);
    tp_all_reduce_f32(h->w.c->tp, gradients->head, h->w.unit->replicated, "head");
    return losses;
}

void head_logits(struct model_head *h, const void *param, const void *wte, const void *x, const struct micro_batch *mb,
                 int row, float *out)
{
    h->w.param = param;
    vocabulary_logits(&h->vocabulary, wte, vocabulary_bias(h), mlm_forward(h, x, mb), row, out);
}

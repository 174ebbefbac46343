#include "trainer/model/head.h"

static bool has_part(const struct model_head *h, enum model_part part)
{
    return unit_find(h->w.unit, part, WEIGHT) != NULL;
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
    h->rstd = place_buffer(layout, bytes[HEAD_RSTD]);
    place_order(&h->order, c, bytes, layout);
    h->pre = place_buffer(layout, bytes[HEAD_TRANSFORM]);
    h->act = place_buffer(layout, bytes[HEAD_TRANSFORM]);
    h->y = place_buffer(layout, bytes[HEAD_TRANSFORM]);
    h->dact = place_buffer(layout, bytes[HEAD_TRANSFORM]);
    h->mlm_mean = place_buffer(layout, bytes[HEAD_TRANSFORM_MEAN]);
    h->mlm_rstd = place_buffer(layout, bytes[HEAD_TRANSFORM_MEAN]);
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
static void order_forward(struct model_head *h, int n, const struct micro_batch *mb, double scale)
{
    const struct context *c = h->w.c;
    struct head_order *o = &h->order;

    o->ce.rows = n;
    o->ce.scale = (float)scale;
    linear_forward(&h->w, PART_POOLER, true, o->pooled, o->first, NULL, n);
    c->k->tanh_forward(c->dev, c->dtype, o->pooled, o->pooled, (size_t)n * (size_t)c->shape->hidden);
    linear_forward(&h->w, PART_ORDER, true, o->ce.logits, o->pooled, NULL, n);
    c->k->cross_entropy_stats(c->dev, &o->ce);
    c->k->cross_entropy_finish(c->dev, &o->ce);
    c->k->copy(c->dev, mb->losses.orders, o->ce.loss, (size_t)n * sizeof(float));
}

static void zero_gradients(struct model_head *h)
{
    for (int i = 0; i < h->w.unit->ntensors; i++) {
        const struct unit_tensor *t = &h->w.unit->tensors[i];

        if (t->row.part == PART_POOLER || t->row.part == PART_ORDER)
            h->w.c->k->zero(h->w.c->dev, h->w.grad + t->offset, t->count * sizeof(float));
    }
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

    linear_backward_weight(&h->w, PART_ORDER, true, o->ce.logits, o->pooled, n);
    linear_backward_input(&h->w, PART_ORDER, dpooled, 0, o->ce.logits, NULL, n);
    c->k->tanh_backward(c->dev, c->dtype, dpooled, dpooled, o->pooled, (size_t)n * (size_t)c->shape->hidden);
    linear_backward_weight(&h->w, PART_POOLER, true, dpooled, o->first, n);
    linear_backward_input(&h->w, PART_POOLER, o->first, 0, dpooled, NULL, n);
    add_first_rows(h, dh, mb);
}

/* dh: as in order_backward. */
static void order_losses(struct model_head *h, const struct micro_batch *mb, const struct head_gradients *gradients,
                         void *dh)
{
    int n = take_first_rows(h, mb);

    if (n > 0)
        order_forward(h, n, mb, gradients ? gradients->scales->order : 0);
    if (gradients && n > 0)
        order_backward(h, n, mb, dh);
    else if (gradients)
        zero_gradients(h);
}

/* ---- the head ---- */

/* The input of the projection to the vocabulary: the final norm's output, or BERT's transform of it. */
static void *mlm_forward(struct model_head *h, const void *x, const struct micro_batch *mb)
{
    int local = context_local_rows(h->w.c, mb->samples);

    norm_forward(&h->w, PART_LN_F, x, h->h, h->mean, h->rstd, local);
    if (!has_part(h, PART_MLM))
        return h->h;
    linear_forward(&h->w, PART_MLM, true, h->act, h->h, h->pre, local);
    norm_forward(&h->w, PART_MLM_LN, h->act, h->y, h->mlm_mean, h->mlm_rstd, local);
    return h->y;
}

/* Computes the gradient of h, in h->act, from that of y, in h->y; and the transform's gradients. */
static void transform_backward(struct model_head *h, const struct micro_batch *mb)
{
    const struct context *c = h->w.c;
    int local = context_local_rows(c, mb->samples);

    norm_backward(&h->w, PART_MLM_LN, h->y, h->act, h->mlm_mean, h->mlm_rstd, NULL, local, h->dact);
    c->k->gelu_backward(c->dev, c->dtype, h->pre, h->dact, h->pre, (size_t)local * (size_t)c->shape->hidden);
    linear_backward_weight(&h->w, PART_MLM, true, h->pre, h->h, local);
    linear_backward_input(&h->w, PART_MLM, h->act, 0, h->pre, NULL, local);
}

/* The matrix of the projection to the vocabulary, and its gradient: the head's own, or the tied embedding's. */
static const void *projection_of(const struct model_head *h, const void *wte)
{
    return has_part(h, PART_LOGITS) ? weights_at(&h->w, PART_LOGITS, WEIGHT) : wte;
}

static float *projection_gradient(const struct model_head *h, float *wte)
{
    return has_part(h, PART_LOGITS) ? weights_gradient(&h->w, PART_LOGITS, WEIGHT) : wte;
}

void head_losses(struct model_head *h, const void *param, const void *wte, const void *x, const struct micro_batch *mb,
                 const struct head_gradients *gradients)
{
    struct vocabulary_gradients vocabulary = {0};
    void *y;

    h->w.param = param;
    y = mlm_forward(h, x, mb);
    if (gradients) {
        h->w.grad = gradients->head;
        vocabulary.scale = gradients->scales->tokens;
        vocabulary.projection = projection_gradient(h, gradients->wte);
        vocabulary.bias = weights_gradient(&h->w, PART_LOGITS, BIAS);
    }
    vocabulary_losses(&h->vocabulary, projection_of(h, wte), weights_at(&h->w, PART_LOGITS, BIAS), y, mb,
                      gradients ? &vocabulary : NULL);
    if (gradients && has_part(h, PART_MLM))
        transform_backward(h, mb);
    if (has_part(h, PART_ORDER))
        order_losses(h, mb, gradients, h->act);
    if (!gradients)
        return;
    norm_backward(&h->w, PART_LN_F, has_part(h, PART_MLM) ? h->act : y, x, h->mean, h->rstd, NULL,
                  context_local_rows(h->w.c, mb->samples), gradients->dx);
    tp_all_reduce_f32(h->w.c->tp, gradients->head, h->w.unit->replicated, "head");
}

void head_logits(struct model_head *h, const void *param, const void *wte, const void *x, const struct micro_batch *mb,
                 int row, float *out)
{
    h->w.param = param;
    vocabulary_logits(&h->vocabulary, projection_of(h, wte), weights_at(&h->w, PART_LOGITS, BIAS),
                      mlm_forward(h, x, mb), row, out);
}

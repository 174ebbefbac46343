#include "trainer/model/head_order.h"

void head_order_place(struct head_order *o, const struct context *c, const struct unit *unit, int max_samples,
                      struct buffer_layout *layout, struct buffer_layout *host)
{
    size_t samples = (size_t)max_samples, row = (size_t)c->shape->hidden * dtype_size(c->dtype);

    *o = (struct head_order){.c = c, .unit = unit};
    o->first = place_buffer(layout, samples * row);
    o->pooled = place_buffer(layout, samples * row);
    o->gradient = place_buffer(layout, samples * row);
    o->logits = place_buffer(layout, samples * 2 * dtype_size(c->dtype));
    o->targets = place_buffer(layout, samples * sizeof *o->targets);
    o->max = place_buffer(layout, samples * sizeof(float));
    o->sum = place_buffer(layout, samples * sizeof(float));
    o->target = place_buffer(layout, samples * sizeof(float));
    o->loss = place_buffer(layout, samples * sizeof(float));
    o->host = c->discrete ? place_buffer(host, samples * sizeof(float)) : NULL;
}

static const void *order_weight(const struct head_order *o, const void *param, int tensor)
{
    return context_weight(o->c, o->unit, param, tensor);
}

/* True if this rank holds the sample's first token, in row *row. */
static bool is_ours(const struct context *c, const struct micro_batch *mb, int sample, int *row)
{
    int local = context_local_rows(c, mb->samples);

    *row = sample * c->shape->seq_length - c->tp->rank * local;
    return *row >= 0 && *row < local;
}

static int take_first_rows(struct head_order *o, const void *h, const struct micro_batch *mb)
{
    const struct context *c = o->c;
    size_t bytes = (size_t)c->shape->hidden * dtype_size(c->dtype);
    int n = 0, row;

    for (int i = 0; i < mb->samples; i++)
        if (is_ours(c, mb, i, &row)) {
            c->k->copy(c->dev, (char *)o->first + (size_t)n * bytes, (const char *)h + (size_t)row * bytes, bytes);
            c->k->copy(c->dev, &o->targets[n++], &mb->order[i], sizeof *o->targets);
        }
    return n;
}

static struct cross_entropy cross_entropy_of(struct head_order *o, int n, double scale)
{
    return (struct cross_entropy){
        .rows = n,
        .vocab = 2,
        .stride = 2,
        .dtype = o->c->dtype,
        .targets = o->targets,
        .logits = o->logits,
        .max = o->max,
        .sum = o->sum,
        .target = o->target,
        .loss = o->loss,
        .scale = (float)scale,
    };
}

/* The forward pass; replaces the logits by their gradient. */
static double order_forward(struct head_order *o, const void *param, int n, double scale)
{
    const struct context *c = o->c;
    int d = c->shape->hidden;
    struct cross_entropy ce = cross_entropy_of(o, n, scale);
    const float *loss;
    double total = 0;

    if (n == 0)
        return 0;
    linear_forward(c, o->pooled, o->first, order_weight(o, param, HEAD_POOLER_WEIGHT),
                   order_weight(o, param, HEAD_POOLER_BIAS), NULL, n, d, d);
    c->k->tanh_forward(c->dev, c->dtype, o->pooled, o->pooled, (size_t)n * (size_t)d);
    linear_forward(c, o->logits, o->pooled, order_weight(o, param, HEAD_ORDER_WEIGHT),
                   order_weight(o, param, HEAD_ORDER_BIAS), NULL, n, d, 2);
    c->k->cross_entropy_stats(c->dev, &ce);
    c->k->cross_entropy_finish(c->dev, &ce);
    loss = context_read(c, o->host, o->loss, (size_t)n);
    for (int i = 0; i < n; i++)
        total += loss[i];
    return total;
}

double head_order_loss(struct head_order *o, const void *param, const void *h, const struct micro_batch *mb)
{
    return order_forward(o, param, take_first_rows(o, h, mb), 0);
}

static float *order_gradient(const struct head_order *o, float *grad, int tensor)
{
    return context_gradient(o->unit, grad, tensor);
}

static void zero_gradients(struct head_order *o, float *grad)
{
    const int tensors[] = {HEAD_POOLER_WEIGHT, HEAD_POOLER_BIAS, HEAD_ORDER_WEIGHT, HEAD_ORDER_BIAS};

    for (int i = 0; i < 4; i++)
        o->c->k->zero(o->c->dev, order_gradient(o, grad, tensors[i]),
                      o->unit->tensors[tensors[i]].count * sizeof(float));
}

static void add_first_rows(struct head_order *o, void *dh, const struct micro_batch *mb)
{
    const struct context *c = o->c;
    size_t d = (size_t)c->shape->hidden, bytes = d * dtype_size(c->dtype);
    int n = 0, row;

    for (int i = 0; i < mb->samples; i++)
        if (is_ours(c, mb, i, &row))
            c->k->add(c->dev, c->dtype, (char *)dh + (size_t)row * bytes, (char *)o->first + (size_t)n++ * bytes, d);
}

double head_order_loss_backward(struct head_order *o, const void *param, float *grad, const void *h,
                                const struct micro_batch *mb, double scale, void *dh)
{
    const struct context *c = o->c;
    int n = take_first_rows(o, h, mb), d = c->shape->hidden;
    double total = order_forward(o, param, n, scale);
    void *dpooled = o->gradient;

    if (n == 0) {
        zero_gradients(o, grad);
        return 0;
    }
    linear_backward_weight(c, order_gradient(o, grad, HEAD_ORDER_WEIGHT), order_gradient(o, grad, HEAD_ORDER_BIAS),
                           o->logits, o->pooled, n, d, 2);
    linear_backward_input(c, dpooled, o->logits, order_weight(o, param, HEAD_ORDER_WEIGHT), NULL, n, d, 2);
    c->k->tanh_backward(c->dev, c->dtype, dpooled, dpooled, o->pooled, (size_t)n * (size_t)d);
    linear_backward_weight(c, order_gradient(o, grad, HEAD_POOLER_WEIGHT), order_gradient(o, grad, HEAD_POOLER_BIAS),
                           dpooled, o->first, n, d, d);
    linear_backward_input(c, o->first, dpooled, order_weight(o, param, HEAD_POOLER_WEIGHT), NULL, n, d, d);
    add_first_rows(o, dh, mb);
    return total;
}

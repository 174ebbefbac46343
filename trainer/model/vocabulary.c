#include "trainer/model/vocabulary.h"

#include <string.h>

void cross_entropy_place(struct cross_entropy *ce, size_t bytes, struct buffer_layout *layout)
{
    ce->max = place_buffer(layout, bytes);
    ce->sum = place_buffer(layout, bytes);
    ce->target = place_buffer(layout, bytes);
    ce->loss = place_buffer(layout, bytes);
}

void vocabulary_place(struct vocabulary *v, const struct context *c, const struct units *units, const size_t *bytes,
                      struct buffer_layout *layout, struct buffer_layout *host)
{
    *v = (struct vocabulary){.c = c, .units = units};
    v->ce = (struct cross_entropy){
        .vocab = units->vocab, .stride = units->vocab_padded, .vocab_first = units->vocab_first, .dtype = c->dtype};
    v->ce.logits = place_buffer(layout, bytes[HEAD_LOGITS]);
    v->full = place_buffer(layout, bytes[HEAD_FULL]);
    v->stats = place_buffer(layout, bytes[HEAD_STATS]);
    cross_entropy_place(&v->ce, bytes[HEAD_LOSS], layout);
    v->wide = place_buffer(layout, bytes[HEAD_WIDE]);
    v->host = place_buffer(host, bytes[HEAD_HOST]);
}

static void logits_of_rows(struct vocabulary *v, const void *projection, const void *bias, const void *y, int first,
                           int rows)
{
    const struct context *c = v->c;
    int d = c->shape->hidden;
    const void *at = (const char *)y + (size_t)first * (size_t)d * dtype_size(c->dtype);
    struct matmul product = context_product(c, rows, v->units->vocab_padded, d, at, projection, v->ce.logits);

    product.transpose_b = true;
    product.bias = bias;
    product.epilogue = bias ? EPILOGUE_BIAS : EPILOGUE_NONE;
    c->k->matmul(c->dev, &product);
}

/* Ranks exchange their slices' max, sum and target of each row, and each computes those of the whole vocabulary. */
static void combine_ranks(struct vocabulary *v, const struct cross_entropy *ce)
{
    const struct context *c = v->c;
    size_t rows = (size_t)ce->rows;
    float *own = v->stats + (size_t)c->tp->rank * 3 * rows;
    const float *parts[] = {ce->max, ce->sum, ce->target};

    for (size_t i = 0; i < 3; i++)
        c->k->copy(c->dev, own + i * rows, parts[i], rows * sizeof(float));
    tp_all_gather_f32(c->tp, v->stats, rows * 3, "logits");
    c->k->cross_entropy_combine(c->dev, &(struct cross_entropy_combine){.rows = ce->rows,
                                                                        .parts = c->tp->size,
                                                                        .stats = v->stats,
                                                                        .max = ce->max,
                                                                        .sum = ce->sum,
                                                                        .target = ce->target});
}

static void loss_of_rows(struct vocabulary *v, const int32_t *targets, int first, int rows, double scale)
{
    const struct context *c = v->c;
    struct cross_entropy ce = v->ce;

    ce.rows = rows;
    ce.targets = targets + first;
    ce.scale = (float)scale;
    ce.max += first;
    ce.sum += first;
    ce.target += first;
    ce.loss += first;
    if (c->tp->size == 1) {
        c->k->cross_entropy(c->dev, &ce);
        return;
    }
    c->k->cross_entropy_stats(c->dev, &ce);
    combine_ranks(v, &ce);
    c->k->cross_entropy_finish(c->dev, &ce);
}

/* dprojection += dlogits^T y (the first rows overwrite), then y's rows become their own gradient, dlogits projection. */
static void backward_of_rows(struct vocabulary *v, const void *projection, const struct vocabulary_gradients *gradients,
                             void *y, int first, int rows)
{
    const struct context *c = v->c;
    int d = c->shape->hidden, padded = v->units->vocab_padded;
    void *at = (char *)y + (size_t)first * (size_t)d * dtype_size(c->dtype);
    struct matmul product = context_product(c, padded, d, rows, v->ce.logits, at, gradients->projection);

    product.transpose_a = product.c_fp32 = true;
    product.accumulate = first > 0;
    c->k->matmul(c->dev, &product);
    if (gradients->bias)
        c->k->bias_backward(c->dev, c->dtype, gradients->bias, v->ce.logits, rows, padded, first > 0);
    product = context_product(c, rows, d, padded, v->ce.logits, projection, at);
    c->k->matmul(c->dev, &product);
}

void vocabulary_losses(struct vocabulary *v, const void *projection, const void *bias, void *y,
                       const struct micro_batch *mb, const struct vocabulary_gradients *gradients)
{
    const struct context *c = v->c;
    int all = context_rows(c, mb->samples), most = c->sizes.logits_rows;
    void *full; /* all rows of y; with one rank y itself */

    tp_start_all_gather(c->tp, y, v->full, all, c->shape->hidden, "head");
    full = (void *)tp_all_gathered(c->tp, y, v->full);
    for (int first = 0; first < all; first += most) {
        int rows = all - first < most ? all - first : most;

        logits_of_rows(v, projection, bias, full, first, rows);
        loss_of_rows(v, mb->targets, first, rows, gradients ? gradients->scale : 0);
        if (gradients)
            backward_of_rows(v, projection, gradients, full, first, rows);
    }
    if (gradients) {
        tp_start_reduce_scatter(c->tp, y, full, all, c->shape->hidden, "head");
        tp_reduce_scattered(c->tp, y, full);
    }
    c->k->copy(c->dev, mb->losses.tokens, v->ce.loss, (size_t)all * sizeof(float));
}

void vocabulary_logits(struct vocabulary *v, const void *projection, const void *bias, const void *y, int row,
                       float *out)
{
    const struct context *c = v->c;
    size_t vocab = (size_t)c->shape->vocab;
    float *wide = c->sizes.discrete ? v->wide : out;

    logits_of_rows(v, projection, bias, y, row, 1);
    c->k->cast(c->dev, DTYPE_F32, wide, c->dtype, v->ce.logits, vocab);
    if (wide != out)
        c->k->copy(c->dev, v->host, wide, vocab * sizeof *out);
    device_wait(c->dev);
    if (wide != out)
        memcpy(out, v->host, vocab * sizeof *out);
}

static struct position_embedding positions_of(const struct context *c, const struct micro_batch *mb, void *x)
{
    int local = context_local_rows(c, mb->samples), first = c->tp->rank * local;

    return (struct position_embedding){
        .rows = local,
        .cols = c->shape->hidden,
        .seq = c->shape->seq_length,
        .first_row = first,
        .dtype = c->dtype,
        .types = mb->types ? mb->types + first : NULL,
        .document_start = mb->document_start ? mb->document_start + first : NULL,
        .dropout = context_dropout(c, mb, philox_site("embedding.dropout")),
        .x = x,
    };
}

static struct embedding embedding_of(const struct context *c, const struct units *units, const struct micro_batch *mb)
{
    return (struct embedding){
        .rows = context_rows(c, mb->samples),
        .cols = c->shape->hidden,
        .vocab_first = units->vocab_first,
        .vocab = units->vocab,
        .dtype = c->dtype,
        .tokens = mb->tokens,
    };
}

void embed_forward(const struct weights *positions, const struct units *units, const void *wte,
                   const struct micro_batch *mb, void *scratch, void *x)
{
    const struct context *c = positions->c;
    struct embedding embedding = embedding_of(c, units, mb);
    struct position_embedding position = positions_of(c, mb, x);

    embedding.wte = wte;
    embedding.x = c->tp->size > 1 ? scratch : x; /* with one tp rank the exchange below does nothing */
    c->k->embedding_forward(c->dev, &embedding);
    tp_start_reduce_scatter(c->tp, x, scratch, embedding.rows, embedding.cols, "token embedding");
    tp_reduce_scattered(c->tp, x, scratch);
    position.wpe = weights_at(positions, PART_WPE, WEIGHT);
    position.wtt = weights_at(positions, PART_WTT, WEIGHT);
    if (position.wpe)
        c->k->position_embedding_forward(c->dev, &position);
    else if (position.dropout.p > 0)
        c->k->residual(c->dev, &(struct residual){.rows = position.rows,
                                                  .cols = position.cols,
                                                  .dtype = c->dtype,
                                                  .branch = x,
                                                  .dropout = position.dropout,
                                                  .sum = x});
}

void embed_backward(const struct weights *positions, const struct units *units, const struct micro_batch *mb, void *dx,
                    void *scratch, float *wte_grad)
{
    const struct context *c = positions->c;
    struct embedding embedding = embedding_of(c, units, mb);
    struct position_embedding position = positions_of(c, mb, dx);

    position.dwpe = weights_gradient(positions, PART_WPE, WEIGHT);
    position.dwtt = weights_gradient(positions, PART_WTT, WEIGHT);
    if (position.dwpe)
        c->k->position_embedding_backward(c->dev, &position);
    else if (position.dropout.p > 0)
        c->k->dropout_backward(c->dev, c->dtype, dx, dx, (size_t)position.rows * (size_t)position.cols,
                               &position.dropout);
    tp_start_all_gather(c->tp, dx, scratch, embedding.rows, embedding.cols, "token embedding");
    embedding.x = (void *)tp_all_gathered(c->tp, dx, scratch);
    embedding.dwte = wte_grad;
    c->k->embedding_backward(c->dev, &embedding);
    tp_all_reduce_f32(c->tp, positions->grad, positions->unit->replicated, "positions");
}

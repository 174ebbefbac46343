#include "trainer/model/vocabulary.h"

#include <string.h>

static int chunk_rows(const struct context *c, int samples)
{
    int rows = context_rows(c, samples);

    return rows < c->product_rows ? rows : c->product_rows;
}

void vocabulary_place(struct vocabulary *v, const struct context *c, const struct units *units, int max_samples,
                      struct buffer_layout *layout, struct buffer_layout *host)
{
    size_t rows = (size_t)context_rows(c, max_samples), chunk = (size_t)chunk_rows(c, max_samples);
    size_t d = (size_t)c->shape->hidden, element = dtype_size(c->dtype), tp = (size_t)c->tp_size;
    size_t vocab = (size_t)c->shape->vocab;

    *v = (struct vocabulary){.c = c, .units = units};
    v->logits = place_buffer(layout, chunk * (size_t)units->vocab_padded * element);
    v->full = tp > 1 ? place_buffer(layout, rows * d * element) : NULL;
    v->stats = tp > 1 ? place_buffer(layout, tp * 3 * chunk * sizeof(float)) : NULL;
    v->max = place_buffer(layout, rows * sizeof(float));
    v->sum = place_buffer(layout, rows * sizeof(float));
    v->target = place_buffer(layout, rows * sizeof(float));
    v->loss = place_buffer(layout, rows * sizeof(float));
    if (!c->discrete)
        return;
    v->wide = place_buffer(layout, vocab * sizeof(float));
    v->host = place_buffer(host, (rows > vocab ? rows : vocab) * sizeof(float));
}

static void chunk_logits(struct vocabulary *v, const void *wte, const void *bias, const void *y, int first, int rows)
{
    const struct context *c = v->c;
    int d = c->shape->hidden;

    c->k->matmul(c->dev, &(struct matmul){.m = rows,
                                          .n = v->units->vocab_padded,
                                          .k = d,
                                          .transpose_b = true,
                                          .dtype = c->dtype,
                                          .a = (const char *)y + (size_t)first * (size_t)d * dtype_size(c->dtype),
                                          .b = wte,
                                          .c = v->logits,
                                          .bias = bias,
                                          .epilogue = bias ? EPILOGUE_BIAS : EPILOGUE_NONE});
}

/* Ranks exchange their slices' max, sum and target of each row, and each computes those of the whole vocabulary. */
static void combine_ranks(struct vocabulary *v, int first, int rows)
{
    const struct context *c = v->c;
    float *own = v->stats + (size_t)c->tp->rank * 3 * (size_t)rows;
    const float *parts[] = {v->max, v->sum, v->target};

    for (int i = 0; i < 3; i++)
        c->k->copy(c->dev, own + (size_t)i * (size_t)rows, parts[i] + first, (size_t)rows * sizeof(float));
    tensor_share(c->tp, v->stats, (size_t)rows * 3, "logits");
    c->k->cross_entropy_combine(c->dev, &(struct cross_entropy_combine){.rows = rows,
                                                                        .parts = c->tp->size,
                                                                        .stats = v->stats,
                                                                        .max = v->max + first,
                                                                        .sum = v->sum + first,
                                                                        .target = v->target + first});
}

static void chunk_loss(struct vocabulary *v, const int32_t *targets, int first, int rows, double scale)
{
    const struct context *c = v->c;
    struct cross_entropy ce = {
        .rows = rows,
        .vocab = v->units->vocab,
        .stride = v->units->vocab_padded,
        .vocab_first = v->units->vocab_first,
        .dtype = c->dtype,
        .targets = targets + first,
        .logits = v->logits,
        .scale = (float)scale,
        .max = v->max + first,
        .sum = v->sum + first,
        .target = v->target + first,
        .loss = v->loss + first,
    };

    if (c->tp->size == 1) {
        c->k->cross_entropy(c->dev, &ce);
        return;
    }
    c->k->cross_entropy_stats(c->dev, &ce);
    combine_ranks(v, first, rows);
    c->k->cross_entropy_finish(c->dev, &ce);
}

/* dwte += dlogits^T y (the first chunk overwrites), then y's rows become their own gradient, dlogits wte. */
static void chunk_backward(struct vocabulary *v, const void *wte, float *wte_grad, float *bias_grad, void *y, int first,
                           int rows)
{
    const struct context *c = v->c;
    int d = c->shape->hidden, padded = v->units->vocab_padded;
    void *at = (char *)y + (size_t)first * (size_t)d * dtype_size(c->dtype);

    c->k->matmul(c->dev, &(struct matmul){.m = padded,
                                          .n = d,
                                          .k = rows,
                                          .transpose_a = true,
                                          .accumulate = first > 0,
                                          .dtype = c->dtype,
                                          .c_fp32 = true,
                                          .a = v->logits,
                                          .b = at,
                                          .c = wte_grad});
    if (bias_grad)
        c->k->bias_backward(c->dev, c->dtype, bias_grad, v->logits, rows, padded, first > 0);
    c->k->matmul(
        c->dev, &(struct matmul){.m = rows, .n = d, .k = padded, .dtype = c->dtype, .a = v->logits, .b = wte, .c = at});
}

static double total_loss(struct vocabulary *v, int rows)
{
    const float *loss = context_read(v->c, v->host, v->loss, (size_t)rows);
    double total = 0;

    for (int i = 0; i < rows; i++)
        total += loss[i];
    return total;
}

/* Gathers all rows of y; with one rank returns y itself. */
static void *all_rows(struct vocabulary *v, const void *y, int rows)
{
    const struct context *c = v->c;

    tensor_gather(c->tp, y, v->full, rows, c->shape->hidden, "head");
    return (void *)tensor_gathered(c->tp, y, v->full);
}

double vocabulary_loss(struct vocabulary *v, const void *wte, const void *bias, const void *y,
                       const struct micro_batch *mb)
{
    int all = context_rows(v->c, mb->samples), most = v->c->product_rows;
    const void *full = all_rows(v, y, all);

    for (int first = 0; first < all; first += most) {
        int rows = all - first < most ? all - first : most;

        chunk_logits(v, wte, bias, full, first, rows);
        chunk_loss(v, mb->targets, first, rows, 0);
    }
    return total_loss(v, all);
}

double vocabulary_loss_backward(struct vocabulary *v, const void *wte, const void *bias, float *wte_grad,
                                float *bias_grad, void *y, const struct micro_batch *mb, double scale)
{
    const struct context *c = v->c;
    int all = context_rows(c, mb->samples), most = c->product_rows;
    void *full = all_rows(v, y, all);

    for (int first = 0; first < all; first += most) {
        int rows = all - first < most ? all - first : most;

        chunk_logits(v, wte, bias, full, first, rows);
        chunk_loss(v, mb->targets, first, rows, scale);
        chunk_backward(v, wte, wte_grad, bias_grad, full, first, rows);
    }
    tensor_reduce(c->tp, y, full, all, c->shape->hidden, "head");
    tensor_reduced(c->tp, y, full);
    return total_loss(v, all);
}

void vocabulary_logits(struct vocabulary *v, const void *wte, const void *bias, const void *y, int row, float *out)
{
    const struct context *c = v->c;
    size_t vocab = (size_t)c->shape->vocab;
    float *wide = c->discrete ? v->wide : out;

    chunk_logits(v, wte, bias, y, row, 1);
    c->k->cast(c->dev, DTYPE_F32, wide, c->dtype, v->logits, vocab);
    wide = (float *)context_read(c, v->host, wide, vocab);
    if (wide != out)
        memcpy(out, wide, vocab * sizeof *out);
}

static struct positions positions_of(const struct context *c, const struct micro_batch *mb, void *x)
{
    int local = context_local_rows(c, mb->samples), first = c->tp->rank * local;

    return (struct positions){
        .rows = local,
        .cols = c->shape->hidden,
        .seq = c->shape->seq_length,
        .first_row = first,
        .dtype = c->dtype,
        .types = mb->types ? mb->types + first : NULL,
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

void embedding_forward(const struct context *c, const struct units *units, const void *wte, const void *positions,
                       const struct micro_batch *mb, void *part, void *x)
{
    const struct unit *unit = &units->units[UNIT_POSITION];
    struct embedding tokens = embedding_of(c, units, mb);
    struct positions at = positions_of(c, mb, x);

    tokens.wte = wte;
    tokens.x = c->tp->size > 1 ? part : x;
    c->k->embedding_forward(c->dev, &tokens);
    tensor_reduce(c->tp, x, part, tokens.rows, tokens.cols, "token embedding");
    tensor_reduced(c->tp, x, part);
    at.wpe = context_weight(c, unit, positions, POSITION_WPE);
    at.wtt = unit->ntensors > POSITION_WTT ? context_weight(c, unit, positions, POSITION_WTT) : NULL;
    c->k->positions_forward(c->dev, &at);
}

void embedding_backward(const struct context *c, const struct units *units, const struct micro_batch *mb, void *dx,
                        void *full, float *wte_grad, float *position_grad)
{
    const struct unit *unit = &units->units[UNIT_POSITION];
    struct embedding tokens = embedding_of(c, units, mb);
    struct positions at = positions_of(c, mb, dx);

    at.dwpe = context_gradient(unit, position_grad, POSITION_WPE);
    at.dwtt = unit->ntensors > POSITION_WTT ? context_gradient(unit, position_grad, POSITION_WTT) : NULL;
    c->k->positions_backward(c->dev, &at);
    tensor_gather(c->tp, dx, full, tokens.rows, tokens.cols, "token embedding");
    tokens.x = (void *)tensor_gathered(c->tp, dx, full);
    tokens.dwte = wte_grad;
    c->k->embedding_backward(c->dev, &tokens);
    tensor_sum(c->tp, position_grad, unit->replicated, "positions");
}

#include "trainer/model/block.h"

#include <stdio.h>

void block_activations_place(struct block_activations *a, const struct context *c, enum recompute recompute,
                             struct buffer_layout *kept, struct buffer_layout *shared)
{
    size_t bytes[BLOCK_PIECES];
    void *at[BLOCK_PIECES];

    block_pieces(&c->sizes, bytes);
    for (int i = 0; i < BLOCK_PIECES; i++) {
        enum piece_place place = block_piece_place(recompute, i);

        at[i] = place == PIECE_IN_SCRATCH ? NULL : place_buffer(place == PIECE_SHARED ? shared : kept, bytes[i]);
    }
    a->y1 = at[PIECE_Y1];
    a->mid = at[PIECE_MID];
    a->y2 = at[PIECE_Y2];
    a->mean1 = at[PIECE_MEAN1];
    a->rstd1 = at[PIECE_RSTD1];
    a->mean2 = at[PIECE_MEAN2];
    a->rstd2 = at[PIECE_RSTD2];
    a->pre = at[PIECE_PRE];
    a->act = at[PIECE_ACT];
    a->qkv = at[PIECE_QKV];
    a->heads = at[PIECE_HEADS];
    a->heads_rstd = at[PIECE_HEADS_RSTD];
    a->att = at[PIECE_ATT];
    a->lse = at[PIECE_LSE];
}

void block_scratch_place(struct block_scratch *s, const struct context *c, struct buffer_layout *layout,
                         struct buffer_layout *host)
{
    size_t bytes[SCRATCH_PIECES];
    void *at[SCRATCH_PIECES];

    scratch_pieces(&c->sizes, bytes);
    for (int i = 0; i < SCRATCH_PIECES; i++)
        at[i] = place_buffer(layout, bytes[i]);
    s->wide = at[SCRATCH_WIDE];
    s->narrow = at[SCRATCH_NARROW];
    s->part = at[SCRATCH_PART];
    s->local = at[SCRATCH_LOCAL];
    s->full_a = at[SCRATCH_FULL_A];
    s->full_b = at[SCRATCH_FULL_B];
    s->angles = at[SCRATCH_ANGLES];
    s->angles_host = c->sizes.discrete ? place_buffer(host, bytes[SCRATCH_ANGLES]) : s->angles;
}

void block_scratch_fill(const struct block_scratch *s, const struct context *c)
{
    size_t floats = (size_t)c->shape->seq_length * (size_t)model_head_size(c->shape);

    if (!s->angles)
        return;
    model_angles(c->shape, s->angles_host);
    if (s->angles != s->angles_host)
        c->k->copy(c->dev, s->angles, s->angles_host, floats * sizeof *s->angles);
}

static int local_rows(const struct block_pass *b)
{
    return context_local_rows(b->w.c, b->mb->samples);
}

static int all_rows(const struct block_pass *b)
{
    return context_rows(b->w.c, b->mb->samples);
}

/* Where y1 or y2, and act, are: kept, or made when they are needed (struct block_activations). */
static void *norm_output(const struct block_pass *b, void *kept)
{
    return kept ? kept : b->s->narrow;
}

static void *activation_output(const struct block_pass *b)
{
    return b->a->act ? b->a->act : b->s->wide;
}

/* The Philox site (philox.h) of one dropout of this block: each has a stream of its own. */
static uint32_t dropout_site(const struct block_pass *b, const char *name)
{
    char site[64];

    snprintf(site, sizeof site, "h.%d.%s.dropout", b->layer, name);
    return philox_site(site);
}

/* The arguments of what happens to queries and keys before attention; of the backward pass where the unit has
 * gradients. qkv: the values, or their gradients. */
static struct query_key query_key_arguments(const struct block_pass *b, void *qkv)
{
    const struct context *c = b->w.c;
    const struct model_shape *m = c->shape;

    return (struct query_key){
        .rows = all_rows(b),
        .seq = m->seq_length,
        .heads = m->heads / c->tp->size,
        .kv_heads = model_kv_heads(m) / c->tp->size,
        .head_size = model_head_size(m),
        .dtype = c->dtype,
        .eps = (float)model_norm_eps(m),
        .qkv = qkv,
        .angles = b->s->angles,
        .document_start = b->mb->document_start,
        .gamma_q = weights_at(&b->w, PART_Q_NORM, WEIGHT),
        .gamma_k = weights_at(&b->w, PART_K_NORM, WEIGHT),
        .before = b->a->heads,
        .rstd = b->a->heads_rstd,
        .dgamma_q = b->w.grad ? weights_gradient(&b->w, PART_Q_NORM, WEIGHT) : NULL,
        .dgamma_k = b->w.grad ? weights_gradient(&b->w, PART_K_NORM, WEIGHT) : NULL,
    };
}

/* The arguments of attention, forward and backward. */
static struct attention attention_arguments(const struct block_pass *b)
{
    const struct context *c = b->w.c;
    const struct model_shape *m = c->shape;
    uint64_t square = (uint64_t)m->seq_length * (uint64_t)m->seq_length;
    struct attention attention = {
        .batch = b->mb->samples,
        .seq = m->seq_length,
        .heads = m->heads / c->tp->size,
        .kv_heads = model_kv_heads(m) / c->tp->size,
        .head_size = model_head_size(m),
        .causal = !m->bidirectional,
        .window = m->window,
        .dtype = c->dtype,
        .qkv = b->a->qkv,
        .lengths = b->mb->lengths,
        .document_start = b->mb->document_start,
        .out = b->a->att,
        .lse = b->a->lse,
    };

    if (b->mb->training && c->job->dropout.attention > 0) {
        attention.dropout_stride = (uint64_t)m->heads * square;
        attention.dropout = (struct dropout){
            .p = c->job->dropout.attention,
            .stream = {.seed = c->job->batch.seed, .site = dropout_site(b, "attn")},
            .first = b->mb->first_sample * attention.dropout_stride +
                     (uint64_t)c->tp->rank * (uint64_t)attention.heads * square,
        };
    }
    return attention;
}

/* ---- forward, in pieces that recomputing shares ---- */

/* A column-parallel layer: y [R, out] from this rank's rows of the norm's output x. */
static void column_parallel_forward(const struct block_pass *b, enum model_part part, void *y, const void *x, void *aux)
{
    const struct context *c = b->w.c;
    int rows = all_rows(b);

    tp_start_all_gather(c->tp, x, b->s->full_a, rows, c->shape->hidden, b->w.unit->name);
    linear_forward(&b->w, part, true, y, tp_all_gathered(c->tp, x, b->s->full_a), aux, rows);
}

/* in W, summed over the group: returns this rank's rows of the sum. The bias is added with the residual. */
static const void *row_parallel_forward(const struct block_pass *b, enum model_part part, const void *in)
{
    const struct context *c = b->w.c;
    int rows = all_rows(b), d = c->shape->hidden;

    linear_forward(&b->w, part, false, b->s->part, in, NULL, rows);
    tp_start_reduce_scatter(c->tp, b->s->local, b->s->part, rows, d, b->w.unit->name);
    return tp_reduce_scattered(c->tp, b->s->local, b->s->part);
}

static void attention_forward(const struct block_pass *b)
{
    const struct context *c = b->w.c;
    struct attention attention = attention_arguments(b);

    column_parallel_forward(b, PART_QKV, b->a->qkv, norm_output(b, b->a->y1), NULL);
    if (model_changes_queries(c->shape)) {
        struct query_key queries = query_key_arguments(b, b->a->qkv);

        c->k->query_key_forward(c->dev, &queries);
    }
    c->k->attention_forward(c->dev, &attention);
}

static void second_norm(const struct block_pass *b, const void *projected)
{
    const struct context *c = b->w.c;

    c->k->norm_forward(c->dev, &(struct norm){.eps = (float)model_norm_eps(c->shape),
                                              .rows = local_rows(b),
                                              .cols = c->shape->hidden,
                                              .dtype = c->dtype,
                                              .x = b->a->x,
                                              .branch = projected,
                                              .bias = weights_at(&b->w, PART_ATTN_PROJ, BIAS),
                                              .dropout = context_dropout(c, b->mb, dropout_site(b, "attn.c_proj")),
                                              .sum = b->a->mid,
                                              .y = norm_output(b, b->a->y2),
                                              .mean = b->a->mean2,
                                              .rstd = b->a->rstd2,
                                              .gamma = weights_at(&b->w, PART_LN_2, WEIGHT),
                                              .beta = weights_at(&b->w, PART_LN_2, BIAS)});
}

static struct gated gated_arguments(const struct block_pass *b)
{
    const struct context *c = b->w.c;

    return (struct gated){.rows = all_rows(b),
                          .cols = model_inner(c->shape) / c->tp->size,
                          .dtype = c->dtype,
                          .x = b->a->pre,
                          .y = activation_output(b),
                          .dx = b->s->wide};
}

/* act from pre, where activation_output says. */
static void activation_forward(const struct block_pass *b)
{
    const struct context *c = b->w.c;
    struct gated gated = gated_arguments(b);

    if (c->shape->activation == ACTIVATION_GELU)
        c->k->gelu_forward(c->dev, c->dtype, gated.y, b->a->pre, (size_t)gated.rows * (size_t)gated.cols);
    else
        c->k->gated_forward(c->dev, &gated);
}

/* The forward pass from x to act, without the last product. */
static void forward_to_act(const struct block_pass *b)
{
    const struct block_activations *a = b->a;

    norm_forward(&b->w, PART_LN_1, a->x, norm_output(b, a->y1), a->mean1, a->rstd1, local_rows(b));
    attention_forward(b);
    second_norm(b, row_parallel_forward(b, PART_ATTN_PROJ, a->att));
    if (b->w.c->shape->activation == ACTIVATION_GELU) {
        column_parallel_forward(b, PART_FC, activation_output(b), norm_output(b, a->y2), a->pre);
    } else {
        column_parallel_forward(b, PART_FC, a->pre, norm_output(b, a->y2), NULL);
        activation_forward(b);
    }
}

void block_forward(const struct block_pass *b, void *out)
{
    const struct context *c = b->w.c;
    const void *projected;

    forward_to_act(b);
    projected = row_parallel_forward(b, PART_MLP_PROJ, activation_output(b));
    c->k->residual(c->dev, &(struct residual){.rows = local_rows(b),
                                              .cols = c->shape->hidden,
                                              .dtype = c->dtype,
                                              .x = b->a->mid,
                                              .branch = projected,
                                              .bias = weights_at(&b->w, PART_MLP_PROJ, BIAS),
                                              .dropout = context_dropout(c, b->mb, dropout_site(b, "mlp")),
                                              .sum = out});
}

void block_recompute(const struct block_pass *b, enum recompute recompute)
{
    const struct block_activations *a = b->a;

    if (recompute == RECOMPUTE_FULL) {
        forward_to_act(b);
    } else if (recompute == RECOMPUTE_SELECTIVE) {
        norm_forward(&b->w, PART_LN_1, a->x, norm_output(b, a->y1), a->mean1, a->rstd1, local_rows(b));
        attention_forward(b);
    }
}

/* y1 or y2 as the forward pass made it, of its input x. */
static const void *norm_again(const struct block_pass *b, enum model_part part, void *kept, const void *x, float *mean,
                              float *rstd)
{
    if (!kept)
        norm_forward(&b->w, part, x, b->s->narrow, mean, rstd, local_rows(b));
    return norm_output(b, kept);
}

/*
 * ---- backward, from out to x ----
 *
 * The all-gather of a product's input, and the reduce-scatter of another's partial sums, run while a product of the
 * same layer is computed.
 */

/*
 * Backward of sum = x + dropout(branch + bias), where dx is the sum's gradient. The branch's gradient is dx times the
 * dropout's mask (in s->local), or dx itself without dropout. Computes the bias's gradient, and returns the branch's,
 * gathered: all rows.
 */
static const void *residual_backward(const struct block_pass *b, enum model_part part, const char *site, const void *dx)
{
    const struct context *c = b->w.c;
    struct dropout dropout = context_dropout(c, b->mb, dropout_site(b, site));
    int local = local_rows(b), d = c->shape->hidden;
    const void *dz = dx;

    if (dropout.p > 0) {
        c->k->dropout_backward(c->dev, c->dtype, b->s->local, dx, (size_t)local * (size_t)d, &dropout);
        dz = b->s->local;
    }
    if (weights_gradient(&b->w, part, BIAS))
        c->k->bias_backward(c->dev, c->dtype, weights_gradient(&b->w, part, BIAS), dz, local, d, false);
    tp_start_all_gather(c->tp, dz, b->s->full_a, all_rows(b), d, b->w.unit->name);
    return tp_all_gathered(c->tp, dz, b->s->full_a);
}

/*
 * A column-parallel layer after a norm: computes its gradients from dy [R, out]. Returns the gradient of the norm's
 * output y (local rows), summed over the group. The weight's gradient is computed during the exchange.
 */
static const void *column_parallel_backward(const struct block_pass *b, enum model_part part, const void *dy,
                                            const void *y)
{
    const struct context *c = b->w.c;
    const struct block_scratch *s = b->s;
    int rows = all_rows(b), d = c->shape->hidden;
    const void *all;

    tp_start_all_gather(c->tp, y, s->full_b, rows, d, b->w.unit->name);
    linear_backward_input(&b->w, part, s->part, 0, dy, NULL, rows);
    all = tp_all_gathered(c->tp, y, s->full_b);
    tp_start_reduce_scatter(c->tp, s->local, s->part, rows, d, b->w.unit->name);
    linear_backward_weight(&b->w, part, true, dy, all, rows);
    return tp_reduce_scattered(c->tp, s->local, s->part);
}

/* A row-parallel layer: its gradients from dz [R, d], then that of its input `in` in dx, whose rows are ld apart. dx may
 * lie where `in` is. */
static void row_parallel_backward(const struct block_pass *b, enum model_part part, void *dx, int ld, const void *dz,
                                  const void *in, void *aux)
{
    linear_backward_weight(&b->w, part, false, dz, in, all_rows(b));
    linear_backward_input(&b->w, part, dx, ld, dz, aux, all_rows(b));
}

/* The gradient of pre in s->wide, from dz; and the last product's. With a gate, that of act lies in its right half
 * first. */
static void activation_backward(const struct block_pass *b, const void *dz)
{
    const struct context *c = b->w.c;
    struct gated gated = gated_arguments(b);

    if (!b->a->act)
        activation_forward(b);
    if (c->shape->activation == ACTIVATION_GELU) {
        row_parallel_backward(b, PART_MLP_PROJ, b->s->wide, 0, dz, gated.y, b->a->pre);
    } else {
        void *right = (char *)b->s->wide + (size_t)gated.cols * dtype_size(c->dtype);

        row_parallel_backward(b, PART_MLP_PROJ, right, 2 * gated.cols, dz, gated.y, NULL);
        c->k->gated_backward(c->dev, &gated);
    }
}

static void mlp_backward(const struct block_pass *b, void *dx)
{
    const struct block_activations *a = b->a;
    const void *dz = residual_backward(b, PART_MLP_PROJ, "mlp", dx), *dy;

    activation_backward(b, dz);
    dy = column_parallel_backward(b, PART_FC, b->s->wide, norm_again(b, PART_LN_2, a->y2, a->mid, a->mean2, a->rstd2));
    norm_backward(&b->w, PART_LN_2, dy, a->mid, a->mean2, a->rstd2, dx, local_rows(b), dx);
}

static void attention_backward(const struct block_pass *b)
{
    const struct context *c = b->w.c;
    struct attention attention = attention_arguments(b);

    attention.dout = b->s->narrow;
    attention.dqkv = b->s->wide;
    c->k->attention_backward(c->dev, &attention);
    if (model_changes_queries(c->shape)) {
        struct query_key queries = query_key_arguments(b, b->s->wide);

        c->k->query_key_backward(c->dev, &queries);
    }
}

void block_backward(const struct block_pass *b, void *dx)
{
    const struct block_activations *a = b->a;
    const void *dz, *dy;

    mlp_backward(b, dx); /* dx becomes the gradient of mid */
    dz = residual_backward(b, PART_ATTN_PROJ, "attn.c_proj", dx);
    row_parallel_backward(b, PART_ATTN_PROJ, b->s->narrow, 0, dz, a->att, NULL);
    attention_backward(b);
    dy = column_parallel_backward(b, PART_QKV, b->s->wide, norm_again(b, PART_LN_1, a->y1, a->x, a->mean1, a->rstd1));
    norm_backward(&b->w, PART_LN_1, dy, a->x, a->mean1, a->rstd1, dx, local_rows(b), dx);
    tp_all_reduce_f32(b->w.c->tp, b->w.grad, b->w.unit->replicated, b->w.unit->name);
}

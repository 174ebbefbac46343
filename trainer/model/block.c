#include "trainer/model/block.h"

static const float *weight(const struct block *b, const float *param, int tensor)
{
    return param + b->unit->tensors[tensor].offset;
}

static float *weight_grad(const struct block *b, float *grad, int tensor)
{
    return grad + b->unit->tensors[tensor].offset;
}

/* Hands out pieces of a buffer, each on its own cache line; with NULL it only counts. */
static float *carve(float *buffer, size_t *used, size_t count)
{
    float *at = buffer ? buffer + *used : NULL;

    *used += (count + UNIT_ALIGN - 1) / UNIT_ALIGN * UNIT_ALIGN;
    return at;
}

static size_t place_activations(struct block_activations *a, const struct model_shape *m, int samples, float *buffer)
{
    size_t rows = (size_t)samples * (size_t)m->seq_length, d = (size_t)m->hidden, used = 0;

    a->y1 = carve(buffer, &used, rows * d);
    a->qkv = carve(buffer, &used, rows * 3 * d);
    a->att = carve(buffer, &used, rows * d);
    a->lse = carve(buffer, &used, rows * (size_t)m->heads);
    a->mid = carve(buffer, &used, rows * d);
    a->y2 = carve(buffer, &used, rows * d);
    a->pre = carve(buffer, &used, rows * 4 * d);
    a->act = carve(buffer, &used, rows * 4 * d);
    a->mean1 = carve(buffer, &used, rows);
    a->rstd1 = carve(buffer, &used, rows);
    a->mean2 = carve(buffer, &used, rows);
    a->rstd2 = carve(buffer, &used, rows);
    return used;
}

static size_t place_scratch(struct block_scratch *s, const struct model_shape *m, int samples, float *buffer)
{
    size_t rows = (size_t)samples * (size_t)m->seq_length, d = (size_t)m->hidden, used = 0;

    s->d_wide = carve(buffer, &used, rows * 4 * d);
    s->d_a = carve(buffer, &used, rows * d);
    s->d_b = carve(buffer, &used, rows * d);
    return used;
}

size_t block_activation_count(const struct model_shape *shape, int samples)
{
    struct block_activations acts;

    return place_activations(&acts, shape, samples, NULL);
}

size_t block_scratch_count(const struct model_shape *shape, int samples)
{
    struct block_scratch scratch;

    return place_scratch(&scratch, shape, samples, NULL);
}

void block_activations_place(struct block_activations *acts, const struct model_shape *shape, int samples,
                             float *buffer)
{
    place_activations(acts, shape, samples, buffer);
}

void block_scratch_place(struct block_scratch *scratch, const struct model_shape *shape, int samples, float *buffer)
{
    place_scratch(scratch, shape, samples, buffer);
}

/* y[rows, out] = x[rows, in] W[in, out] + bias, and gelu of it where aux is given */
static void linear(const struct block *b, float *y, const float *x, const float *w, const float *bias, float *aux,
                   int rows, int in, int out)
{
    b->k->matmul(b->dev, &(struct matmul){.m = rows,
                                          .n = out,
                                          .k = in,
                                          .a = x,
                                          .b = w,
                                          .c = y,
                                          .bias = bias,
                                          .aux = aux,
                                          .epilogue = aux ? EPILOGUE_BIAS_GELU : EPILOGUE_BIAS});
}

/* dx[rows, in] = dy[rows, out] W^T, times gelu'(aux) where aux is given; dW = x^T dy; dbias = column sums of dy */
static void linear_backward(const struct block *b, float *dx, float *dw, float *dbias, const float *dy, const float *x,
                            const float *w, float *aux, int rows, int in, int out)
{
    b->k->matmul(b->dev, &(struct matmul){.m = rows,
                                          .n = in,
                                          .k = out,
                                          .transpose_b = true,
                                          .a = dy,
                                          .b = w,
                                          .c = dx,
                                          .aux = aux,
                                          .epilogue = aux ? EPILOGUE_DGELU : EPILOGUE_NONE});
    b->k->matmul(b->dev, &(struct matmul){.m = in, .n = out, .k = rows, .transpose_a = true, .a = x, .b = dy, .c = dw});
    b->k->bias_backward(b->dev, DTYPE_F32, dbias, dy, rows, out, false);
}

void block_forward(const struct block *b, const float *param, const struct block_activations *a, int samples,
                   float *out)
{
    const struct model_shape *m = b->shape;
    int d = m->hidden, rows = samples * m->seq_length;

    b->k->layernorm_forward(b->dev, &(struct layernorm){.rows = rows,
                                                        .cols = d,
                                                        .x = a->x,
                                                        .y = a->y1,
                                                        .mean = a->mean1,
                                                        .rstd = a->rstd1,
                                                        .gamma = weight(b, param, BLOCK_LN_1_WEIGHT),
                                                        .beta = weight(b, param, BLOCK_LN_1_BIAS)});
    linear(b, a->qkv, a->y1, weight(b, param, BLOCK_ATTN_WEIGHT), weight(b, param, BLOCK_ATTN_BIAS), NULL, rows, d,
           3 * d);
    b->k->attention_forward(b->dev, &(struct attention){.batch = samples,
                                                        .seq = m->seq_length,
                                                        .heads = m->heads,
                                                        .head_size = d / m->heads,
                                                        .causal = true,
                                                        .qkv = a->qkv,
                                                        .out = a->att,
                                                        .lse = a->lse});
    /* out is free until the end: it holds the projection first */
    linear(b, out, a->att, weight(b, param, BLOCK_ATTN_PROJ_WEIGHT), weight(b, param, BLOCK_ATTN_PROJ_BIAS), NULL, rows,
           d, d);
    b->k->layernorm_forward(b->dev, &(struct layernorm){.rows = rows,
                                                        .cols = d,
                                                        .x = a->x,
                                                        .residual = out,
                                                        .sum = a->mid,
                                                        .y = a->y2,
                                                        .mean = a->mean2,
                                                        .rstd = a->rstd2,
                                                        .gamma = weight(b, param, BLOCK_LN_2_WEIGHT),
                                                        .beta = weight(b, param, BLOCK_LN_2_BIAS)});
    linear(b, a->act, a->y2, weight(b, param, BLOCK_FC_WEIGHT), weight(b, param, BLOCK_FC_BIAS), a->pre, rows, d,
           4 * d);
    linear(b, out, a->act, weight(b, param, BLOCK_PROJ_WEIGHT), weight(b, param, BLOCK_PROJ_BIAS), NULL, rows, 4 * d,
           d);
    b->k->add(b->dev, DTYPE_F32, out, a->mid, (size_t)rows * (size_t)d);
}

void block_backward(const struct block *b, const float *param, float *grad, const struct block_activations *a,
                    const struct block_scratch *s, int samples, float *dx)
{
    const struct model_shape *m = b->shape;
    int d = m->hidden, rows = samples * m->seq_length;

    linear_backward(b, s->d_wide, weight_grad(b, grad, BLOCK_PROJ_WEIGHT), weight_grad(b, grad, BLOCK_PROJ_BIAS), dx,
                    a->act, weight(b, param, BLOCK_PROJ_WEIGHT), a->pre, rows, 4 * d, d);
    linear_backward(b, s->d_a, weight_grad(b, grad, BLOCK_FC_WEIGHT), weight_grad(b, grad, BLOCK_FC_BIAS), s->d_wide,
                    a->y2, weight(b, param, BLOCK_FC_WEIGHT), NULL, rows, d, 4 * d);
    /* dx becomes the gradient of mid */
    b->k->layernorm_backward(b->dev, &(struct layernorm_backward){.rows = rows,
                                                                  .cols = d,
                                                                  .dy = s->d_a,
                                                                  .sum = a->mid,
                                                                  .dresidual = dx,
                                                                  .dx = dx,
                                                                  .mean = a->mean2,
                                                                  .rstd = a->rstd2,
                                                                  .gamma = weight(b, param, BLOCK_LN_2_WEIGHT),
                                                                  .dgamma = weight_grad(b, grad, BLOCK_LN_2_WEIGHT),
                                                                  .dbeta = weight_grad(b, grad, BLOCK_LN_2_BIAS)});
    linear_backward(b, s->d_b, weight_grad(b, grad, BLOCK_ATTN_PROJ_WEIGHT), weight_grad(b, grad, BLOCK_ATTN_PROJ_BIAS),
                    dx, a->att, weight(b, param, BLOCK_ATTN_PROJ_WEIGHT), NULL, rows, d, d);
    b->k->attention_backward(b->dev, &(struct attention_backward){.batch = samples,
                                                                  .seq = m->seq_length,
                                                                  .heads = m->heads,
                                                                  .head_size = d / m->heads,
                                                                  .causal = true,
                                                                  .qkv = a->qkv,
                                                                  .out = a->att,
                                                                  .dout = s->d_b,
                                                                  .lse = a->lse,
                                                                  .dqkv = s->d_wide});
    linear_backward(b, s->d_a, weight_grad(b, grad, BLOCK_ATTN_WEIGHT), weight_grad(b, grad, BLOCK_ATTN_BIAS),
                    s->d_wide, a->y1, weight(b, param, BLOCK_ATTN_WEIGHT), NULL, rows, d, 3 * d);
    b->k->layernorm_backward(b->dev, &(struct layernorm_backward){.rows = rows,
                                                                  .cols = d,
                                                                  .dy = s->d_a,
                                                                  .sum = a->x,
                                                                  .dresidual = dx,
                                                                  .dx = dx,
                                                                  .mean = a->mean1,
                                                                  .rstd = a->rstd1,
                                                                  .gamma = weight(b, param, BLOCK_LN_1_WEIGHT),
                                                                  .dgamma = weight_grad(b, grad, BLOCK_LN_1_WEIGHT),
                                                                  .dbeta = weight_grad(b, grad, BLOCK_LN_1_BIAS)});
}

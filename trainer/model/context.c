#include "trainer/model/context.h"

int context_rows(const struct context *c, int samples)
{
    return samples * c->shape->seq_length;
}

int context_local_rows(const struct context *c, int samples)
{
    return context_rows(c, samples) / c->tp->size;
}

struct dropout context_dropout(const struct context *c, const struct micro_batch *mb, uint32_t site)
{
    uint64_t seq = (uint64_t)c->shape->seq_length, d = (uint64_t)c->shape->hidden;
    uint64_t first_row = mb->first_sample * seq;

    if (!mb->training || c->job->dropout.hidden == 0)
        return (struct dropout){0};
    first_row += (uint64_t)c->tp->rank * (uint64_t)context_local_rows(c, mb->samples);
    return (struct dropout){
        .p = c->job->dropout.hidden, .stream = {.seed = c->job->batch.seed, .site = site}, .first = first_row * d};
}

const void *weights_at(const struct weights *w, enum model_part part, enum part_term term)
{
    const struct unit_tensor *tensor = unit_find(w->unit, part, term);

    return tensor ? (const char *)w->param + tensor->offset * dtype_size(w->c->dtype) : NULL;
}

float *weights_gradient(const struct weights *w, enum model_part part, enum part_term term)
{
    const struct unit_tensor *tensor = unit_find(w->unit, part, term);

    return tensor ? w->grad + tensor->offset : NULL;
}

struct matmul context_product(const struct context *c, int m, int n, int k, const void *a, const void *b, void *out)
{
    return (struct matmul){.m = m, .n = n, .k = k, .dtype = c->dtype, .a = a, .b = b, .c = out};
}

/* The matrix of a part: its widths on this rank, and how it is stored. */
struct matrix {
    int in, out;
    bool out_in;
};

static struct matrix matrix_of(const struct weights *w, enum model_part part)
{
    const struct unit_tensor *first = unit_find(w->unit, part, WEIGHT);
    struct matrix matrix = {.in = (int)first->shape[first->row.out_in], .out_in = first->row.out_in};
    size_t count = 0;

    for (int i = 0; i < w->unit->ntensors; i++)
        if (tensor_is(&w->unit->tensors[i].row, part, WEIGHT))
            count += w->unit->tensors[i].count;
    matrix.out = (int)(count / (size_t)matrix.in);
    return matrix;
}

void linear_forward(const struct weights *w, enum model_part part, bool bias, void *y, const void *x, void *aux,
                    int rows)
{
    struct matrix matrix = matrix_of(w, part);
    struct matmul product = context_product(w->c, rows, matrix.out, matrix.in, x, weights_at(w, part, WEIGHT), y);

    product.transpose_b = matrix.out_in;
    product.bias = bias ? weights_at(w, part, BIAS) : NULL;
    product.aux = aux;
    product.epilogue = aux ? EPILOGUE_BIAS_GELU : product.bias ? EPILOGUE_BIAS : EPILOGUE_NONE;
    if (!aux || product.bias) {
        w->c->k->matmul(w->c->dev, &product);
        return;
    }
    linear_forward(w, part, false, aux, x, NULL, rows);
    w->c->k->gelu_forward(w->c->dev, w->c->dtype, y, aux, (size_t)rows * (size_t)matrix.out);
}

void linear_backward_input(const struct weights *w, enum model_part part, void *dx, int ld, const void *dy, void *aux,
                           int rows)
{
    struct matrix matrix = matrix_of(w, part);
    struct matmul product = context_product(w->c, rows, matrix.in, matrix.out, dy, weights_at(w, part, WEIGHT), dx);

    product.transpose_b = !matrix.out_in;
    product.ldc = ld;
    product.aux = aux;
    product.epilogue = aux ? EPILOGUE_DGELU : EPILOGUE_NONE;
    w->c->k->matmul(w->c->dev, &product);
}

void linear_backward_weight(const struct weights *w, enum model_part part, bool bias, const void *dy, const void *x,
                            int rows)
{
    const struct context *c = w->c;
    struct matrix matrix = matrix_of(w, part);
    float *dw = weights_gradient(w, part, WEIGHT);
    struct matmul product = matrix.out_in ? context_product(c, matrix.out, matrix.in, rows, dy, x, dw)
                                          : context_product(c, matrix.in, matrix.out, rows, x, dy, dw);

    product.transpose_a = product.c_fp32 = true;
    product.sums = bias ? weights_gradient(w, part, BIAS) : NULL;
    product.sums_of_a = matrix.out_in;
    c->k->matmul(c->dev, &product);
}

void norm_forward(const struct weights *w, enum model_part part, const void *x, void *y, float *mean, float *rstd,
                  int rows)
{
    w->c->k->norm_forward(w->c->dev, &(struct norm){.eps = (float)model_norm_eps(w->c->shape),
                                                    .rows = rows,
                                                    .cols = w->c->shape->hidden,
                                                    .dtype = w->c->dtype,
                                                    .x = x,
                                                    .y = y,
                                                    .mean = mean,
                                                    .rstd = rstd,
                                                    .gamma = weights_at(w, part, WEIGHT),
                                                    .beta = weights_at(w, part, BIAS)});
}

void norm_backward(const struct weights *w, enum model_part part, const void *dy, const void *x, const float *mean,
                   const float *rstd, const void *dresidual, int rows, void *dx)
{
    w->c->k->norm_backward(w->c->dev, &(struct norm_backward){.rows = rows,
                                                              .cols = w->c->shape->hidden,
                                                              .dtype = w->c->dtype,
                                                              .dy = dy,
                                                              .sum = x,
                                                              .dresidual = dresidual,
                                                              .dx = dx,
                                                              .mean = mean,
                                                              .rstd = rstd,
                                                              .gamma = weights_at(w, part, WEIGHT),
                                                              .dgamma = weights_gradient(w, part, WEIGHT),
                                                              .dbeta = weights_gradient(w, part, BIAS)});
}

void *place_buffer(struct buffer_layout *layout, size_t bytes)
{
    void *at = layout->base && bytes ? layout->base + layout->used : NULL;

    layout->used += buffer_bytes(bytes);
    return at;
}

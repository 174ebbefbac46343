#include "trainer/model/context.h"

int context_rows(const struct context *c, int samples)
{
    return samples * c->shape->seq_length;
}

int context_local_rows(const struct context *c, int samples)
{
    return context_rows(c, samples) / c->tp_size;
}

struct dropout context_dropout(const struct context *c, const struct micro_batch *mb, uint32_t site)
{
    uint64_t seq = (uint64_t)c->shape->seq_length, d = (uint64_t)c->shape->hidden;
    uint64_t first_row = mb->first_sample * seq;

    if (!mb->training || c->dropout == 0)
        return (struct dropout){0};
    first_row += (uint64_t)c->tp->rank * (uint64_t)context_local_rows(c, mb->samples);
    return (struct dropout){.p = c->dropout, .stream = {.seed = c->seed, .site = site}, .first = first_row * d};
}

const void *context_weight(const struct context *c, const struct unit *unit, const void *param, int tensor)
{
    return (const char *)param + unit->tensors[tensor].offset * dtype_size(c->dtype);
}

float *context_gradient(const struct unit *unit, float *grad, int tensor)
{
    return grad + unit->tensors[tensor].offset;
}

void linear_forward(const struct context *c, void *y, const void *x, const void *w, const void *bias, void *aux,
                    int rows, int in, int out)
{
    c->k->matmul(c->dev, &(struct matmul){.m = rows,
                                          .n = out,
                                          .k = in,
                                          .dtype = c->dtype,
                                          .a = x,
                                          .b = w,
                                          .c = y,
                                          .bias = bias,
                                          .aux = aux,
                                          .epilogue = aux    ? EPILOGUE_BIAS_GELU
                                                      : bias ? EPILOGUE_BIAS
                                                             : EPILOGUE_NONE});
}

void linear_backward_input(const struct context *c, void *dx, const void *dy, const void *w, void *aux, int rows,
                           int in, int out)
{
    c->k->matmul(c->dev, &(struct matmul){.m = rows,
                                          .n = in,
                                          .k = out,
                                          .transpose_b = true,
                                          .dtype = c->dtype,
                                          .a = dy,
                                          .b = w,
                                          .c = dx,
                                          .aux = aux,
                                          .epilogue = aux ? EPILOGUE_DGELU : EPILOGUE_NONE});
}

void linear_backward_weight(const struct context *c, float *dw, float *dbias, const void *dy, const void *x, int rows,
                            int in, int out)
{
    c->k->matmul(c->dev, &(struct matmul){.m = in,
                                          .n = out,
                                          .k = rows,
                                          .transpose_a = true,
                                          .dtype = c->dtype,
                                          .c_fp32 = true,
                                          .a = x,
                                          .b = dy,
                                          .c = dw,
                                          .sums = dbias});
}

void norm_forward(const struct context *c, const struct unit *unit, const void *param, int tensor, const void *x,
                  void *y, float *mean, float *rstd, int rows)
{
    c->k->layernorm_forward(c->dev, &(struct layernorm){.rows = rows,
                                                        .cols = c->shape->hidden,
                                                        .dtype = c->dtype,
                                                        .x = x,
                                                        .y = y,
                                                        .mean = mean,
                                                        .rstd = rstd,
                                                        .gamma = context_weight(c, unit, param, tensor),
                                                        .beta = context_weight(c, unit, param, tensor + 1)});
}

void norm_backward(const struct context *c, const struct unit *unit, const void *param, float *grad, int tensor,
                   const void *dy, const void *x, const float *mean, const float *rstd, const void *dresidual, int rows,
                   void *dx)
{
    c->k->layernorm_backward(c->dev, &(struct layernorm_backward){.rows = rows,
                                                                  .cols = c->shape->hidden,
                                                                  .dtype = c->dtype,
                                                                  .dy = dy,
                                                                  .sum = x,
                                                                  .dresidual = dresidual,
                                                                  .dx = dx,
                                                                  .mean = mean,
                                                                  .rstd = rstd,
                                                                  .gamma = context_weight(c, unit, param, tensor),
                                                                  .dgamma = context_gradient(unit, grad, tensor),
                                                                  .dbeta = context_gradient(unit, grad, tensor + 1)});
}

const float *context_read(const struct context *c, float *host, const float *at, size_t count)
{
    if (c->discrete)
        c->k->copy(c->dev, host, at, count * sizeof *host);
    device_wait(c->dev);
    return c->discrete ? host : at;
}

void *place_buffer(struct buffer_layout *layout, size_t bytes)
{
    void *at = layout->base ? layout->base + layout->used : NULL;

    layout->used += (bytes + 63) / 64 * 64;
    return at;
}

/*
 * context.h - shared by all parts of a model: its device, shape and options, norms and linear layers, and the layout of
 * buffers.
 *
 * R = rows = samples * seq_length, the tokens of a micro-batch; local rows = R / tp, this rank's rows between the
 * matrices (parallel/tensor.h); d = hidden. Buffers are in the type of the forward pass unless stated otherwise.
 */
#ifndef MUSTER_TRAINER_MODEL_CONTEXT_H
#define MUSTER_TRAINER_MODEL_CONTEXT_H

#include "ckpt/models/units.h"
#include "common/job.h"
#include "kernels/kernels.h"
#include "trainer/parallel/tensor.h"

struct context {
    struct device *dev;
    const struct kernels *k;
    const struct model_shape *shape;
    struct tensor *tp;
    int tp_size; /* of tp, which is NULL when footprints are computed */
    enum dtype dtype;
    double dropout, attention_dropout;
    uint64_t seed;
    enum recompute recompute;
    int recompute_layers; /* the first so many of a stage; 0 is all */
    int product_rows;     /* struct device_traits */
    bool discrete;        /* the device's memory is not host memory (device_is_host) */
};

/* One micro-batch. Arrays are in the device's memory (feed.h), borrowed for the call; types, lengths and order are
 * BERT's. */
struct micro_batch {
    int samples;
    uint64_t first_sample;                   /* its global number: the key of dropout. The others follow it */
    bool training;                           /* dropout applies */
    const int32_t *tokens, *targets, *types; /* [samples * seq_length] */
    const int32_t *lengths, *order;          /* [samples] */
};

int context_rows(const struct context *c, int samples);
int context_local_rows(const struct context *c, int samples);

/* The mask of a [local rows, d] activation at a site; none outside training. */
struct dropout context_dropout(const struct context *c, const struct micro_batch *mb, uint32_t site);

/* Address of tensor `tensor` of a unit, in its flat buffer of parameters or of fp32 gradients. */
const void *context_weight(const struct context *c, const struct unit *unit, const void *param, int tensor);
float *context_gradient(const struct unit *unit, float *grad, int tensor);

/*
 * y[rows, out] = x[rows, in] W[in, out] (+ bias if not NULL). If aux is not NULL, it gets this sum, and y = gelu of it.
 */
void linear_forward(const struct context *c, void *y, const void *x, const void *w, const void *bias, void *aux,
                    int rows, int in, int out);

/* dx[rows, in] = dy[rows, out] W^T, times gelu'(aux) if aux is not NULL. */
void linear_backward_input(const struct context *c, void *dx, const void *dy, const void *w, void *aux, int rows,
                           int in, int out);

/* dW[in, out] = x^T dy; dbias = column sums of dy, if not NULL. */
void linear_backward_weight(const struct context *c, float *dw, float *dbias, const void *dy, const void *x, int rows,
                            int in, int out);

/* y = layernorm(x) [rows, d], with the scale at `tensor` of the unit and the shift at the next one. */
void norm_forward(const struct context *c, const struct unit *unit, const void *param, int tensor, const void *x,
                  void *y, float *mean, float *rstd, int rows);

/* dx = gradient of x from that of y (+ dresidual, if not NULL); x, mean and rstd are the forward pass's. */
void norm_backward(const struct context *c, const struct unit *unit, const void *param, float *grad, int tensor,
                   const void *dy, const void *x, const float *mean, const float *rstd, const void *dresidual, int rows,
                   void *dx);

/*
 * Waits for the device and returns its results in host memory: `at` itself, or with discrete memory a copy in `host`,
 * which has room for `count`.
 */
const float *context_read(const struct context *c, float *host, const float *at, size_t count);

/*
 * Places pieces in a buffer one after the other, each aligned to a cache line; with base NULL it only counts bytes.
 */
struct buffer_layout {
    char *base;
    size_t used;
};

void *place_buffer(struct buffer_layout *layout, size_t bytes);

#endif

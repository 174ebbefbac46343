/*
 * context.h - what every part of a model shares, and the two things that all of them do: linear layers, and cutting
 * buffers.
 *
 * Words: R = rows = samples * seq_length, the tokens of a micro-batch; local rows = R / tp, those that this rank holds
 * between the matrices (parallel/tensor.h); d = hidden. Buffers are in the type of the forward pass unless said so.
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
    int tp_size; /* of tp; footprints are worked out without one */
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

/* Tensor `tensor` of a unit, in its flat buffer of parameters or of fp32 gradients. */
const void *context_weight(const struct context *c, const struct unit *unit, const void *param, int tensor);
float *context_gradient(const struct unit *unit, float *grad, int tensor);

/*
 * y[rows, out] = x[rows, in] W[in, out] (+ bias, where not NULL); gelu of it where aux is given, which keeps the sum.
 */
void linear_forward(const struct context *c, void *y, const void *x, const void *w, const void *bias, void *aux,
                    int rows, int in, int out);

/* dx[rows, in] = dy[rows, out] W^T, times gelu'(aux) where aux is given. */
void linear_backward_input(const struct context *c, void *dx, const void *dy, const void *w, void *aux, int rows,
                           int in, int out);

/* dW[in, out] = x^T dy; dbias = column sums of dy, where not NULL. */
void linear_backward_weight(const struct context *c, float *dw, float *dbias, const void *dy, const void *x, int rows,
                            int in, int out);

/*
 * What the device has computed, for the host: waits for it. Where its memory is no host memory, by way of `host`, which
 * has room for `count`.
 */
const float *context_read(const struct context *c, float *host, const float *at, size_t count);

/*
 * Hands out pieces of a buffer, each on its own cache line; with base NULL it only counts. Sizes in bytes.
 */
struct carver {
    char *base;
    size_t used;
};

void *carve(struct carver *carver, size_t bytes);

#endif

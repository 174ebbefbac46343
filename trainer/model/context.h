/*
 * context.h - shared by all parts of a model: its device, shape and options, the micro-batch, norms and linear layers,
 * and the layout of buffers.
 *
 * R = rows = samples * seq_length, the tokens of a micro-batch; local rows = R / tp: this rank's rows outside the
 * column- and row-parallel products (parallel/tp_group.h); d = hidden. Buffers are in the type of the forward pass
 * unless stated otherwise.
 */
#ifndef MUSTER_TRAINER_MODEL_CONTEXT_H
#define MUSTER_TRAINER_MODEL_CONTEXT_H

#include "ckpt/models/units.h"
#include "common/job.h"
#include "kernels/kernels.h"
#include "plan/activations.h"
#include "trainer/parallel/tp_group.h"

struct context {
    struct device *dev;
    const struct kernels *k;
    const struct job *job;
    const struct model_shape *shape; /* the job's */
    struct tp_group *tp;
    enum dtype dtype;
    struct pass_sizes sizes; /* of the largest micro-batch: what the model's pieces of memory depend on */
};

/*
 * What the head computes, in nats, in MEMORY_HOST of the device: it may be read after device_wait. All tp ranks write
 * the same tokens' losses. Losses of order are BERT's: each rank writes, from the array's beginning, those of the
 * samples whose first token it holds.
 */
struct losses {
    float *tokens; /* [samples * seq_length]; 0 where nothing is to be predicted */
    float *orders; /* [samples] */
};

/* One micro-batch. Arrays are in the device's memory (batch.h), borrowed for the call. document_start is NULL if a
 * sample is one document; types, lengths and order are BERT's. */
struct micro_batch {
    int samples;
    uint64_t first_sample;                   /* of the run; the rest are consecutive. Dropout masks depend on it */
    bool training;                           /* dropout applies */
    const int32_t *tokens, *targets, *types; /* [samples * seq_length] */
    const int32_t *document_start;           /* [samples * seq_length] */
    const int32_t *lengths, *order;          /* [samples] */
    struct losses losses;                    /* the head's results */
};

int context_rows(const struct context *c, int samples);
int context_local_rows(const struct context *c, int samples);

/* The dropout of a [local rows, d] activation; no dropout outside training. site: philox_site (common/philox.h) of the
 * dropout's name, so that each dropout of the model has a mask of its own. */
struct dropout context_dropout(const struct context *c, const struct micro_batch *mb, uint32_t site);

/* A unit in use: its flat buffer of parameters, and in a backward pass that of their fp32 gradients. */
struct weights {
    const struct context *c;
    const struct unit *unit;
    const void *param;
    float *grad;
};

/* The address of a part's weight or bias, and of its gradient; NULL if the model has none. */
const void *weights_at(const struct weights *w, enum model_part part, enum part_term term);
float *weights_gradient(const struct weights *w, enum model_part part, enum part_term term);

/* A description of out[m, n] = a[m, k] b[k, n]; the caller adds options and calls k->matmul. */
struct matmul context_product(const struct context *c, int m, int n, int k, const void *a, const void *b, void *out);

/*
 * Below, W [in, out] is this tp rank's part of a product's weights, and bias of its biases. The weights of one product
 * (Q, K and V; gate and up) are side by side. In the model's layout W may be stored [out, in].
 *
 * y[rows, out] = x[rows, in] W. With `bias` it is added, if there is one. If aux is not NULL, aux = this sum, and
 * y = gelu(aux).
 */
void linear_forward(const struct weights *w, enum model_part part, bool bias, void *y, const void *x, void *aux,
                    int rows);

/* dx[rows, in] = dy[rows, out] W^T, times gelu'(aux) if aux is not NULL. Rows of dx are ld elements apart; 0: in. */
void linear_backward_input(const struct weights *w, enum model_part part, void *dx, int ld, const void *dy, void *aux,
                           int rows);

/* dW = x^T dy; with `bias` the gradient of the bias too, if there is one: the column sums of dy. */
void linear_backward_weight(const struct weights *w, enum model_part part, bool bias, const void *dy, const void *x,
                            int rows);

/* y = norm(x) [rows, d], with W as the scale and the bias as the shift. mean is NULL for an RMSNorm. */
void norm_forward(const struct weights *w, enum model_part part, const void *x, void *y, float *mean, float *rstd,
                  int rows);

/* dx = gradient of x from that of y (+ dresidual, if not NULL); x, mean and rstd are the forward pass's. */
void norm_backward(const struct weights *w, enum model_part part, const void *dy, const void *x, const float *mean,
                   const float *rstd, const void *dresidual, int rows, void *dx);

/* Places pieces in a buffer one after the other, each aligned to a cache line; with base NULL it only counts bytes. NULL
 * for a piece of 0 bytes. */
struct buffer_layout {
    char *base;
    size_t used;
};

void *place_buffer(struct buffer_layout *layout, size_t bytes);

#endif

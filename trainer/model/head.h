/*
 * head.h - the last unit: final norm, the tied projection to the vocabulary, and the loss. Logits are made, used and
 * overwritten a chunk of rows at a time, so that they never take more than HEAD_CHUNK * padded vocabulary.
 */
#ifndef MUSTER_TRAINER_MODEL_HEAD_H
#define MUSTER_TRAINER_MODEL_HEAD_H

#include "common/job.h"
#include "kernels/kernels.h"
#include "trainer/model/units.h"

enum { HEAD_CHUNK = 512 };

struct head {
    struct device *dev;
    const struct kernels *k;
    const struct model_shape *shape;
    const struct unit *unit, *embedding;
    float *y;                         /* [R, d], the final norm's output, then its gradient */
    float *mean, *rstd;               /* [R] */
    float *logits;                    /* [min(R, HEAD_CHUNK), padded vocab] */
    float *max, *sum, *target, *loss; /* [R] */
};

/* Buffers for micro-batches of at most `samples`. 0 or -1. */
int head_create(struct head *head, struct device *dev, const struct model_shape *shape, const struct units *units,
                int samples, struct error *err);
void head_destroy(struct head *head);

/* Sum over rows of the loss, in fp64. x [R, d] is the last block's output. */
double head_loss(struct head *head, const float *param, const float *embedding_param, const float *x,
                 const int32_t *targets, int samples);

/*
 * The same, and the backward pass of loss * scale: dx [R, d], the head's gradients and the tied wte's are overwritten.
 */
double head_loss_backward(struct head *head, const float *param, const float *embedding_param, float *grad,
                          float *embedding_grad, const float *x, const int32_t *targets, int samples, float scale,
                          float *dx);

/* Logits of row `row` of x, copied to out [vocab]: for sampling text. */
void head_logits(struct head *head, const float *param, const float *embedding_param, const float *x, int samples,
                 int row, float *out);

#endif

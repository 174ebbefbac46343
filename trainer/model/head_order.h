/*
 * head_order.h - BERT's second loss: were the two sentences of a sample swapped?
 *
 *     c = h[first token]    p = tanh(c Wpooler + b)    logits = p Worder + b [2]    cross-entropy with order[sample]
 *
 * The first token's row lies on one tp rank, which computes that sample alone: the gradients are summed over the group
 * with the other replicated ones, and the losses with the step's.
 */
#ifndef MUSTER_TRAINER_MODEL_HEAD_ORDER_H
#define MUSTER_TRAINER_MODEL_HEAD_ORDER_H

#include "trainer/model/context.h"

struct head_order {
    const struct context *c;
    const struct unit *unit;
    void *first, *pooled, *gradient;  /* [samples, d] */
    void *logits;                     /* [samples, 2] */
    int32_t *targets;                 /* [samples], those of this rank's samples */
    float *max, *sum, *target, *loss; /* [samples] */
    float *host;                      /* [samples], discrete: losses as the host reads them */
};

/* host: of host memory, used only for a discrete device. */
void head_order_place(struct head_order *o, const struct context *c, const struct unit *unit, int max_samples,
                      struct buffer_layout *layout, struct buffer_layout *host);

/* Sum of the losses of the samples whose first token this rank holds. h: local rows. */
double head_order_loss(struct head_order *o, const void *param, const void *h, const struct micro_batch *mb);

/* The same; adds the gradient of h to dh, and overwrites the unit's pooler and order gradients. */
double head_order_loss_backward(struct head_order *o, const void *param, float *grad, const void *h,
                                const struct micro_batch *mb, double scale, void *dh);

#endif

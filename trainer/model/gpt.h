/*
 * gpt.h - a GPT-2 over units: one micro-batch forward and backward. It reads as the model does, top to bottom; where
 * parameters and gradients live is zero.h's business, and arithmetic is kernels.h's.
 */
#ifndef MUSTER_TRAINER_MODEL_GPT_H
#define MUSTER_TRAINER_MODEL_GPT_H

#include "common/job.h"
#include "kernels/kernels.h"
#include "trainer/model/units.h"
#include "trainer/parallel/zero.h"

struct gpt;

/* One micro-batch: tokens and targets [samples * seq_length], in host memory, borrowed for the call. */
struct micro_batch {
    int samples;
    const int32_t *tokens, *targets;
};

/* max_samples: of a micro-batch. training: false leaves out what only the backward pass needs. Everything is borrowed.
 */
struct gpt *gpt_create(struct device *dev, const struct model_shape *shape, const struct units *units,
                       struct zero *zero, int max_samples, bool training, struct error *err);
void gpt_destroy(struct gpt *gpt);

/* Forward up to the last block's output, which stays in the model with all that gpt_backward needs. */
void gpt_forward(struct gpt *gpt, const struct micro_batch *mb);

/* After gpt_forward of the same micro-batch: the head's loss (summed over tokens), and the backward pass of
 * loss * scale through every unit, whose gradients are handed to zero_grad_ready from the last unit to the first. */
double gpt_backward(struct gpt *gpt, const struct micro_batch *mb, float scale);

/* The summed loss alone, after gpt_forward. */
double gpt_loss(struct gpt *gpt, const struct micro_batch *mb);

/* After gpt_forward: the logits [vocab] that predict what follows token `position` of sample `sample`. */
void gpt_logits(struct gpt *gpt, const struct micro_batch *mb, int sample, int position, float *out);

#endif

/*
 * pipeline.h - one stage's part of a step: executes a schedule (schedule.h), receives its chunks' inputs and sends
 * their outputs. With one stage nothing is sent.
 *
 * Activations go up and gradients come down on two separate communicators. On each, messages between two stages are
 * received in the order in which they were sent, so they need no tags. The input of the next entry of the schedule is
 * received, and the output of the previous one sent, while an entry computes.
 */
#ifndef MUSTER_TRAINER_PIPELINE_H
#define MUSTER_TRAINER_PIPELINE_H

#include "trainer/model/model.h"

struct pipeline;

struct pipeline_config {
    int stage, stages, chunks;
    int most_micro_batches;  /* of a step */
    size_t bytes_per_sample; /* of an activation between stages, on this rank */
    int units;               /* of the model */
};

/* up and down: this rank's pipeline group, twice, in the order of the stages. All is borrowed. */
struct pipeline *pipeline_create(struct device *dev, struct comm *up, struct comm *down, struct model *model,
                                 struct zero *zero, const struct pipeline_config *config, struct error *err);
void pipeline_destroy(struct pipeline *pipeline);

/* Forward and backward of a step's micro-batches. *losses: the sums over this rank's, 0 but on the last stage. */
int pipeline_train(struct pipeline *pipeline, const struct micro_batch *micro_batches, int count,
                   const struct loss_scales *scales, struct losses *losses, struct error *err);

/* Forward only. */
int pipeline_evaluate(struct pipeline *pipeline, const struct micro_batch *micro_batches, int count,
                      struct losses *losses, struct error *err);

/* The most micro-batches whose activations a chunk holds at once in such a step: model_chunk's slots. Pure. */
int pipeline_slots(int stage, int stages, int chunks, int chunk, int micro_batches);

#endif

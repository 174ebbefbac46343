/*
 * pipeline.h - one stage's part of a step: executes a schedule (schedule.h), receives what its chunks begin with and
 * sends what they end with. One stage alone is the same without sending.
 *
 * Activations go up and gradients come down on two communicators of their own. On each, messages between two stages are
 * used in the order in which they were made, so none needs a tag. What the next entry of the schedule begins with is
 * received while this one computes, and what an entry ends with is sent while the next one does.
 */
#ifndef MUSTER_TRAINER_PARALLEL_PIPELINE_H
#define MUSTER_TRAINER_PARALLEL_PIPELINE_H

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

/* Forward alone. */
int pipeline_evaluate(struct pipeline *pipeline, const struct micro_batch *micro_batches, int count,
                      struct losses *losses, struct error *err);

/* Activations of micro-batches that each chunk holds at most in a step of so many: model_chunk's slots. Pure. */
int pipeline_slots(int stage, int stages, int chunks, int chunk, int micro_batches);

#endif

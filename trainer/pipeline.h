/*
 * pipeline.h - one stage's part of a step: executes a schedule (plan/schedule.h), receives its chunks' inputs and sends
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

/* up and down: two communicators of this rank's pipeline group. Rank i of both is stage i. most_micro_batches: the most
 * that a step has. Everything is borrowed. */
struct pipeline *pipeline_create(const struct job *job, struct comm *up, struct comm *down, struct model *model,
                                 struct zero *zero, int most_micro_batches, struct error *err);
void pipeline_destroy(struct pipeline *pipeline);

/*
 * Forward and backward of a step's micro-batches. If scales is NULL, only forward (validation). *losses: the sums over
 * the micro-batches; 0 except on the last stage.
 */
int pipeline_run(struct pipeline *pipeline, const struct micro_batch *micro_batches, int count,
                 const struct loss_factors *scales, struct losses *losses, struct error *err);

#endif

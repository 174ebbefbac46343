/*
 * optim.h - the learning rate, batch size and loss scale of a step, and the detection of loss spikes.
 * loss_scale_update and spike_update change the struct that they get. The other functions are pure.
 *
 * Learning rate.
 *
 * Warm-up is linear over the first warmup_steps; then, with t running from 0 to 1 between the end of the warm-up and
 * decay_steps:
 *   cosine    min + (lr - min) * (1 + cos(pi t)) / 2
 *   linear    min + (lr - min) * (1 - t)
 *   constant  lr
 *   wsd       lr until cooldown_steps before decay_steps, then linearly to min (warm-up, stable, decay;
 *             arXiv 2404.06395)
 * and min_lr after decay_steps (lr where constant).
 */
#ifndef MUSTER_TRAINER_OPTIM_OPTIM_H
#define MUSTER_TRAINER_OPTIM_OPTIM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/job.h"

/* step: 1 for the first optimizer step. */
double learning_rate(const struct job *job, long step);

/*
 * The number of samples of the step that begins after `consumed_samples`; batch.global_batch without a ramp-up.
 *
 * Megatron's batch ramp-up: small batches at the start reach a given loss with fewer samples. With start, increment and
 * samples of the job's batch.rampup_*, and `consumed` the samples consumed so far:
 *
 *   start + increment * floor(consumed / (samples * increment / (global_batch - start))), at most global_batch
 *
 * So each size lasts for the same number of samples, up to whole steps. It depends on the consumed samples only: a
 * resumed run continues unchanged.
 */
int batch_size_at(const struct job *job, uint64_t consumed_samples);

/*
 * The loss is multiplied by the loss scale so that small gradients do not become 0 in fp16. Gradients are divided by it
 * before they are used. If one of them is not finite, on any rank, the step is skipped. precision.loss_scale and
 * precision.compute decide whether the scale is none (1), constant or dynamic. The dynamic scale is Megatron's:
 *
 *   - it begins at loss_scale_start;
 *   - after loss_scale_window good steps in a row it doubles, and the hysteresis is reset;
 *   - an overflow sets good_steps to 0 and uses up one of loss_scale_hysteresis; when it uses up the last one, and at
 *     every overflow after that, the scale halves, but not below loss_scale_min.
 *
 * Unlike Megatron's it does not grow beyond 2^100, so that it is always a finite float. All ranks must update theirs
 * with the same `overflow`: true if any rank's gradients overflowed.
 */

/* A checkpoint stores all three. */
struct loss_scale {
    double scale;
    int good_steps;      /* since the scale changed or gradients overflowed */
    int hysteresis_left; /* overflows until it halves, at least 1; 0 if not dynamic */
};

/* The scale of the first step. */
struct loss_scale loss_scale_init(const struct job *job);

/*
 * The scale of a run that resumes from a checkpoint with `kept`: that scale, within the job's present bounds, if it was
 * and is dynamic; else the job's, since a run may resume in another precision.
 */
struct loss_scale loss_scale_resume(const struct job *job, struct loss_scale kept);

/* After a step. A constant scale does not change. */
void loss_scale_update(struct loss_scale *scale, const struct job *job, bool overflow);

/*
 * True if a smaller scale may fix another overflow. A dynamic scale begins far too large, so a run in fp16 begins with
 * some twenty skipped steps in a row, which optimizer.most_skipped must not count.
 */
bool loss_scale_can_fall(const struct loss_scale *scale, const struct job *job);

/*
 * A step whose loss is a spike is skipped. The running mean is that of all losses until there are 100, and then
 * exponential:
 *
 *   mean += (loss - mean) / min(count, 100)
 *
 * A loss is a spike if it is more than optimizer.spike_factor times the mean of at least 10 losses. While the loss of a
 * healthy run falls, the mean lags behind and is above it. Losses of skipped steps are not part of the mean, so that a
 * spike does not hide the next one. If the loss stays high, every step is skipped until optimizer.most_skipped of them
 * end the run.
 */

/* Begins as zeros. A checkpoint stores both, to the bit. */
struct spike {
    double mean;
    uint64_t count;
};

/* False if spike_factor is 0, and for a loss that is not finite, which is handled elsewhere. */
bool spike_check(const struct spike *spike, const struct job *job, double loss);

/* Adds the loss of a step that was not skipped. A loss that is not finite changes nothing. */
void spike_update(struct spike *spike, double loss);

#endif

/*
 * optim.h - what an optimizer step depends on besides gradients: learning rate, batch size, loss scale, and whether the
 * loss is a spike. Pure functions of the job and the step.
 *
 * Learning rate.
 *
 * Warm-up is linear over the first warmup_steps; then, with t running from 0 to 1 between the end of the warm-up and
 * decay_steps:
 *   cosine    min + (lr - min) * (1 + cos(pi t)) / 2
 *   linear    min + (lr - min) * (1 - t)
 *   constant  lr
 *   wsd       lr until cooldown_steps before decay_steps, then along a line to min (warm-up, stable, decay;
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
 * The samples of a step while the batch grows (Megatron's batch ramp-up). Pure.
 *
 * Small batches at the start reach a given loss with fewer samples. With start, increment and samples of the job's
 * batch.rampup_*, and consumed the samples that the run has consumed so far:
 *
 *   start + increment * floor(consumed / (samples * increment / (global_batch - start))), at most global_batch
 *
 * so every size on the way lasts for the same number of samples, to the step. It depends on the samples consumed
 * alone: a run that is resumed anywhere goes on as it would have.
 */

/* Samples of the step that begins after `consumed_samples`; batch.global_batch where there is no ramp-up. */
int batch_size_at(const struct job *job, uint64_t consumed_samples);

/*
 * The factor that the loss is multiplied with so that small gradients do not become 0 in fp16. Pure.
 *
 * Gradients come out multiplied with it, and are divided by it before anybody looks at them. When one of them is not
 * finite, on any rank, the step is skipped. The scale is one of three, as precision.loss_scale and precision.compute
 * say: none (1), constant, or dynamic. The dynamic scale is Megatron's:
 *
 *   - it begins at loss_scale_start;
 *   - after loss_scale_window good steps in a row it doubles, and the hysteresis begins anew;
 *   - an overflow ends the row and uses up one of loss_scale_hysteresis; when it uses up the last one, and at every
 *     overflow after that, the scale halves, but never below loss_scale_min.
 *
 * Unlike Megatron's it does not grow beyond 2^100, so that it always is a finite float. All ranks must update theirs
 * with the same `overflow`: whether any rank's gradients overflowed.
 */

/* A checkpoint keeps all three. */
struct loss_scale {
    double scale;
    int good_steps;      /* since the scale changed or gradients overflowed */
    int hysteresis_left; /* overflows until it halves, at least 1; 0 where it is not dynamic */
};

/* Of the first step. */
struct loss_scale loss_scale_init(const struct job *job);

/*
 * What a run goes on with whose checkpoint has `kept`. That, if the scale was dynamic and is, within the bounds that
 * the job has now; else what the job says: a run may go on in another precision.
 */
struct loss_scale loss_scale_resume(const struct job *job, struct loss_scale kept);

/* After a step. Constant, or none: nothing changes. */
void loss_scale_update(struct loss_scale *scale, const struct job *job, bool overflow);

/*
 * Whether another overflow may yet be mended by a smaller scale. A dynamic scale begins far too large, and a run in
 * fp16 with some twenty skipped steps in a row; optimizer.most_skipped must not count those.
 */
bool loss_scale_can_fall(const struct loss_scale *scale, const struct job *job);

/*
 * Whether a step's loss is so much larger than those before it that the step had better be skipped. Pure.
 *
 * The running mean is that of all losses until there are 100, and then exponential:
 *
 *   mean += (loss - mean) / min(count, 100)
 *
 * A loss is a spike if it is more than optimizer.spike_factor times the mean, of 10 losses at least. As the loss of a
 * healthy run falls, the mean is behind and thus above it. Losses of skipped steps do not enter the mean: a spike must
 * not hide the next one. So if the loss stays high, every step is skipped until optimizer.most_skipped of them end the
 * run.
 */

/* Begins as zeros. A checkpoint keeps both, to the bit. */
struct spike {
    double mean;
    uint64_t count;
};

/* False where spike_factor is 0, and for a loss that is no number, which is another matter. */
bool spike_check(const struct spike *spike, const struct job *job, double loss);

/* Of a step that was not skipped. A loss that is not finite changes nothing. */
void spike_update(struct spike *spike, double loss);

#endif

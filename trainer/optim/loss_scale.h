/*
 * loss_scale.h - the factor that the loss is multiplied with so that small gradients do not become 0 in fp16. Pure.
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
#ifndef MUSTER_TRAINER_OPTIM_LOSS_SCALE_H
#define MUSTER_TRAINER_OPTIM_LOSS_SCALE_H

#include <stdbool.h>

#include "common/job.h"

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

#endif

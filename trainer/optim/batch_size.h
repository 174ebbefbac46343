/*
 * batch_size.h - the samples of a step while the batch grows (Megatron's batch ramp-up). Pure.
 *
 * Small batches at the start reach a given loss with fewer samples. With start, increment and samples of the job's
 * batch.rampup_*, and consumed the samples that the run has consumed so far:
 *
 *   start + increment * floor(consumed / (samples * increment / (global_batch - start))), at most global_batch
 *
 * so every size on the way lasts for the same number of samples, to the step. It depends on the samples consumed
 * alone: a run that is resumed anywhere goes on as it would have.
 */
#ifndef MUSTER_TRAINER_OPTIM_BATCH_SIZE_H
#define MUSTER_TRAINER_OPTIM_BATCH_SIZE_H

#include "common/job.h"

/* Samples of the step that begins after `consumed_samples`; batch.global_batch where there is no ramp-up. */
int batch_size_at(const struct job *job, uint64_t consumed_samples);

#endif

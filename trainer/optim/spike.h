/*
 * spike.h - whether a step's loss is so much larger than those before it that the step had better be skipped. Pure.
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
#ifndef MUSTER_TRAINER_OPTIM_SPIKE_H
#define MUSTER_TRAINER_OPTIM_SPIKE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/job.h"

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

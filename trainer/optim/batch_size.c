#include "trainer/optim/batch_size.h"

int batch_size_at(const struct job *job, uint64_t consumed_samples)
{
    int global = job->batch.global_batch, start = job->batch.rampup_start, increment = job->batch.rampup_increment;
    uint64_t samples = job->batch.rampup_samples;

    if (start == 0 || consumed_samples >= samples)
        return global;
    /* In whole numbers, so that no rounding moves the step at which the size changes. */
    return start + increment * (int)((unsigned __int128)consumed_samples * (unsigned)(global - start) /
                                     ((unsigned __int128)samples * (unsigned)increment));
}

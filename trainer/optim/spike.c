#include "trainer/optim/spike.h"

#include <math.h>

#define WINDOW 100
#define ENOUGH 10

bool spike_check(const struct spike *spike, const struct job *job, double loss)
{
    double factor = job->optimizer.spike_factor;

    return factor > 0 && spike->count >= ENOUGH && loss > factor * spike->mean;
}

void spike_update(struct spike *spike, double loss)
{
    if (!isfinite(loss))
        return;
    spike->count++;
    spike->mean += (loss - spike->mean) / (double)(spike->count < WINDOW ? spike->count : WINDOW);
}

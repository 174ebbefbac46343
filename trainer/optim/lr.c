#include "trainer/optim/lr.h"

#include <math.h>

double learning_rate(const struct job *job, long step)
{
    long warmup = job->optimizer.warmup_steps;
    long decay = job->optimizer.decay_steps ? job->optimizer.decay_steps : job->batch.steps;
    long cooldown = job->optimizer.cooldown_steps;
    double lr = job->optimizer.lr, min = job->optimizer.min_lr, t;

    if (step <= warmup)
        return lr * (double)step / (double)warmup;
    if (job->optimizer.schedule == LR_CONSTANT)
        return lr;
    if (step >= decay)
        return min;
    if (job->optimizer.schedule == LR_WSD)
        return step <= decay - cooldown ? lr : min + (lr - min) * (double)(decay - step) / (double)cooldown;
    t = (double)(step - warmup) / (double)(decay - warmup);
    if (job->optimizer.schedule == LR_LINEAR)
        return min + (lr - min) * (1.0 - t);
    return min + (lr - min) * (1.0 + cos(M_PI * t)) / 2.0;
}

#include "trainer/optim/optim.h"

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

int batch_size_at(const struct job *job, uint64_t consumed_samples)
{
    int global = job->batch.global_batch, start = job->batch.rampup_start, increment = job->batch.rampup_increment;
    uint64_t samples = job->batch.rampup_samples;

    if (start == 0 || consumed_samples >= samples)
        return global;
    /* In integers, so that rounding does not move the step at which the size changes. */
    return start + increment * (int)((unsigned __int128)consumed_samples * (unsigned)(global - start) /
                                     ((unsigned __int128)samples * (unsigned)increment));
}

#define LARGEST 0x1p100

static bool is_dynamic(const struct job *job)
{
    return job->precision.loss_scale == 0 && job->precision.compute == DTYPE_F16;
}

struct loss_scale loss_scale_init(const struct job *job)
{
    double constant = job->precision.loss_scale;

    if (is_dynamic(job))
        return (struct loss_scale){.scale = job->precision.loss_scale_start,
                                   .hysteresis_left = job->precision.loss_scale_hysteresis};
    return (struct loss_scale){.scale = constant > 0 ? constant : 1};
}

struct loss_scale loss_scale_resume(const struct job *job, struct loss_scale kept)
{
    if (!is_dynamic(job) || kept.hysteresis_left == 0)
        return loss_scale_init(job);
    if (kept.scale < job->precision.loss_scale_min)
        kept.scale = job->precision.loss_scale_min;
    if (kept.hysteresis_left > job->precision.loss_scale_hysteresis)
        kept.hysteresis_left = job->precision.loss_scale_hysteresis;
    return kept;
}

bool loss_scale_can_fall(const struct loss_scale *s, const struct job *job)
{
    return is_dynamic(job) && s->scale > job->precision.loss_scale_min;
}

void loss_scale_update(struct loss_scale *s, const struct job *job, bool overflow)
{
    if (!is_dynamic(job))
        return;
    if (overflow) {
        s->good_steps = 0;
        if (s->hysteresis_left > 1)
            s->hysteresis_left--;
        else
            s->scale = fmax(s->scale / 2, job->precision.loss_scale_min);
        return;
    }
    if (++s->good_steps < job->precision.loss_scale_window)
        return;
    s->good_steps = 0;
    s->hysteresis_left = job->precision.loss_scale_hysteresis;
    if (s->scale * 2 <= LARGEST)
        s->scale *= 2;
}

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

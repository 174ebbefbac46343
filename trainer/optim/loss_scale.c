#include "trainer/optim/loss_scale.h"

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

static void halve(struct loss_scale *s, double least)
{
    s->scale = s->scale / 2 > least ? s->scale / 2 : least;
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
            halve(s, job->precision.loss_scale_min);
        return;
    }
    if (++s->good_steps < job->precision.loss_scale_window)
        return;
    s->good_steps = 0;
    s->hysteresis_left = job->precision.loss_scale_hysteresis;
    if (s->scale * 2 <= LARGEST)
        s->scale *= 2;
}

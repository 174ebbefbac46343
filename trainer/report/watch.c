#include "trainer/report/watch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "trainer/report/segments.h"

void watch_start(struct watch *watch, long steps)
{
    memset(watch, 0, sizeof *watch);
    watch->steps = steps;
}

/* True once for each change. */
static bool remember(struct watch *watch, const struct metrics_step *s)
{
    const struct watch_event now = {.step = s->step, .world = s->world, .dp = s->dp, .tp = s->tp, .pp = s->pp};

    for (size_t i = 0; i < watch->ntold && i < WATCH_EVENTS; i++) {
        const struct watch_event *e = &watch->told[i];

        if (e->step == now.step && e->world == now.world && e->dp == now.dp && e->tp == now.tp && e->pp == now.pp)
            return false;
    }
    watch->told[watch->ntold++ % WATCH_EVENTS] = now;
    return true;
}

static void describe(char *event, size_t size, const struct metrics_step *before, const struct metrics_step *now)
{
    if (now->world != before->world)
        snprintf(event, size, "resumed at step %ld on %d rank%s (was %d)", now->step, now->world,
                 now->world == 1 ? "" : "s", before->world);
    else
        snprintf(event, size, "resumed at step %ld with dp %d, tp %d, pp %d (was %d, %d, %d)", now->step, now->dp,
                 now->tp, now->pp, before->dp, before->tp, before->pp);
}

bool watch_step(struct watch *watch, const struct metrics_step *step, char *event, size_t size)
{
    bool changed = watch->last.step > 0 && !segments_same_mesh(&watch->last, step);
    bool tell = changed && remember(watch, step);

    if (tell)
        describe(event, size, &watch->last, step);
    if (changed)
        watch->timed = 0;
    watch->seconds[watch->timed++ % WATCH_RECENT] = step->step_seconds;
    watch->last = *step;
    if (step->step > watch->furthest)
        watch->furthest = step->step;
    return tell;
}

void watch_anew(struct watch *watch)
{
    watch->anew = true;
    watch->last = (struct metrics_step){0};
    watch->timed = 0;
}

bool watch_rewound(struct watch *watch, char *event, size_t size)
{
    bool back = watch->anew && watch->last.step < watch->furthest;

    if (back) {
        snprintf(event, size, "back at step %ld (was %ld): going on from a checkpoint", watch->last.step,
                 watch->furthest);
        watch->furthest = watch->last.step;
    }
    watch->anew = false;
    return back;
}

static double eta(const struct watch *watch)
{
    size_t count = watch->timed < WATCH_RECENT ? watch->timed : WATCH_RECENT;
    double sum = 0.0;

    if (!count || watch->steps <= 0)
        return NAN;
    for (size_t i = 0; i < count; i++)
        sum += watch->seconds[i];
    return watch->last.step >= watch->steps ? 0.0 : sum / (double)count * (double)(watch->steps - watch->last.step);
}

struct progress watch_progress(const struct watch *watch)
{
    return (struct progress){
        .step = watch->last.step,
        .steps = watch->steps,
        .loss = watch->last.loss,
        .tokens_per_second = watch->last.tokens_per_second,
        .mfu = watch->last.mfu,
        .eta_seconds = eta(watch),
        .ranks = watch->last.world,
    };
}

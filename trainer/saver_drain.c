/* saver_drain.c - what becomes of saves behind training, and that somebody sees to it. */
#include <inttypes.h>
#include <time.h>

#include "trainer/saver_impl.h"

enum { LONG_LIVED = 10 }; /* a muster-ckptd that ran for fewer seconds counts against SAVER_MOST_RESTARTS */

/* Also by another than ours: one that outlived an earlier run has the stage until it is through with that run's. */
static bool is_tended(struct saver *s)
{
    return (s->ckptd.pid != 0 && !ckptd_ended(&s->ckptd)) || ckpt_stage_is_drained(s->stage);
}

/* A drainer that was killed costs nothing but a new one; one that ends again and again is left alone. */
static void tend(struct saver *s)
{
    struct error err;

    if (!s->stage || !s->first || is_tended(s))
        return;
    if (saver_seconds() - s->restarted > LONG_LIVED)
        s->restarts = 0;
    if (s->restarts == SAVER_MOST_RESTARTS)
        return;
    s->restarts++;
    s->restarted = saver_seconds();
    if (ckptd_start(&s->ckptd, ckpt_stage_directory(s->stage), s->job->checkpoint.drain_mib, &err) == 0)
        saver_say_line(s, "muster-ckptd had ended and was started anew");
    else
        saver_say_line(s, "%s", err.text);
}

static void tell(struct saver *s, const struct ckpt_stage_news *news)
{
    bool last = news->step == s->staged;

    switch (news->outcome) {
    case CKPT_COMMITTED:
        s->committed = news->step;
        if (last)
            saver_say_line(s, "checkpoint of step %" PRIu64 " saved in %.2f s, of which training waited %.3f s",
                           news->step, news->seconds, s->waited);
        else
            saver_say_line(s, "checkpoint of step %" PRIu64 " saved in %.2f s", news->step, news->seconds);
        saver_look_for_others(s);
        break;
    case CKPT_SUPERSEDED:
        saver_say_line(s, "checkpoint of step %" PRIu64 " was overtaken by a newer one", news->step);
        saver_look_for_others(s);
        break;
    case CKPT_FAILED:
        saver_say_line(s, "checkpoint of step %" PRIu64 " failed: %s; training goes on", news->step, news->reason);
        break;
    }
}

void saver_poll(struct saver *s)
{
    struct ckpt_stage_news news;
    struct error err;

    if (!s || !s->stage)
        return;
    tend(s);
    if (s->copy.under_way) /* it may even be committed: that is told when it is known how long training waited for it */
        return;
    while (comm_rank(s->world) == 0 && ckpt_stage_poll(s->stage, &news, &err) > 0)
        tell(s, &news);
}

int saver_wait_for_drain(struct saver *s, struct error *err)
{
    enum { DONE, DRAINING, NOBODY };

    for (;;) {
        double state = DONE;
        struct error ignored;
        int result = s->first ? ckpt_stage_wait(s->stage, 0.05, &ignored) : 0;

        saver_poll(s);
        if (result != 0)
            state = is_tended(s) || s->restarts < SAVER_MOST_RESTARTS ? DRAINING : NOBODY;
        if (comm_max_f64(s->world, &state, 1, err) < 0)
            return -1;
        if (state == DONE)
            break;
        if (state == NOBODY)
            return error_set(err, CODE_IO, "muster-ckptd ended %d times on a node: nobody drains what is staged there",
                             SAVER_MOST_RESTARTS);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    saver_poll(s);
    return 0;
}

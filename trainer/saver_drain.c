/* saver_drain.c - what becomes of saves behind training, and that somebody sees to it. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "trainer/saver_impl.h"

enum {
    LONG_LIVED = 10,    /* a muster-ckptd that ran for fewer seconds counts against SAVER_MOST_RESTARTS */
    NOBODY_SECONDS = 5, /* without a muster-ckptd until nobody waits for it to make room */
    END_SECONDS = 10,   /* before the job's time limit, to end in order */
};

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
    if (clock_monotonic() - s->restarted > LONG_LIVED)
        s->restarts = 0;
    if (s->restarts == SAVER_MOST_RESTARTS)
        return;
    s->restarts++;
    s->restarted = clock_monotonic();
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

/* The trouble of the lowest rank that has any, on all ranks: 1; 0 if there is none. */
static int share_trouble(struct saver *s, bool holding, struct ckpt_stage_trouble *trouble, struct error *err)
{
    int rank = comm_rank(s->world), size = comm_size(s->world);
    double found = s->first && ckpt_stage_trouble(s->stage, holding, trouble) ? size - rank : 0;

    comm_purpose(s->world, "what", "keeps a checkpoint in memory");
    if (comm_max_f64(s->world, &found, 1, err) < 0)
        return -1;
    if (found == 0)
        return 0;
    return comm_broadcast(s->world, trouble, sizeof *trouble, size - (int)found, err) < 0 ? -1 : 1;
}

/* Told once; until the drainer has looked, the save is still there. */
static void replace(struct saver *s, const struct ckpt_stage_trouble *trouble)
{
    struct error err;

    if (s->first && ckpt_stage_replace(s->stage, trouble->step, trouble->attempt, &err) < 0)
        saver_say_line(s, "%s", err.text);
    if (s->replaced.step != trouble->step || strcmp(s->replaced.attempt, trouble->attempt) != 0)
        saver_say_line(s, "the checkpoint of step %" PRIu64 " makes room for that of step %" PRIu64 ": %s",
                       trouble->step, s->engine->step, trouble->reason);
    s->replaced = *trouble;
}

int saver_make_room(struct saver *s, bool wait, bool *ready, struct error *err)
{
    struct ckpt_stage_trouble trouble = {0};
    double start = clock_monotonic();

    for (;;) {
        /* The order is of precedence: no room somewhere; and nobody there who would make some. */
        double values[2] = {s->stage && !ckpt_stage_ready(s->stage, comm_rank(s->world), comm_size(s->world)), 0};
        int found;

        values[1] = values[0] > 0 && s->first && !is_tended(s) && clock_monotonic() - start > NOBODY_SECONDS;
        comm_purpose(s->world, "room", "for a checkpoint");
        if (comm_max_f64(s->world, values, 2, err) < 0)
            return -1;
        *ready = values[0] == 0;
        if (*ready || values[1] > 0)
            return 0;
        found = share_trouble(s, true, &trouble, err);
        if (found < 0)
            return -1;
        if (found > 0)
            replace(s, &trouble);
        if (!wait)
            return 0;
        saver_poll(s);
        clock_sleep(0.02);
    }
}

/* Until the job's time limit, less what it takes to end. Slurm does not tell it everywhere: then infinite. */
static double job_seconds(void)
{
    const char *end = getenv("SLURM_JOB_END_TIME");
    double at = end ? strtod(end, NULL) : 0;

    return at > 0 ? at - (double)time(NULL) - END_SECONDS : HUGE_VAL;
}

static bool is_late(struct saver *s, double *failing)
{
    struct ckpt_stage_trouble trouble;
    double now = clock_monotonic();

    if (!ckpt_stage_trouble(s->stage, false, &trouble))
        *failing = 0;
    else if (*failing == 0)
        *failing = now;
    return job_seconds() <= 0 || (*failing > 0 && now - *failing >= s->job->checkpoint.last_seconds);
}

static int say_late(struct saver *s, struct error *err)
{
    struct ckpt_stage_trouble trouble = {0};
    int found = share_trouble(s, false, &trouble, err);

    if (found < 0)
        return -1;
    error_set(err, CODE_IO, "%s", found ? trouble.reason : "the job's time limit is near");
    return 1;
}

int saver_wait_for_drain(struct saver *s, struct error *err)
{
    enum { DONE, DRAINING, NOBODY, LATE };
    double failing = 0; /* since when, on this node */

    for (;;) {
        double state = DONE;
        struct error ignored;
        int result = s->first ? ckpt_stage_wait(s->stage, 0.05, &ignored) : 0;

        saver_poll(s);
        if (result != 0)
            state = is_late(s, &failing) ? LATE : is_tended(s) || s->restarts < SAVER_MOST_RESTARTS ? DRAINING : NOBODY;
        if (comm_max_f64(s->world, &state, 1, err) < 0)
            return -1;
        if (state == DONE)
            break;
        if (state == LATE)
            return say_late(s, err);
        if (state == NOBODY)
            return error_set(err, CODE_IO, "muster-ckptd ended %d times on a node: nobody drains what is staged there",
                             SAVER_MOST_RESTARTS);
        clock_sleep(0.02);
    }
    saver_poll(s);
    return 0;
}

/* saver_drain.c - the trainer's side of staged saves: reads their results, makes room for the next save, and waits
 * until all are committed. muster-ckptd drains them (ckpt/drain/). */
#include "trainer/saver_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

enum {
    LINE_SIZE = 1024,
    FULL_SECONDS = 5, /* if a stage has been full for so long and no muster-ckptd drains it, no rank waits for room */
    SILENT_SECONDS = 30,   /* a muster-ckptd that has written nothing for so long is reported */
    END_SECONDS = 10,      /* stop waiting so long before the job's time limit, so that the trainer can end */
    EXTENDED_SECONDS = 60, /* if the limit has passed for so long, it must have been extended */
};

#define POLL_SECONDS 0.02

void saver_log(struct saver *s, const char *format, ...)
{
    char line[LINE_SIZE];
    va_list args;

    if (comm_rank(s->world) != 0)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    s->events.log(s->events.arg, line);
}

/* A checkpoint of a step that this run has not reached is another job's; they remove each other's. */
void saver_look_for_others(struct saver *s)
{
    uint64_t *steps = NULL;
    size_t count = 0;

    /* Until this run has saved, any commit there comes from the run before it. */
    if (s->others_logged || s->last_save == UINT64_MAX || comm_rank(s->world) != 0 ||
        ckpt_list(s->job->checkpoint.dir, &steps, &count, NULL) < 0)
        return;
    if (count > 0 && steps[0] > s->engine->step) {
        saver_log(s,
                  "%s has a checkpoint of step %" PRIu64 ", and this run is at step %" PRIu64
                  ": another job saves there, and each removes the other's checkpoints: stop one of them (or a "
                  "node that an earlier run lost was late)",
                  s->job->checkpoint.dir, steps[0], s->engine->step);
        s->others_logged = true;
    }
    free(steps);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static void report_end(struct saver *s, const struct ckpt_stage_news *news)
{
    switch (news->outcome) {
    case CKPT_COMMITTED:
        s->committed = news->step;
        if (news->step == s->staged_step)
            saver_log(s, "checkpoint of step %" PRIu64 " saved in %.2f s, of which training waited %.3f s", news->step,
                      news->seconds, s->waited);
        else
            saver_log(s, "checkpoint of step %" PRIu64 " saved in %.2f s", news->step, news->seconds);
        saver_look_for_others(s);
        break;
    case CKPT_SUPERSEDED:
        saver_log(s, "checkpoint of step %" PRIu64 " was overtaken by a newer one", news->step);
        saver_look_for_others(s);
        break;
    case CKPT_FAILED:
        saver_log(s, "checkpoint of step %" PRIu64 " failed: %s; training goes on", news->step, news->reason);
        break;
    }
}

void saver_poll(struct saver *s)
{
    struct ckpt_stage_news news;
    struct error err;
    int restarted;

    if (!s->stage)
        return;
    restarted = saver_stage_supervise(s->stage, &err);
    if (restarted != 0)
        saver_log(s, "%s", restarted > 0 ? "muster-ckptd had ended and was restarted" : err.text);
    if (saver_stage_is_copying(s->stage)) /* its commit is logged when it is known how long training waited */
        return;
    while (comm_rank(s->world) == 0 && ckpt_stage_poll(s->stage->handle, &news, &err) > 0)
        report_end(s, &news);
}

/* The oldest trouble of any node, on all ranks: 1; 0 if there is none. */
static int share_trouble(struct saver *s, bool holding, struct ckpt_stage_trouble *trouble, struct error *err)
{
    int rank = comm_rank(s->world), size = comm_size(s->world);
    bool troubled = s->stage->first && ckpt_stage_find_trouble(s->stage->handle, holding, trouble);
    double oldest = troubled ? -(double)trouble->step : -INFINITY, found;

    comm_purpose(s->world, "oldest save", "in trouble");
    if (comm_max_f64(s->world, &oldest, 1, err) < 0)
        return -1;
    found = troubled && -(double)trouble->step == oldest ? size - rank : 0;
    if (comm_max_f64(s->world, &found, 1, err) < 0)
        return -1;
    if (found == 0)
        return 0;
    return comm_broadcast(s->world, trouble, sizeof *trouble, size - (int)found, err) < 0 ? -1 : 1;
}

/* What a wait has seen of the drain. Begins zeroed. */
struct watched_drain {
    double failing;        /* since when it has failed; 0: it does not */
    double updated, moved; /* the time in its status, and when that last changed */
    bool logged, killed;
};

/* A drain that fails writes that. One that writes nothing is stuck in the file system, or was stopped. */
static double silent_seconds(struct saver *s, struct watched_drain *drain)
{
    double updated = ckpt_stage_updated(s->stage->handle), now = clock_monotonic();

    if (drain->moved == 0 || updated != drain->updated) {
        drain->updated = updated;
        drain->moved = now;
        drain->logged = false;
    }
    if (now - drain->moved >= SILENT_SECONDS && !drain->logged) {
        drain->logged = true;
        saver_log(s, "muster-ckptd has written nothing for %d s: waiting for it", SILENT_SECONDS);
    }
    return now - drain->moved;
}

/* Whether to wait no longer for a drain that is silent. Before that, its process is killed once, and so replaced. */
static bool is_stuck(struct saver *s, struct watched_drain *drain)
{
    double silent = silent_seconds(s, drain), last = fmax(s->job->checkpoint.last_seconds, 2 * SILENT_SECONDS);

    if (silent < last || drain->killed)
        return silent >= last;
    drain->killed = true;
    drain->moved = 0;
    saver_stage_kill_drainer(s->stage);
    saver_log(s, "muster-ckptd has written nothing for %.0f s: it is killed, and started again", silent);
    return false;
}

int saver_make_room(struct saver *s, bool wait, bool *proceed, struct error *err)
{
    struct ckpt_stage_trouble oldest = {0};
    struct watched_drain drain = {0};

    for (*proceed = true; s->stage;) {
        double full = !ckpt_stage_has_room(s->stage->handle, comm_rank(s->world), comm_size(s->world));
        double values[3] = {full, 0, saver_stage_is_replacing(s->stage)};
        struct error mark_error;
        int found = 0, replaced = 0;

        if (full == 0 || s->full_since == 0)
            s->full_since = full > 0 ? clock_monotonic() : 0;
        values[1] = full > 0 && s->stage->first && clock_monotonic() - s->full_since > FULL_SECONDS &&
                    (!saver_stage_has_drainer(s->stage) || is_stuck(s, &drain));
        comm_purpose(s->world, "room", "for a checkpoint");
        if (comm_max_f64(s->world, values, 3, err) < 0)
            return -1;
        *proceed = values[0] == 0 || values[1] > 0;
        if (*proceed)
            return 0;
        if (values[2] == 0)
            found = share_trouble(s, true, &oldest, err);
        if (found < 0)
            return -1;
        if (found > 0)
            replaced = saver_stage_replace(s->stage, &oldest, &mark_error);
        if (replaced < 0)
            saver_log(s, "%s", mark_error.text);
        else if (replaced > 0)
            saver_log(s, "the checkpoint of step %" PRIu64 " is dropped to make room for that of step %" PRIu64 ": %s",
                      oldest.step, s->engine->step, oldest.reason);
        if (!wait)
            return 0;
        saver_poll(s);
        clock_sleep(POLL_SECONDS);
    }
    return 0;
}

/* Whether to stop waiting: the drain has failed, or was silent, for checkpoint.last_seconds, or the job's time limit is
 * near. */
static bool must_stop_waiting(struct saver *s, struct watched_drain *drain)
{
    const char *end = getenv("SLURM_JOB_END_TIME"); /* not everywhere */
    double left = end ? strtod(end, NULL) - clock_realtime() : HUGE_VAL, now = clock_monotonic();
    struct ckpt_stage_trouble trouble = {0};

    if (!ckpt_stage_find_trouble(s->stage->handle, false, &trouble))
        drain->failing = 0;
    else if (drain->failing == 0)
        drain->failing = now;
    /* If the end is long past, the job was extended or suspended, and the variable is out of date: ignore it. */
    return (left <= END_SECONDS && left > -EXTENDED_SECONDS) ||
           (drain->failing > 0 && now - drain->failing >= s->job->checkpoint.last_seconds && !trouble.draining) ||
           is_stuck(s, drain);
}

static int fail_waiting(struct saver *s, struct error *err)
{
    struct ckpt_stage_trouble trouble = {0};
    int found = share_trouble(s, false, &trouble, err);

    if (found < 0)
        return -1;
    error_set(err, CODE_IO, "%s", found ? trouble.reason : "the job's time limit is near, or muster-ckptd is stuck");
    return 1;
}

int saver_wait_for_staged(struct saver *s, struct error *err)
{
    enum { ALL_ENDED, WAITING, NO_DRAINER, STOP }; /* by precedence */
    struct watched_drain drain = {0};

    for (;;) {
        double state = ALL_ENDED;
        bool left = s->stage->first && !ckpt_stage_is_empty(s->stage->handle);

        saver_poll(s);
        if (left && must_stop_waiting(s, &drain))
            state = STOP;
        else if (left)
            state =
                saver_stage_has_drainer(s->stage) || s->stage->restarts < SAVER_MOST_RESTARTS ? WAITING : NO_DRAINER;
        if (comm_max_f64(s->world, &state, 1, err) < 0)
            return -1;
        if (state == ALL_ENDED)
            break;
        if (state == STOP)
            return fail_waiting(s, err);
        if (state == NO_DRAINER)
            return error_set(err, CODE_IO, "muster-ckptd ended %d times on a node: nothing drains its stage",
                             SAVER_MOST_RESTARTS);
        clock_sleep(POLL_SECONDS);
    }
    saver_poll(s);
    return 0;
}

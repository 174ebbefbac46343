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
    FULL_SECONDS = 5,       /* if a stage has been full for so long, a run that stops gives up an older save; and if no
                         muster-ckptd drains it, no rank waits for room */
    UNCOMMITTED_AFTER = 15, /* after so long without a commit, log it when a save is postponed or dropped */
    UNCOMMITTED_EVERY = 60,
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

void saver_look_for_others(struct saver *s, uint64_t newest)
{
    /* Until this run has saved, any commit there comes from the run before it. */
    if (s->others_logged || s->last_save == UINT64_MAX || newest <= s->engine->step)
        return;
    saver_log(s,
              "%s has a checkpoint of step %" PRIu64 ", and this run is at step %" PRIu64
              ". Another job saves there, and each removes the other's checkpoints: stop one of them. (Or a lost node "
              "of an earlier run committed late.)",
              s->job->checkpoint.dir, newest, s->engine->step);
    s->others_logged = true;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static void report_end(struct saver *s, const struct ckpt_stage_news *news)
{
    switch (news->outcome) {
    case CKPT_COMMITTED:
        s->committed = news->step;
        s->committed_at = clock_monotonic();
        if (news->step == s->staged_step)
            saver_log(s, "checkpoint of step %" PRIu64 " saved in %.2f s, of which training waited %.3f s", news->step,
                      news->seconds, s->waited);
        else
            saver_log(s, "checkpoint of step %" PRIu64 " saved in %.2f s", news->step, news->seconds);
        saver_look_for_others(s, news->newest);
        break;
    case CKPT_SUPERSEDED:
        saver_log(s, "checkpoint of step %" PRIu64 " was superseded by a newer one", news->step);
        saver_look_for_others(s, news->newest);
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
    int done;

    if (!s->stage)
        return;
    done = saver_stage_supervise(s->stage, &err);
    if (done == SUPERVISE_KILLED)
        saver_log(s, "muster-ckptd made no progress for %.0f s and is restarted", s->stage->silent);
    else if (done != 0)
        saver_log(s, "%s", done > 0 ? "muster-ckptd had ended and was restarted" : err.text);
    if (saver_stage_is_copying(s->stage)) /* its commit is logged when it is known how long training waited */
        return;
    while (comm_rank(s->world) == 0 && ckpt_stage_poll(s->stage->handle, &news, &err) > 0)
        report_end(s, &news);
}

/* A save was put off or dropped: logs, at most once a minute, since when none was committed, and why. */
static void log_uncommitted(struct saver *s, const char *why)
{
    double now = clock_monotonic(), age = now - s->committed_at;
    uint64_t last = saver_committed(s);
    char since[64] = "in this run, which began";

    if (age < UNCOMMITTED_AFTER || (s->uncommitted_logged > 0 && now - s->uncommitted_logged < UNCOMMITTED_EVERY))
        return;
    s->uncommitted_logged = now;
    if (last != UINT64_MAX)
        snprintf(since, sizeof since, "since step %" PRIu64 ",", last);
    saver_log(s, "no checkpoint was committed %s %.0f s ago: %s", since, age,
              *why ? why : "earlier saves are still being drained");
}

/* On all ranks, the oldest save that a node has `found`: 1. `spare`, found by any node: those that may be given up come
 * first: 2. 0 if there is none. */
static int share_oldest(struct saver *s, bool found, bool spare, struct ckpt_stage_trouble *oldest, struct error *err)
{
    const double spares = 1ull << 52;
    int rank = comm_rank(s->world), size = comm_size(s->world);
    double own = !found ? -INFINITY : spare ? spares - (double)oldest->step : -1 - (double)oldest->step;
    double first = own, owner;

    comm_purpose(s->world, "oldest save", "that is not committed");
    if (comm_max_f64(s->world, &first, 1, err) < 0)
        return -1;
    owner = found && own == first ? size - rank : 0;
    if (comm_max_f64(s->world, &owner, 1, err) < 0)
        return -1;
    if (owner == 0)
        return 0;
    if (comm_broadcast(s->world, oldest, sizeof *oldest, size - (int)owner, err) < 0)
        return -1;
    return first > 0 ? 2 : 1;
}

/* 2: *oldest is the save that all nodes give up for a newer one. 1: none; *oldest is a save in trouble. 0: neither. */
static int find_oldest(struct saver *s, bool full, struct ckpt_stage_trouble *oldest, struct error *err)
{
    struct ckpt_stage *stage = s->stage->handle;
    bool urgent = s->stopping && s->full_since > 0 && clock_monotonic() - s->full_since > FULL_SECONDS;
    bool spare = s->stage->first && ckpt_stage_find_oldest(stage, !urgent, s->ending && full, oldest);
    bool found = spare || (s->stage->first && ckpt_stage_find_trouble(stage, oldest));

    return share_oldest(s, found, spare, oldest, err);
}

static void log_replaced(struct saver *s, const struct ckpt_stage_trouble *oldest)
{
    saver_log(s, "the checkpoint of step %" PRIu64 " is dropped to make room for that of step %" PRIu64 ": %s",
              oldest->step, s->engine->step, *oldest->reason ? oldest->reason : "the run stops");
    log_uncommitted(s, oldest->reason);
}

int saver_make_room(struct saver *s, bool wait, bool *proceed, struct error *err)
{
    struct ckpt_stage_trouble oldest = {0};

    for (*proceed = true; s->stage;) {
        double full = !ckpt_stage_has_room(s->stage->handle, comm_rank(s->world), comm_size(s->world));
        double values[3] = {full, 0, saver_stage_is_replacing(s->stage)};
        struct error mark_error;
        int found = 0, replaced = 0;

        if (full == 0 || s->full_since == 0)
            s->full_since = full > 0 ? clock_monotonic() : 0;
        values[1] = full > 0 && s->stage->first && clock_monotonic() - s->full_since > FULL_SECONDS &&
                    !saver_stage_has_drainer(s->stage);
        comm_purpose(s->world, "room", "for a checkpoint");
        if (comm_max_f64(s->world, values, 3, err) < 0)
            return -1;
        *proceed = values[0] == 0 || values[1] > 0;
        if (*proceed)
            return 0;
        if (values[2] == 0)
            found = find_oldest(s, full > 0, &oldest, err);
        if (found < 0)
            return -1;
        if (found == 2)
            replaced = saver_stage_replace(s->stage, &oldest, &mark_error);
        if (replaced < 0)
            saver_log(s, "%s", mark_error.text);
        else if (replaced > 0)
            log_replaced(s, &oldest);
        else if (values[2] == 0)
            log_uncommitted(s, found > 0 ? oldest.reason : "");
        if (!wait)
            return 0;
        saver_poll(s);
        clock_sleep(POLL_SECONDS);
    }
    return 0;
}

/* Whether to stop waiting: the drain has failed since *failing (0: it does not) for checkpoint.last_seconds, or the
 * job's time limit is near. */
static bool must_stop_waiting(struct saver *s, double *failing)
{
    const char *end = getenv("SLURM_JOB_END_TIME"); /* not everywhere */
    double left = end ? strtod(end, NULL) - clock_realtime() : HUGE_VAL, now = clock_monotonic();
    struct ckpt_stage_trouble trouble = {0};

    if (!ckpt_stage_find_trouble(s->stage->handle, &trouble))
        *failing = 0;
    else if (*failing == 0)
        *failing = now;
    /* If the end is long past, the job was extended or suspended, and the variable is out of date: ignore it. */
    return (left <= END_SECONDS && left > -EXTENDED_SECONDS) ||
           (*failing > 0 && now - *failing >= s->job->checkpoint.last_seconds && !trouble.draining);
}

static int fail_waiting(struct saver *s, struct error *err)
{
    struct ckpt_stage_trouble trouble = {0};
    bool mine = s->stage->first && ckpt_stage_find_trouble(s->stage->handle, &trouble);
    int found = share_oldest(s, mine, false, &trouble, err);

    if (found < 0)
        return -1;
    error_set(err, CODE_IO, "%s", found ? trouble.reason : "the job's time limit is near");
    return 1;
}

int saver_wait_for_staged(struct saver *s, struct error *err)
{
    enum { ALL_ENDED, WAITING, NO_DRAINER, STOP }; /* by precedence */
    double failing = 0;

    for (;;) {
        double state = ALL_ENDED;
        bool left = s->stage->first && !ckpt_stage_is_empty(s->stage->handle);

        saver_poll(s);
        if (left && must_stop_waiting(s, &failing))
            state = STOP;
        else if (left)
            state = saver_stage_has_drainer(s->stage) ? WAITING : NO_DRAINER;
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

#include "trainer/saver.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/crc32c.h"
#include "trainer/nodes.h"
#include "trainer/saver_stage.h"
#include "trainer/watch/recorder.h"

enum {
    LINE_SIZE = 1024,
    NAME_SIZE = CKPT_ATTEMPT_SIZE, /* of the stage's name; what ckpt_stage_open takes */
    UNDRAINED_SECONDS = 5,         /* without a muster-ckptd until no rank waits for it to make room */
    JOIN_SECONDS = 10,             /* for muster-ckptd to end */
    END_SECONDS = 10,              /* before the job's time limit, for the trainer to end */
    EXTENDED_SECONDS = 60,         /* after it, when the limit must have been extended */
};

#define POLL_SECONDS 0.02

struct saver {
    struct engine *engine;
    const struct job *job;
    struct comm *world;
    struct saver_events events;
    struct nodes nodes;
    struct saver_stage *stage; /* NULL: saves are written straight */
    /* the save that is due or under way; captured or copied, never both */
    bool due;                   /* since a step that is a multiple of checkpoint.every */
    bool put_off;               /* for want of room, and that was logged */
    bool is_captured;           /* its copy begins after the next step */
    struct ckpt_state captured; /* the state that engine_capture was called at */
    struct engine_part part;    /* while it is copied */
    double waited;              /* seconds that training waited for the copy */
    /* earlier saves: steps; UINT64_MAX: none */
    uint64_t resumed, saved, staged, committed;
    struct ckpt_stage_trouble dropped; /* the last that made room for a newer one */
    struct ckpt_stage_trouble suspect; /* the last that was found to be in the way */
    bool straight_logged, prune_logged, others_logged;
};

__attribute__((format(printf, 2, 3))) static void log_line(struct saver *s, const char *format, ...)
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

/* ---- straight to checkpoint.dir ---- */

static void log_straight(struct saver *s, const struct error *why)
{
    if (!s->straight_logged)
        log_line(s, "checkpoints are written straight to %s: %s", s->job->checkpoint.dir, why->text);
    s->straight_logged = true;
}

/* On rank 0. A checkpoint of a step that this run has not reached is another job's; they remove each other's. */
static void look_for_others(struct saver *s)
{
    uint64_t *steps = NULL;
    size_t count = 0;

    /* What is committed before this run's first save is of the run before it. */
    if (s->others_logged || s->saved == UINT64_MAX || comm_rank(s->world) != 0 ||
        ckpt_list(s->job->checkpoint.dir, &steps, &count, NULL) < 0)
        return;
    if (count > 0 && steps[0] > s->engine->step) {
        log_line(s,
                 "%s has a checkpoint of step %" PRIu64 ", and this run is at step %" PRIu64
                 ": another job saves there, and each removes the other's checkpoints: stop one of them (or a "
                 "node that an earlier run lost was late)",
                 s->job->checkpoint.dir, steps[0], s->engine->step);
        s->others_logged = true;
    }
    free(steps);
}

/* Old checkpoints that cannot be removed do not make a save fail. */
static void prune_old(struct saver *s)
{
    struct error err;

    if (comm_rank(s->world) != 0 ||
        ckpt_prune(s->job->checkpoint.dir, s->job->checkpoint.keep, (uint64_t)s->job->checkpoint.keep_every, &err) == 0)
        return;
    if (!s->prune_logged)
        log_line(s, "removing old checkpoints failed, and they stay: %s", err.text);
    s->prune_logged = true;
}

static int fail_save(uint64_t step, struct error *err)
{
    return error_prefix(err, "checkpoint of step %" PRIu64 " failed", step);
}

/* Saves what was captured, or the present state where that is NULL. */
static int save_straight(struct saver *s, const struct ckpt_state *captured, double started, struct error *err)
{
    uint64_t step = captured ? captured->step : s->engine->step;

    if (engine_save(s->engine, captured, err) < 0)
        return fail_save(step, err);
    s->saved = s->committed = step;
    s->staged = UINT64_MAX;
    log_line(s, "checkpoint of step %" PRIu64 " saved in %.2f s", step, clock_monotonic() - started);
    prune_old(s);
    look_for_others(s);
    return 0;
}

/* ---- what the stage does in the background ---- */

static void report_end(struct saver *s, const struct ckpt_stage_news *news)
{
    switch (news->outcome) {
    case CKPT_COMMITTED:
        s->committed = news->step;
        if (news->step == s->staged)
            log_line(s, "checkpoint of step %" PRIu64 " saved in %.2f s, of which training waited %.3f s", news->step,
                     news->seconds, s->waited);
        else
            log_line(s, "checkpoint of step %" PRIu64 " saved in %.2f s", news->step, news->seconds);
        look_for_others(s);
        break;
    case CKPT_SUPERSEDED:
        log_line(s, "checkpoint of step %" PRIu64 " was overtaken by a newer one", news->step);
        look_for_others(s);
        break;
    case CKPT_FAILED:
        log_line(s, "checkpoint of step %" PRIu64 " failed: %s; training goes on", news->step, news->reason);
        break;
    }
}

/* Not collective: restarts a muster-ckptd that was killed, and logs what became of earlier saves. */
static void poll_stage(struct saver *s)
{
    struct ckpt_stage_news news;
    struct error err;
    int restarted;

    if (!s->stage)
        return;
    restarted = saver_stage_supervise(s->stage, &err);
    if (restarted != 0)
        log_line(s, "%s", restarted > 0 ? "muster-ckptd had ended and was restarted" : err.text);
    if (saver_stage_is_copying(s->stage)) /* its commit is logged when it is known how long training waited */
        return;
    while (comm_rank(s->world) == 0 && ckpt_stage_poll(s->stage->ckpt, &news, &err) > 0)
        report_end(s, &news);
}

/* The oldest trouble of any node, on all ranks: 1; 0 if there is none. */
static int share_trouble(struct saver *s, bool holding, struct ckpt_stage_trouble *trouble, struct error *err)
{
    int rank = comm_rank(s->world), size = comm_size(s->world);
    bool troubled = s->stage->first && ckpt_stage_trouble(s->stage->ckpt, holding, trouble);
    double oldest = troubled ? -(double)trouble->step : -INFINITY, found;

    comm_purpose(s->world, "what", "keeps a checkpoint in memory");
    if (comm_max_f64(s->world, &oldest, 1, err) < 0)
        return -1;
    found = troubled && -(double)trouble->step == oldest ? size - rank : 0;
    if (comm_max_f64(s->world, &found, 1, err) < 0)
        return -1;
    if (found == 0)
        return 0;
    return comm_broadcast(s->world, trouble, sizeof *trouble, size - (int)found, err) < 0 ? -1 : 1;
}

static bool is_same(const struct ckpt_stage_trouble *a, const struct ckpt_stage_trouble *b)
{
    return a->step == b->step && strcmp(a->attempt, b->attempt) == 0;
}

/*
 * One save makes room, and the next only when that one has left all nodes: muster-ckptd sees the mark at different times
 * on different nodes. A save must be seen twice: the drainer may have ended the one that filled the stage meanwhile.
 */
static void drop_oldest(struct saver *s, const struct ckpt_stage_trouble *oldest)
{
    struct error err;
    bool again = is_same(&s->suspect, oldest);

    s->suspect = *oldest;
    if (!again || oldest->draining)
        return;
    if (s->stage->first && ckpt_stage_replace(s->stage->ckpt, oldest->step, oldest->attempt, &err) < 0)
        log_line(s, "%s", err.text);
    if (!is_same(&s->dropped, oldest))
        log_line(s, "the checkpoint of step %" PRIu64 " makes room for that of step %" PRIu64 ": %s", oldest->step,
                 s->engine->step, oldest->reason);
    s->dropped = *oldest;
}

/*
 * Whether the stage has room for a save, the same on all ranks. If not, and the target fails on some node, the oldest
 * save there is dropped. `wait`: until there is room, or no muster-ckptd to make some.
 */
static int make_room(struct saver *s, bool wait, bool *ready, struct error *err)
{
    struct ckpt_stage_trouble oldest = {0};
    double start = clock_monotonic();

    for (*ready = true; s->stage;) {
        double full = !ckpt_stage_ready(s->stage->ckpt, comm_rank(s->world), comm_size(s->world));
        double undrained = full > 0 && s->stage->first && clock_monotonic() - start > UNDRAINED_SECONDS &&
                           !saver_stage_is_drained(s->stage);
        bool pending = s->dropped.attempt[0] && ckpt_stage_has(s->stage->ckpt, s->dropped.step, s->dropped.attempt);
        double values[3] = {full, undrained, pending};
        int found = 0;

        comm_purpose(s->world, "room", "for a checkpoint");
        if (comm_max_f64(s->world, values, 3, err) < 0)
            return -1;
        *ready = values[0] == 0;
        if (*ready || values[1] > 0)
            return 0;
        if (values[2] == 0)
            found = share_trouble(s, true, &oldest, err);
        if (found < 0)
            return -1;
        if (found > 0)
            drop_oldest(s, &oldest);
        if (!wait)
            return 0;
        poll_stage(s);
        clock_sleep(POLL_SECONDS);
    }
    return 0;
}

/* Whether this node's drain has failed for too long; *failing: since when, 0: it does not fail. */
static bool is_late(struct saver *s, double *failing)
{
    const char *end = getenv("SLURM_JOB_END_TIME"); /* not everywhere */
    double left = end ? strtod(end, NULL) - clock_realtime() : HUGE_VAL, now = clock_monotonic();
    struct ckpt_stage_trouble trouble = {0};

    if (!ckpt_stage_trouble(s->stage->ckpt, false, &trouble))
        *failing = 0;
    else if (*failing == 0)
        *failing = now;
    /* Long past its end, the job was extended or suspended, which its environment does not tell. */
    return (left <= END_SECONDS && left > -EXTENDED_SECONDS) ||
           (*failing > 0 && now - *failing >= s->job->checkpoint.last_seconds && !trouble.draining);
}

static int fail_late(struct saver *s, struct error *err)
{
    struct ckpt_stage_trouble trouble = {0};
    int found = share_trouble(s, false, &trouble, err);

    if (found < 0)
        return -1;
    error_set(err, CODE_IO, "%s", found ? trouble.reason : "the job's time limit is near");
    return 1;
}

/* As saver_settle returns. In short operations, so that no watchdog takes this for a hang. */
static int wait_for_drain(struct saver *s, struct error *err)
{
    enum { DRAINED, DRAINING, UNDRAINED, LATE }; /* by precedence */
    double failing = 0;

    for (;;) {
        double state = DRAINED;
        struct error ignored;
        int result = s->stage->first ? ckpt_stage_wait(s->stage->ckpt, 0.05, &ignored) : 0;

        poll_stage(s);
        if (result != 0 && is_late(s, &failing))
            state = LATE;
        else if (result != 0)
            state = saver_stage_is_drained(s->stage) || s->stage->restarts < SAVER_MOST_RESTARTS ? DRAINING : UNDRAINED;
        if (comm_max_f64(s->world, &state, 1, err) < 0)
            return -1;
        if (state == DRAINED)
            break;
        if (state == LATE)
            return fail_late(s, err);
        if (state == UNDRAINED)
            return error_set(err, CODE_IO, "muster-ckptd ended %d times on a node: nothing drains its stage",
                             SAVER_MOST_RESTARTS);
        clock_sleep(POLL_SECONDS);
    }
    poll_stage(s);
    return 0;
}

/* ---- one save: begun, and ended when all ranks have copied ---- */

/* 0, and the copy goes on if there is a stage; -1 when the save has failed. */
static int begin_save(struct saver *s, struct error *err)
{
    const struct ckpt_state *captured = s->is_captured ? &s->captured : NULL;
    uint64_t step = captured ? captured->step : s->engine->step;
    double started = clock_monotonic();
    bool ready;

    s->is_captured = false;
    if (comm_rank(s->world) == 0)
        s->events.before_save(s->events.arg);
    recorder_phase("saving a checkpoint");
    if (!s->stage)
        return save_straight(s, captured, started, err);
    if (make_room(s, true, &ready, err) < 0) /* ckpt_stage_shard would wait too, but could not drop a save */
        return -1;
    started = clock_monotonic();
    if (engine_part_create(s->engine, captured, &s->part, err) < 0) {
        engine_part_destroy(&s->part);
        return fail_save(step, err);
    }
    saver_stage_copy(s->stage, &s->part.save, captured != NULL);
    s->waited = clock_monotonic() - started;
    return 0;
}

/* 1: on every rank. */
static int copies_are_over(struct saver *s, struct error *err)
{
    double going_on = !saver_stage_is_over(s->stage);

    comm_purpose(s->world, "copies", "of a checkpoint");
    if (comm_max_f64(s->world, &going_on, 1, err) < 0)
        return -1;
    return going_on == 0;
}

/* 0: staged on every rank; 1: not possible, *err says why; -1. */
static int end_copy(struct saver *s, struct error *err)
{
    int result = saver_stage_wait(s->stage, err);
    double worst = result < 0 ? 2 : result;
    struct error ignored;

    comm_purpose(s->world, "copies", "of a checkpoint");
    if (comm_max_f64(s->world, &worst, 1, err) < 0)
        return -1;
    if (worst == 0)
        return s->job->checkpoint.partner ? nodes_exchange(&s->nodes, s->stage->ckpt, &s->part.save, s->world, err) : 0;
    if (s->stage->first)
        ckpt_stage_drop(s->stage->ckpt, s->part.save.state.step, s->part.attempt, &ignored);
    if (comm_agree(s->world, result == 0 ? 0 : -1, err) == 0 || err->code == CODE_PEER)
        return -1;
    return worst == 1 ? 1 : -1;
}

/* The copy of that step did not get into the stage: the present state goes straight, unless that may be a bad one. */
static int save_instead(struct saver *s, uint64_t step, double started, struct error *err)
{
    log_straight(s, err);
    if (s->engine->step != step && s->engine->skipped_in_a_row > 0)
        return fail_save(step, err);
    return save_straight(s, NULL, started, err);
}

/* Nothing, unless all ranks' copies are over or `wait`. -1 when the save has failed. */
static int end_save(struct saver *s, bool wait, struct error *err)
{
    uint64_t step = s->part.save.state.step;
    double started = clock_monotonic();
    int result, over = 1;

    if (!saver_stage_is_copying(s->stage))
        return 0;
    recorder_phase("saving a checkpoint");
    if (!wait && (over = copies_are_over(s, err)) <= 0) {
        s->waited += clock_monotonic() - started;
        return over;
    }
    result = end_copy(s, err);
    if (result == 0)
        s->saved = s->staged = step;
    engine_part_destroy(&s->part);
    s->waited += clock_monotonic() - started;
    if (result < 0)
        return fail_save(step, err);
    return result == 0 ? 0 : save_instead(s, step, started, err);
}

static int save_now(struct saver *s, struct error *err)
{
    return begin_save(s, err) < 0 ? -1 : end_save(s, true, err);
}

/* A failed save is logged and training goes on: earlier checkpoints stand, and the next save tries again. */
static int tolerate_failure(struct saver *s, int result, struct error *err)
{
    recorder_phase(NULL);
    if (result == 0)
        return 0;
    if (err->code != CODE_IO && err->code != CODE_DATA)
        return -1;
    log_line(s, "%s; training goes on", err->text);
    return 0;
}

/* The save that is captured or copied, if there is one. */
static int save_rest(struct saver *s, struct error *err)
{
    if (tolerate_failure(s, end_save(s, true, err), err) < 0)
        return -1;
    return s->is_captured ? tolerate_failure(s, save_now(s, err), err) : 0;
}

/* ---- a saver's life ---- */

/*
 * "JOB.HOST.CHECKSUM": a job that comes back must find what it staged. Under Slurm it keeps its number, which the
 * epilog looks for too. The checksum is of the checkpoint directory, for runs without Slurm, and for several in one
 * job. The node, or what fits of its name, is part of it because tests run several nodes on one machine.
 */
static int name_stage(struct saver *s, const char *host, char name[static NAME_SIZE], struct error *err)
{
    const char *job = getenv("SLURM_JOB_ID");
    char path[4096];
    uint32_t where = 0;

    if (comm_rank(s->world) == 0 && realpath(s->job->checkpoint.dir, path))
        where = crc32c(0, path, strlen(path));
    if (comm_broadcast(s->world, &where, sizeof where, 0, err) < 0)
        return -1;
    snprintf(name, NAME_SIZE, "%.10s.%.44s.%08x", job && job[0] ? job : "run", host, (unsigned)where);
    return 0;
}

static void close_stage(struct saver *s, double seconds)
{
    if (s->stage)
        saver_stage_close(s->stage, seconds);
    s->stage = NULL;
}

/* Unless the run cannot go on: a rank is lost, or another release's stage is not to be touched. */
static int do_without(struct saver *s, struct error *err)
{
    if (err->code == CODE_PEER || err->code == CODE_CONFIG)
        return -1;
    log_straight(s, err);
    close_stage(s, 0);
    return 0;
}

/* The first rank of a node adopts what lies there, then its others open the stage. */
static int open_stage(struct saver *s, const char *host, struct error *err)
{
    int rank = comm_rank(s->world), cap = s->job->checkpoint.drain_mib;
    char name[NAME_SIZE];
    struct ckpt_stage_config config = {
        .root = s->job->checkpoint.stage,
        .job = name,
        .local = s->nodes.locals[s->nodes.of[rank]],
        .staged = s->job->checkpoint.staged,
        .keep = s->job->checkpoint.keep,
        .keep_every = (uint64_t)s->job->checkpoint.keep_every,
        .adopt = s->nodes.local[rank] == 0,
        .dir = s->job->checkpoint.dir,
    };

    if (name_stage(s, host, name, err) < 0)
        return -1;
    if (config.adopt)
        s->stage = saver_stage_open(&config, cap, err);
    if (comm_agree(s->world, config.adopt && !s->stage ? -1 : 0, err) < 0)
        return -1;
    if (!config.adopt)
        s->stage = saver_stage_open(&config, cap, err);
    return comm_agree(s->world, s->stage ? 0 : -1, err);
}

/* 0 when there is no stage, too. */
static int start_stage(struct saver *s, const char *hosts, size_t stride, struct error *err)
{
    int result;

    if (comm_agree(s->world, nodes_find(&s->nodes, hosts, stride, comm_size(s->world), err), err) < 0)
        return -1;
    result = open_stage(s, hosts + (size_t)comm_rank(s->world) * stride, err);
    if (result == 0)
        result = wait_for_drain(s, err);
    if (result > 0)
        log_line(s, "what an earlier run has staged is not drained, and is tried again while this one trains: %s",
                 err->text);
    return result >= 0 ? 0 : do_without(s, err);
}

struct saver *saver_create(struct engine *engine, const char *hosts, size_t stride, const struct saver_events *events,
                           struct error *err)
{
    struct saver *s = calloc(1, sizeof *s);

    if (comm_agree(engine->world, s ? 0 : error_set(err, CODE_IO, "out of memory for saving"), err) < 0) {
        free(s);
        return NULL;
    }
    *s = (struct saver){.engine = engine,
                        .job = engine->job,
                        .world = engine->world,
                        .events = *events,
                        .resumed = UINT64_MAX,
                        .saved = UINT64_MAX,
                        .staged = UINT64_MAX,
                        .committed = UINT64_MAX};
    recorder_phase("draining what was staged before");
    if (!s->job->checkpoint.dir[0] || !s->job->checkpoint.stage[0] || start_stage(s, hosts, stride, err) == 0)
        return s;
    saver_destroy(s);
    return NULL;
}

int saver_reserve(struct saver *s, bool resumed, struct error *err)
{
    struct engine_part part;
    int result;

    recorder_phase("reserving memory for checkpoints");
    if (resumed)
        s->resumed = s->engine->step;
    if (!s->stage || s->job->checkpoint.every == 0) /* a run that saves at its end need not hold the memory so long */
        return 0;
    result = engine_part_create(s->engine, NULL, &part, err);
    if (result == 0)
        result = ckpt_stage_reserve(s->stage->ckpt, &part.save, err) == 0 ? 0 : 1;
    engine_part_destroy(&part);
    if (result < 0)
        return -1;
    return comm_agree(s->world, result == 0 ? 0 : -1, err) == 0 ? 0 : do_without(s, err);
}

static bool is_saved(const struct saver *s)
{
    return s->saved == s->engine->step || s->resumed == s->engine->step;
}

/*
 * While steps are skipped a save is put off: what makes them bad may be the parameters, and checkpoints of those would
 * soon have replaced all that are good.
 */
static bool is_due(struct saver *s)
{
    long every = s->job->checkpoint.every;
    bool last = s->engine->step == (uint64_t)s->job->batch.steps; /* saved by saver_finish */

    if (every > 0 && s->job->checkpoint.dir[0] && s->engine->step % (uint64_t)every == 0)
        s->due = true;
    return s->due && !last && s->engine->skipped_in_a_row == 0;
}

/* Training does not wait for the drain: a save for which there is no room is put off. */
static int has_room(struct saver *s, bool *ready, struct error *err)
{
    if (make_room(s, false, ready, err) < 0)
        return -1;
    if (!*ready && !s->put_off)
        log_line(s, "the checkpoint due at step %" PRIu64 " waits until an earlier one is drained", s->engine->step);
    s->put_off = !*ready;
    return 0;
}

int saver_step(struct saver *s, struct error *err)
{
    bool ready;

    if (tolerate_failure(s, end_save(s, false, err), err) < 0)
        return -1;
    poll_stage(s);
    if (s->is_captured && tolerate_failure(s, begin_save(s, err), err) < 0) /* its transfer was hidden by this step */
        return -1;
    if (!is_due(s))
        return 0;
    if (tolerate_failure(s, end_save(s, true, err), err) < 0) /* a capture would change what it copies */
        return -1;
    if (has_room(s, &ready, err) < 0)
        return -1;
    if (!ready)
        return 0;
    s->due = false;
    if (is_saved(s)) /* by save_instead */
        return 0;
    s->is_captured = engine_capture(s->engine, &s->captured);
    return s->is_captured ? 0 : tolerate_failure(s, save_now(s, err), err);
}

int saver_settle(struct saver *s, struct error *err)
{
    int result;

    if (save_rest(s, err) < 0)
        return -1;
    recorder_phase("draining the last checkpoint");
    result = s->stage ? wait_for_drain(s, err) : 0;
    recorder_phase(NULL);
    return result;
}

/* If the last save was staged and not committed. It is not staged again, because nothing may drain it. */
static int save_again(struct saver *s, struct error *err)
{
    double failed = comm_rank(s->world) == 0 && s->staged != UINT64_MAX && s->committed != s->staged;

    if (comm_max_f64(s->world, &failed, 1, err) < 0)
        return -1;
    return failed > 0 ? save_straight(s, NULL, clock_monotonic(), err) : 0;
}

int saver_finish(struct saver *s, struct error *err)
{
    uint64_t step = s->engine->step;
    int result;

    if (save_rest(s, err) < 0)
        return -1;
    result = s->job->checkpoint.dir[0] && !is_saved(s) ? save_now(s, err) : 0;
    recorder_phase(NULL);
    if (result < 0 || !s->stage)
        return result;
    result = saver_settle(s, err);
    if (result > 0) { /* muster-ckptd tries once more when we have ended, as the epilog does */
        error_prefix(err,
                     "checkpoint of step %" PRIu64 " is not in %s: it stays in %s, and likewise on the other nodes",
                     step, s->job->checkpoint.dir, ckpt_stage_directory(s->stage->ckpt));
        close_stage(s, 0);
        return 1;
    }
    if (result < 0 && err->code == CODE_PEER)
        return fail_save(step, err);
    if (save_again(s, err) < 0)
        return -1;
    close_stage(s, JOIN_SECONDS); /* the end of the job step would kill it */
    return 0;
}

uint64_t saver_committed(const struct saver *s)
{
    return s->committed != UINT64_MAX ? s->committed : s->resumed;
}

void saver_destroy(struct saver *s)
{
    bool copying;

    if (!s)
        return;
    copying = saver_stage_is_copying(s->stage);
    saver_stage_destroy(s->stage); /* a copy that a failed run leaves is complete, or no program takes it for that */
    if (copying)
        engine_part_destroy(&s->part);
    nodes_free(&s->nodes);
    free(s);
}

/*
 * saver_drain.c - the trainer's side of staged saves: runs the muster-ckptd that drains the node's stage (ckpt/drain/),
 * reads what becomes of the saves, makes room for the next one, and waits until all are committed.
 */
#include "trainer/saver_impl.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/crc32c.h"
#include "trainer/programs.h"

enum {
    NAME_SIZE = CKPT_ATTEMPT_SIZE, /* of the stage's name; what ckpt_stage_open takes */
    LINE_SIZE = 1024,
    MOST_RESTARTS = 5, /* of a muster-ckptd that ends again and again */
    LONG_LIVED = 10,   /* seconds after a restart until `restarts` is 0 again */
    SILENT_SECONDS = 5,
    FULL_SECONDS = 5,       /* when the stage has been full this long, a stopping run gives up an older save. If no
                               muster-ckptd drains the stage, saves are written directly */
    UNCOMMITTED_AFTER = 15, /* after so long without a commit, log it when a save is postponed or dropped */
    UNCOMMITTED_EVERY = 60,
    END_SECONDS = 10,      /* stop waiting so long before the job's time limit, so that the trainer can end */
    EXTENDED_SECONDS = 60, /* if the limit has passed for so long, it must have been extended */
};

#define POLL_SECONDS 0.02

/* Logs what happens on one node, of which this is the first rank. */
static void log_of_node(struct saver *s, const char *format, ...)
{
    int rank = comm_rank(s->world);
    char line[LINE_SIZE];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (rank == 0) {
        run_log(s->run, "%s", line);
        return;
    }
    printf("rank %d on %s: %s\n", rank, s->run->locations[rank].host, line);
    fflush(stdout);
}

/* ---- the stage, and muster-ckptd --------------------------------------------------------------------------------- */

static int start_ckptd(struct saver *s, struct error *err)
{
    char cap[32];
    const char *stage = ckpt_stage_directory(s->stage);
    int mib = s->job->checkpoint.drain_mib; /* a second; 0: no limit */
    const char *arguments[] = {"--quiet", "--child", mib > 0 ? cap : stage, mib > 0 ? stage : NULL, NULL};

    if (s->ckptd.run > 0)
        close(s->ckptd.run);
    snprintf(cap, sizeof cap, "--cap=%d", mib);
    s->ckptd.run = program_start(&s->ckptd.pid, CKPTD, arguments, STDOUT_FILENO, err);
    return s->ckptd.run < 0 ? -1 : 0;
}

static bool is_running(struct saver *s)
{
    return program_is_running(&s->ckptd.pid);
}

static bool is_drainer_alive(struct saver *s)
{
    return (is_running(s) || ckpt_stage_has_drainer(s->stage)) && s->ckptd.silent < 3 * SILENT_SECONDS;
}

/* True while our muster-ckptd may still be restarted; or while it, or one of an earlier run, runs and moves. */
static bool has_drainer(struct saver *s)
{
    return s->ckptd.restarts < MOST_RESTARTS || is_drainer_alive(s);
}

/* For how long it has not moved, while this process did: a job may be suspended. */
static double count_silent(struct saver *s)
{
    struct saver_ckptd *ckptd = &s->ckptd;
    double now = clock_monotonic(), sign = ckpt_stage_updated(s->stage);

    if (sign != ckptd->sign) {
        ckptd->sign = sign;
        ckptd->silent = 0;
        ckptd->kill_at = SILENT_SECONDS;
    } else if (ckptd->looked > 0) {
        ckptd->silent += fmin(now - ckptd->looked, SILENT_SECONDS / 4.0);
    }
    ckptd->looked = now;
    return ckptd->silent;
}

/* Ours, or one of an earlier run. While a thread copies, ckpt_stage_drainer may not be called (shard_save_copy). */
static void kill_drainer(struct saver *s)
{
    int pid = is_running(s) ? s->ckptd.pid : s->shard_save.copying ? 0 : ckpt_stage_drainer(s->stage);

    ckpt_stage_kill_drainer(ckpt_stage_directory(s->stage), pid);
}

/*
 * Restarts a muster-ckptd that has ended, unless it did so too often after short lives. If none has moved for
 * SILENT_SECONDS, kills the one that runs, if any; a later call restarts it. It can be killed at any time: only its
 * child waits for the file system.
 */
static void supervise_ckptd(struct saver *s)
{
    struct saver_ckptd *ckptd = &s->ckptd;
    struct error err;

    if (!s->first)
        return;
    if (count_silent(s) >= ckptd->kill_at) {
        ckptd->kill_at = ckptd->silent + SILENT_SECONDS;
        kill_drainer(s);
        log_of_node(s, CKPTD " made no progress for %.0f s and is restarted", ckptd->silent);
        return;
    }
    if (is_drainer_alive(s))
        return;
    if (clock_monotonic() - ckptd->restarted > LONG_LIVED)
        ckptd->restarts = 0;
    if (ckptd->restarts == MOST_RESTARTS)
        return;
    ckptd->restarts++;
    ckptd->restarted = clock_monotonic();
    log_of_node(s, "%s", start_ckptd(s, &err) < 0 ? err.text : CKPTD " had ended and was restarted");
}

/*
 * "JOB.HOST.CHECKSUM": a job that comes back must find what it staged. Under Slurm it keeps its number, which the
 * epilog looks for too. The checksum is of the checkpoint directory, for runs without Slurm, and for several in one
 * job. The node, or what fits of its name, is part of it because tests run several nodes on one machine.
 */
static int name_stage(struct saver *s, char name[static NAME_SIZE], struct error *err)
{
    const char *job = getenv("SLURM_JOB_ID"), *host = s->run->locations[comm_rank(s->world)].host;
    char path[4096];
    uint32_t where = 0;

    if (comm_rank(s->world) == 0 && realpath(s->job->checkpoint.dir, path))
        where = crc32c(0, path, strlen(path));
    if (comm_broadcast(s->world, &where, sizeof where, 0, err) < 0)
        return -1;
    snprintf(name, NAME_SIZE, "%.10s.%.44s.%08x", job && job[0] ? job : "run", host, (unsigned)where);
    return 0;
}

void saver_close_stage(struct saver *s, double seconds)
{
    double end = clock_monotonic() + seconds;

    ckpt_stage_destroy(s->stage);
    s->stage = NULL;
    while (is_running(s) && clock_monotonic() < end)
        clock_sleep(0.01);
}

void saver_log_direct(struct saver *s, const struct error *why)
{
    if (!s->direct_logged)
        run_log(s->run, "checkpoints are written directly to %s: %s", s->job->checkpoint.dir, why->text);
    s->direct_logged = true;
}

int saver_do_without(struct saver *s, struct error *err)
{
    if (err->code == CODE_PEER || err->code == CODE_CONFIG)
        return -1;
    saver_log_direct(s, err);
    saver_close_stage(s, 0);
    return 0;
}

/* The first rank of a node opens the stage and begins a run in it; then the node's other ranks open it. */
static int open_on_node(struct saver *s, struct error *err)
{
    int rank = comm_rank(s->world), result = 0;
    char name[NAME_SIZE], root[JOB_PATH_SIZE];
    bool seen = job_stage_choose(s->job->checkpoint.stage, getenv(JOB_STAGE_VARIABLE), root);
    struct footprint bytes = rank_config_bytes(&s->engine->config);
    struct ckpt_stage_config config = {
        .root = root,
        .job = name,
        .local = s->run->nodes.locals[s->run->nodes.of[rank]],
        .process = footprint_of_host(&bytes, s->engine->config.device.is_host) + PROCESS_GROWTH,
        .max_staged = s->job->checkpoint.staged,
        .keep = s->job->checkpoint.keep,
        .keep_every = (uint64_t)s->job->checkpoint.keep_every,
        .first = s->run->nodes.local[rank] == 0,
    };

    if (!seen)
        run_log(s->run,
                "%s is not visible to slurmd; staged saves are lost if the job is killed. Set stage= (spank_muster(8))",
                root);
    if (name_stage(s, name, err) < 0)
        return -1;
    s->first = config.first;
    s->ckptd.kill_at = SILENT_SECONDS;
    if (s->first)
        result = (s->stage = ckpt_stage_open(&config, err)) ? start_ckptd(s, err) : -1;
    if (comm_agree(s->world, result, err) < 0)
        return -1;
    if (!s->first)
        s->stage = ckpt_stage_open(&config, err);
    return comm_agree(s->world, s->stage ? 0 : -1, err);
}

int saver_open_stage(struct saver *s, struct error *err)
{
    int result = open_on_node(s, err);

    if (result == 0)
        result = saver_wait_for_staged(s, err);
    if (result > 0)
        run_log(s->run,
                "saves that an earlier run staged are not drained yet; muster-ckptd tries again during training: %s",
                err->text);
    return result >= 0 ? 0 : saver_do_without(s, err);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

void saver_look_for_others(struct saver *s, uint64_t newest)
{
    /* Until this run has saved, any commit there comes from the run before it. */
    if (s->others_logged || s->last_save == UINT64_MAX || newest <= s->engine->step)
        return;
    run_log(s->run,
            "%s has a checkpoint of step %" PRIu64 ", and this run is at step %" PRIu64
            ". Another job saves there, and each removes the other's checkpoints: stop one of them. (Or a lost node "
            "of an earlier run committed late.)",
            s->job->checkpoint.dir, newest, s->engine->step);
    s->others_logged = true;
}

static void report_end(struct saver *s, const struct ckpt_save_status *news)
{
    switch (news->state) {
    case CKPT_COMMITTED:
        s->committed = news->step;
        s->committed_at = clock_monotonic();
        if (news->step == s->staged_step)
            run_log(s->run, "checkpoint of step %" PRIu64 " saved in %.2f s, of which training waited %.3f s",
                    news->step, news->ended - news->started, s->waited);
        else
            run_log(s->run, "checkpoint of step %" PRIu64 " saved in %.2f s", news->step, news->ended - news->started);
        saver_look_for_others(s, news->newest);
        break;
    case CKPT_SUPERSEDED:
        run_log(s->run, "checkpoint of step %" PRIu64 " was superseded by a newer one", news->step);
        saver_look_for_others(s, news->newest);
        break;
    default:
        if (s->dropped != UINT64_MAX && news->step <= s->dropped)
            break; /* drop_step has logged it */
        run_log(s->run, "checkpoint of step %" PRIu64 " failed: %s%s", news->step, news->reason,
                s->ending ? "" : "; training goes on");
        break;
    }
}

void saver_poll(struct saver *s)
{
    struct ckpt_save_status news;
    struct error err;

    if (!s->stage)
        return;
    supervise_ckptd(s);
    if (s->shard_save.copying) /* its commit is logged when it is known how long training waited */
        return;
    while (comm_rank(s->world) == 0 && ckpt_stage_poll(s->stage, &news, &err) > 0)
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
    run_log(s->run, "warning: no checkpoint was committed %s %.0f s ago: %s", since, age,
            *why ? why : "earlier saves are still being drained");
}

/* Gives all ranks the reason of the lowest rank that has one: 1, 0 if none has one, -1. */
static int share_reason(struct saver *s, bool have, const char *reason, struct error *err)
{
    struct error why;

    if (comm_agree(s->world, have ? error_set(&why, CODE_IO, "%s", reason) : 0, &why) == 0)
        return 0;
    *err = why;
    return why.code == CODE_IO ? 1 : -1;
}

/* The ranks' votes: each becomes the greatest of all ranks. */
enum {
    FULL,      /* the rank's stage has no room */
    UNDRAINED, /* full for long, without a muster-ckptd */
    DROPPING,  /* the node still has the save that was dropped last */
    OLDEST,    /* the step that the node can give up, negative */
    VOTES
};

/* Every node drops the saves of that step, for a newer one. */
static void drop_step(struct saver *s, uint64_t step, const char *why)
{
    struct error err;

    s->dropped = step;
    if (s->first && ckpt_stage_drop(s->stage, step, NULL, "a newer save needs its memory", &err) < 0)
        log_of_node(s, "%s", err.text);
    run_log(s->run, "the checkpoint of step %" PRIu64 " is dropped to make room for that of step %" PRIu64 ": %s", step,
            s->engine->step, *why ? why : "the run stops");
}

/* One round of saver_make_room. */
static int look_for_room(struct saver *s, bool *proceed, struct error *err)
{
    struct ckpt_stage *stage = s->stage;
    bool first = s->first, full = !ckpt_stage_has_room(stage, comm_rank(s->world), comm_size(s->world));
    double votes[VOTES] = {[FULL] = full, [OLDEST] = -INFINITY}, full_for;
    struct ckpt_save_status own = {0};
    uint64_t oldest = UINT64_MAX;
    bool spare, mine;
    int shared;

    if (!full || s->full_since == 0)
        s->full_since = full ? clock_monotonic() : 0;
    full_for = full ? clock_monotonic() - s->full_since : 0;
    spare = first && ckpt_stage_find_oldest(stage, s->engine->step, !(s->stopping && full_for > FULL_SECONDS),
                                            s->ending && full, &own);
    votes[UNDRAINED] = first && full_for > FULL_SECONDS && !has_drainer(s);
    votes[DROPPING] = s->dropped != UINT64_MAX && ckpt_stage_has(stage, s->dropped);
    if (spare)
        votes[OLDEST] = -(double)own.step;
    comm_purpose(s->world, "room", "for a checkpoint");
    if (comm_max_f64(s->world, votes, VOTES, err) < 0)
        return -1;
    *proceed = votes[FULL] == 0 || votes[UNDRAINED] > 0;
    if (*proceed || votes[DROPPING] > 0)
        return 0;
    if (votes[OLDEST] > -INFINITY)
        oldest = (uint64_t)-votes[OLDEST];
    mine = oldest == UINT64_MAX ? first && ckpt_stage_find_trouble(stage, &own) : spare && own.step == oldest;
    shared = share_reason(s, mine && own.reason[0], own.reason, err);
    if (shared < 0)
        return -1;
    if (oldest != UINT64_MAX && oldest == s->named)
        drop_step(s, oldest, shared ? err->text : "");
    s->named = oldest;
    log_uncommitted(s, shared ? err->text : "");
    return 0;
}

int saver_make_room(struct saver *s, bool wait, bool *proceed, struct error *err)
{
    *proceed = !s->stage;
    while (!*proceed) {
        if (look_for_room(s, proceed, err) < 0)
            return -1;
        if (*proceed || !wait)
            break;
        saver_poll(s);
        clock_sleep(POLL_SECONDS);
    }
    return 0;
}

/* Whether to stop waiting: the drain has failed for checkpoint.last_seconds, or the job's time limit is near. *failing
 * is kept between calls: when the drain began to fail; 0: it works. */
static bool must_stop_waiting(struct saver *s, double *failing)
{
    const char *end = getenv("SLURM_JOB_END_TIME"); /* not everywhere */
    double left = end ? strtod(end, NULL) - clock_realtime() : HUGE_VAL, now = clock_monotonic();
    struct ckpt_save_status trouble = {0};

    if (!ckpt_stage_find_trouble(s->stage, &trouble))
        *failing = 0;
    else if (*failing == 0)
        *failing = now;
    /* If the end is long past, the job was extended or suspended, and the variable is out of date: ignore it. */
    return (left <= END_SECONDS && left > -EXTENDED_SECONDS) ||
           (*failing > 0 && now - *failing >= s->job->checkpoint.last_seconds && trouble.state != CKPT_DRAINING);
}

/* Without the plugin's launcher, what hangs is in the step's cgroup. */
static void warn_of_hang(struct saver *s, const struct ckpt_save_status *trouble)
{
    if (trouble->state == CKPT_HANGING && getenv("SLURM_STEP_ID") && program_is_child(s->ckptd.pid))
        log_of_node(s,
                    "warning: a child of " CKPTD
                    " (process %d) waits for %s and may not be killable: Slurm then drains "
                    "this node %s after UnkillableStepTimeout; srun --muster prevents that (spank_muster(8))",
                    (int)s->ckptd.pid, trouble->dir, s->run->locations[comm_rank(s->world)].host);
}

static int fail_waiting(struct saver *s, struct error *err)
{
    struct ckpt_save_status trouble = {0};
    bool mine = s->first && ckpt_stage_find_trouble(s->stage, &trouble);
    int shared = share_reason(s, mine, trouble.reason, err);

    if (mine)
        warn_of_hang(s, &trouble);
    if (shared == 0)
        error_set(err, CODE_IO, "the job's time limit is near");
    return shared < 0 ? -1 : 1;
}

int saver_wait_for_staged(struct saver *s, struct error *err)
{
    enum { ALL_ENDED, WAITING, NO_DRAINER, STOP }; /* by precedence */
    double failing = 0;

    for (;;) {
        double state = ALL_ENDED;
        bool left = s->first && !ckpt_stage_is_empty(s->stage);

        saver_poll(s);
        if (left && must_stop_waiting(s, &failing))
            state = STOP;
        else if (left)
            state = has_drainer(s) ? WAITING : NO_DRAINER;
        if (comm_max_f64(s->world, &state, 1, err) < 0)
            return -1;
        if (state == ALL_ENDED)
            break;
        if (state == STOP)
            return fail_waiting(s, err);
        if (state == NO_DRAINER)
            return error_set(err, CODE_IO, "muster-ckptd ended %d times on a node: nothing drains its stage",
                             MOST_RESTARTS);
        clock_sleep(POLL_SECONDS);
    }
    saver_poll(s);
    return 0;
}

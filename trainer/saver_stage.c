/*
 * saver_stage.c - the trainer's side of staged saves: runs the muster-ckptd that drains the node's stage (ckpt/drain/),
 * reads what becomes of the saves, makes room for the next one, and waits until all are committed.
 */
#include "trainer/saver_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "trainer/programs.h"

enum {
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
    char line[1024];
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

/* checkpoint.drain_mib as an option; without a limit one that changes nothing. */
static const char *cap_option(const struct saver *s, char cap[static 32])
{
    snprintf(cap, 32, "--cap=%d", s->job->checkpoint.drain_mib);
    return s->job->checkpoint.drain_mib > 0 ? cap : "--child";
}

static int start_ckptd(struct saver *s, struct error *err)
{
    char cap[32];
    const char *const arguments[] = {"--quiet", "--child", cap_option(s, cap), ckpt_stage_directory(s->stage), NULL};

    if (s->ckptd.input > 0)
        close(s->ckptd.input);
    s->ckptd.input = program_start(&s->ckptd.pid, CKPTD, arguments, STDOUT_FILENO, err);
    return s->ckptd.input < 0 ? -1 : 0;
}

/* As the epilog does, but for as long as this run lasts. */
static int start_earlier(struct saver *s, const struct ckpt_stage_config *config, struct error *err)
{
    struct ckpt_stage_name *names;
    size_t count;
    char cap[32];

    if (ckpt_stage_earlier(config, &names, &count, err) < 0)
        return -1;
    s->earlier = error_calloc(count + 1, sizeof *s->earlier, err);
    for (size_t i = 0; s->earlier && i < count; i++) {
        struct saver_earlier *one = &s->earlier[s->nearlier++];
        const char *const arguments[] = {"--child", "--once", "--partner", cap_option(s, cap), one->path, NULL};

        snprintf(one->path, sizeof one->path, "%s/%s", config->root, names[i].name);
        one->input = program_start(&one->pid, CKPTD, arguments, STDOUT_FILENO, err);
        if (one->input < 0)
            log_of_node(s, "%s is not drained: %s", one->path, err->text);
    }
    free(names);
    return s->earlier ? 0 : -1;
}

/* The first stage of an earlier run that is still being drained, or NULL. */
static struct saver_earlier *find_earlier(struct saver *s)
{
    for (size_t i = 0; i < s->nearlier; i++)
        if (program_is_running(&s->earlier[i].pid))
            return &s->earlier[i];
    return NULL;
}

static bool is_running(struct saver *s)
{
    return program_is_running(&s->ckptd.pid);
}

static bool is_drainer_alive(struct saver *s)
{
    return is_running(s) && s->ckptd.still.seconds < 3 * SILENT_SECONDS;
}

/* True while muster-ckptd may still be restarted, or runs and moves. */
static bool has_drainer(struct saver *s)
{
    return s->ckptd.restarts < MOST_RESTARTS || is_drainer_alive(s);
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
    if (standstill_look(&ckptd->still, ckpt_stage_updated(s->stage)) == 0)
        ckptd->kill_at = SILENT_SECONDS;
    if (ckptd->still.seconds >= ckptd->kill_at) {
        ckptd->kill_at = ckptd->still.seconds + SILENT_SECONDS;
        ckpt_stage_kill_drainer(ckpt_stage_directory(s->stage), is_running(s) ? s->ckptd.pid : 0);
        log_of_node(s, CKPTD " made no progress for %.0f s and is restarted", ckptd->still.seconds);
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
static int name_stage(struct saver *s, char name[static CKPT_ATTEMPT_SIZE], struct error *err)
{
    const char *job = getenv("SLURM_JOB_ID"), *host = s->run->locations[comm_rank(s->world)].host;
    char path[4096];
    uint32_t where = 0;

    if (comm_rank(s->world) == 0 && realpath(s->job->checkpoint.dir, path))
        where = crc32c(0, path, strlen(path));
    if (comm_broadcast(s->world, &where, sizeof where, 0, err) < 0)
        return -1;
    snprintf(name, CKPT_ATTEMPT_SIZE, "%.10s.%.44s.%08x", job && job[0] ? job : "run", host, (unsigned)where);
    return 0;
}

void saver_close_stage(struct saver *s, double seconds)
{
    double end = clock_monotonic() + seconds;

    ckpt_stage_destroy(s->stage);
    s->stage = NULL;
    for (; s->nearlier > 0; s->nearlier--)
        if (s->earlier[s->nearlier - 1].input >= 0)
            close(s->earlier[s->nearlier - 1].input);
    free(s->earlier);
    s->earlier = NULL;
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

/* Waits for what earlier runs have staged. Then the first rank of a node opens the stage, and after it the others. */
static int open_on_node(struct saver *s, struct error *err)
{
    int rank = comm_rank(s->world), result = 0;
    char name[CKPT_ATTEMPT_SIZE], root[JOB_PATH_SIZE];
    bool seen = job_stage_choose(s->job->checkpoint.stage, getenv(JOB_STAGE_VARIABLE), root);
    struct footprint bytes = rank_config_bytes(&s->engine->config);
    struct ckpt_stage_config config = {
        .root = root,
        .job = name,
        .run = s->run->id,
        .local = s->run->nodes.locals[s->run->nodes.of[rank]],
        .process = footprint_of_host(&bytes, s->engine->config.device.is_host) + PROCESS_GROWTH,
        .max_staged = s->job->checkpoint.staged,
        .keep = s->job->checkpoint.keep,
        .keep_every = (uint64_t)s->job->checkpoint.keep_every,
    };

    if (!seen)
        run_log(s->run,
                "%s is not visible to slurmd; staged saves are lost if the job is killed. Set stage= (spank_muster(8))",
                root);
    if (name_stage(s, name, err) < 0)
        return -1;
    s->first = s->run->nodes.local[rank] == 0;
    s->ckptd.kill_at = SILENT_SECONDS;
    if (s->first)
        result = start_earlier(s, &config, err);
    if (comm_agree(s->world, result, err) < 0 || (result = saver_wait_for_staged(s, err)) < 0)
        return -1;
    if (result > 0)
        run_log(s->run,
                "saves that an earlier run staged are not drained yet; muster-ckptd tries again during training: %s",
                err->text);
    result = 0;
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
    return open_on_node(s, err) == 0 ? 0 : saver_do_without(s, err);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

void saver_look_for_others(struct saver *s, uint64_t newest)
{
    if (s->others_logged || newest <= s->engine->step)
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
        run_metrics_saved(s->run, news->step, news->ended - news->started);
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
                s->moment == SAVER_TRAINING ? "; training goes on" : "");
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
    char since[64] = "in this run, which began";

    if (age < UNCOMMITTED_AFTER || (s->uncommitted_logged > 0 && now - s->uncommitted_logged < UNCOMMITTED_EVERY))
        return;
    s->uncommitted_logged = now;
    if (s->committed != UINT64_MAX)
        snprintf(since, sizeof since, "since step %" PRIu64 ",", s->committed);
    run_log(s->run, "warning: no checkpoint was committed %s %.0f s ago: %s", since, age,
            *why ? why : "earlier saves are still being drained");
}

/* Gives all ranks the reason of the lowest rank that has one: 1, 0 if none has one, -1. */
static int share_reason(struct saver *s, bool have, const char *reason, struct error *err)
{
    if (comm_agree(s->world, have ? error_set(err, CODE_IO, "%s", reason) : 0, err) == 0)
        return 0;
    return err->code == CODE_IO ? 1 : -1;
}

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

/* The save that this node can give up, or the one that it still has of those given up last. */
static bool find_oldest(struct saver *s, double full_for, struct ckpt_save_status *oldest)
{
    bool slow = s->moment == SAVER_STOPPING && full_for > FULL_SECONDS;

    if (s->dropped == UINT64_MAX || !ckpt_stage_has(s->stage, s->dropped))
        return ckpt_stage_find_oldest(s->stage, s->engine->step, !slow, s->moment != SAVER_TRAINING && full_for > 0,
                                      oldest);
    *oldest = (struct ckpt_save_status){.step = s->dropped};
    return true;
}

/* One look of saver_make_room: first at the saves, then at the memory, which is free when a save is gone. */
static int look_for_room(struct saver *s, bool *proceed, struct error *err)
{
    enum { FULL = 1, UNDRAINED }; /* full for long, without a muster-ckptd */
    double full_for = s->full_since > 0 ? clock_monotonic() - s->full_since : 0;
    struct ckpt_save_status own = {0};
    bool spare = s->first && find_oldest(s, full_for, &own), mine;
    bool full = !ckpt_stage_has_room(s->stage, comm_rank(s->world), comm_size(s->world));
    double votes[2] = {full, spare ? -(double)own.step : -INFINITY}; /* each becomes the greatest of all ranks */
    uint64_t oldest;
    int shared;

    if (!full || s->full_since == 0)
        s->full_since = full ? clock_monotonic() : 0;
    if (s->first && full && full_for > FULL_SECONDS && !has_drainer(s))
        votes[0] = UNDRAINED;
    comm_purpose(s->world, "room", "for a checkpoint");
    if (comm_max_f64(s->world, votes, 2, err) < 0)
        return -1;
    *proceed = votes[0] != FULL;
    oldest = votes[1] > -INFINITY ? (uint64_t)-votes[1] : UINT64_MAX;
    if (*proceed || (oldest != UINT64_MAX && oldest == s->dropped))
        return 0;
    mine = oldest == UINT64_MAX ? s->first && ckpt_stage_find_trouble(s->stage, &own) : spare && own.step == oldest;
    shared = share_reason(s, mine && own.reason[0], own.reason, err);
    if (shared < 0)
        return -1;
    if (oldest != UINT64_MAX)
        drop_step(s, oldest, shared ? err->text : "");
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

/* What cannot be completed at present: in the stage; before it is open, in one of an earlier run. */
static bool find_trouble(struct saver *s, struct ckpt_save_status *trouble)
{
    const struct saver_earlier *earlier = s->stage ? NULL : find_earlier(s);

    return earlier ? ckpt_stage_stands_still(earlier->path, trouble)
                   : s->stage && ckpt_stage_find_trouble(s->stage, trouble);
}

/* Whether to stop waiting: the drain has failed for checkpoint.last_seconds, or the job's time limit is near. *failing
 * is kept between calls: when the drain began to fail; 0: it works. */
static bool must_stop_waiting(struct saver *s, double *failing)
{
    const char *end = getenv("SLURM_JOB_END_TIME"); /* not everywhere */
    double left = end ? strtod(end, NULL) - clock_realtime() : HUGE_VAL, now = clock_monotonic();
    struct ckpt_save_status trouble = {0};

    if (!find_trouble(s, &trouble))
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
    const struct saver_earlier *earlier = s->stage ? NULL : find_earlier(s);
    int pid = earlier ? earlier->pid : s->ckptd.pid;

    if (trouble->state == CKPT_HANGING && getenv("SLURM_STEP_ID") && program_is_child(pid))
        log_of_node(s,
                    "warning: a child of " CKPTD
                    " (process %d) waits for %s and may not be killable: Slurm then drains "
                    "this node %s after UnkillableStepTimeout; srun --muster prevents that (spank_muster(8))",
                    pid, trouble->dir, s->run->locations[comm_rank(s->world)].host);
}

static int fail_waiting(struct saver *s, struct error *err)
{
    struct ckpt_save_status trouble = {0};
    bool mine = s->first && find_trouble(s, &trouble);
    int shared = share_reason(s, mine && trouble.reason[0], trouble.reason, err);

    if (mine)
        warn_of_hang(s, &trouble);
    if (shared == 0)
        error_set(err, CODE_IO, "the job's time limit is near%s", s->stage ? "" : ", or that run has not ended");
    return shared < 0 ? -1 : 1;
}

int saver_wait_for_staged(struct saver *s, struct error *err)
{
    enum { ALL_ENDED, WAITING, NO_DRAINER, STOP }; /* by precedence */
    double failing = 0;

    for (;;) {
        double state = ALL_ENDED;
        bool left = s->stage ? s->first && !ckpt_stage_is_empty(s->stage) : find_earlier(s) != NULL;

        saver_poll(s);
        if (left && must_stop_waiting(s, &failing))
            state = STOP;
        else if (left)
            state = !s->stage || has_drainer(s) ? WAITING : NO_DRAINER;
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

/* saver.c - the order of a save: due, a snapshot, copied into the stage, or written directly; and a saver's life. */
#include "trainer/saver_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/crc32c.h"
#include "trainer/watch/recorder.h"

enum {
    NAME_SIZE = CKPT_ATTEMPT_SIZE, /* of the stage's name; what ckpt_stage_open takes */
    JOIN_SECONDS = 10,             /* for muster-ckptd to end */
};

/* ---- directly to checkpoint.dir ---- */

static void log_direct(struct saver *s, const struct error *why)
{
    if (!s->direct_logged)
        run_log(s->run, "checkpoints are written directly to %s: %s", s->job->checkpoint.dir, why->text);
    s->direct_logged = true;
}

/* Old checkpoints that cannot be removed do not make a save fail. */
static void prune_old(struct saver *s)
{
    struct error err;

    if (comm_rank(s->world) != 0 ||
        ckpt_prune(s->job->checkpoint.dir, s->job->checkpoint.keep, (uint64_t)s->job->checkpoint.keep_every, &err) == 0)
        return;
    if (!s->prune_logged)
        run_log(s->run, "removing old checkpoints failed: %s", err.text);
    s->prune_logged = true;
}

static int fail_save(uint64_t step, struct error *err)
{
    return error_prefix(err, "checkpoint of step %" PRIu64 " failed", step);
}

/* The run has made the directory when it began. It is not made again: its file system may not be mounted, and a save
 * would be hidden under the mount point. */
static int check_directory(struct saver *s, struct error *err)
{
    const char *dir = s->job->checkpoint.dir;
    int result = access(dir, F_OK) < 0 ? error_errno(err, CODE_IO, "%s: it existed before", dir) : 0;

    return comm_agree(s->world, result, err);
}

/* This run must still own the directory, and its metrics must not be older than the checkpoint. */
static int prepare_save(struct saver *s, struct error *err)
{
    struct run *run = s->run;
    int result = run_claim_check(run, err);

    if (result == 0 && run->metrics && metrics_sync(run->metrics, err) < 0)
        run_log(run, "metrics may lack steps up to this checkpoint: %s", err->text);
    return comm_agree(s->world, result, err);
}

/* Saves the snapshot, or the present state where that is NULL. */
static int save_directly(struct saver *s, const struct ckpt_progress *snapshot, double started, struct error *err)
{
    uint64_t step = snapshot ? snapshot->step : s->engine->step, *steps = NULL;
    size_t count = 0;

    if (check_directory(s, err) < 0 || engine_save(s->engine, snapshot, err) < 0)
        return fail_save(step, err);
    s->last_save = s->committed = step;
    s->committed_at = clock_monotonic();
    s->staged_step = UINT64_MAX;
    run_log(s->run, "checkpoint of step %" PRIu64 " saved in %.2f s", step, clock_monotonic() - started);
    prune_old(s);
    if (comm_rank(s->world) == 0 && ckpt_list(s->job->checkpoint.dir, &steps, &count, NULL) == 0 && count > 0)
        saver_look_for_others(s, steps[0]);
    free(steps);
    return 0;
}

/* ---- one save: begun, and ended when all ranks have copied ---- */

/*
 * 0: the copy into the stage has begun, and end_save ends it; or, without a stage, the save is committed; or the stage
 * has no room, and the save is due again: its snapshot is dropped. -1: the save has failed.
 */
static int begin_save(struct saver *s, struct error *err)
{
    const struct ckpt_progress *snapshot = s->has_snapshot ? &s->snapshot : NULL;
    uint64_t step = snapshot ? snapshot->step : s->engine->step;
    double started = clock_monotonic();
    bool proceed;

    s->has_snapshot = false;
    recorder_phase("saving a checkpoint");
    if (prepare_save(s, err) < 0)
        return -1;
    if (!s->stage)
        return save_directly(s, snapshot, started, err);
    /* *proceed is true when all nodes have room, or when a full node has no muster-ckptd. In the second case
     * ckpt_stage_shard returns 1, and the save is written directly. The last save waits; others do not, though there
     * may have been a step since try_make_room. */
    if (saver_make_room(s, s->ending, &proceed, err) < 0)
        return -1;
    if (!proceed) {
        s->due = true;
        return 0;
    }
    started = clock_monotonic();
    if (shard_save_create(s->engine, snapshot, &s->shard_save, err) < 0) {
        shard_save_destroy(&s->shard_save);
        return fail_save(step, err);
    }
    shard_save_copy(&s->shard_save, s->stage->handle, snapshot != NULL);
    s->waited = clock_monotonic() - started;
    return 0;
}

/* 1 when the copies of all ranks are complete, 0 when not, -1. */
static int copies_are_done(struct saver *s, struct error *err)
{
    double going_on = !atomic_load(&s->shard_save.copied);

    comm_purpose(s->world, "copy status", "of a checkpoint");
    if (comm_max_f64(s->world, &going_on, 1, err) < 0)
        return -1;
    return going_on == 0;
}

/* 0: staged on every rank; 1: not possible, *err says why; -1. */
static int end_copy(struct saver *s, struct error *err)
{
    int result = shard_save_wait(&s->shard_save, err);
    double worst = result < 0 ? 2 : result;
    struct error ignored;

    comm_purpose(s->world, "copy status", "of a checkpoint");
    if (comm_max_f64(s->world, &worst, 1, err) < 0)
        return -1;
    if (worst == 0)
        return s->job->checkpoint.partner
                   ? nodes_exchange(&s->run->nodes, s->stage->handle, &s->shard_save.save, s->world, err)
                   : 0;
    if (s->stage->first)
        ckpt_stage_drop(s->stage->handle, s->shard_save.save.state.step, s->shard_save.attempt, "", &ignored);
    /* Gives all ranks the error of a rank that failed. */
    if (comm_agree(s->world, result == 0 ? 0 : -1, err) == 0 || err->code == CODE_PEER)
        return -1;
    return worst == 1 ? 1 : -1;
}

/* Staging that step has failed. Writes the present state directly to checkpoint.dir instead, but not while steps are
 * skipped: its parameters may be bad. */
static int save_present_instead(struct saver *s, uint64_t step, double started, struct error *err)
{
    log_direct(s, err);
    if (s->engine->step != step && s->engine->skipped_in_a_row > 0)
        return fail_save(step, err);
    return save_directly(s, NULL, started, err);
}

/* Does nothing while some rank still copies, unless `wait`. -1 when the save has failed. */
static int end_save(struct saver *s, bool wait, struct error *err)
{
    uint64_t step = s->shard_save.save.state.step;
    double started = clock_monotonic();
    int result, over = 1;

    if (!s->shard_save.copying)
        return 0;
    recorder_phase("saving a checkpoint");
    if (!wait && (over = copies_are_done(s, err)) <= 0) {
        s->waited += clock_monotonic() - started;
        return over;
    }
    result = end_copy(s, err);
    if (result == 0)
        s->last_save = s->staged_step = step;
    shard_save_destroy(&s->shard_save);
    s->waited += clock_monotonic() - started;
    if (result < 0)
        return fail_save(step, err);
    return result == 0 ? 0 : save_present_instead(s, step, started, err);
}

static int save_now(struct saver *s, struct error *err)
{
    return begin_save(s, err) < 0 ? -1 : end_save(s, true, err);
}

/* Logs a failed save and continues: earlier checkpoints are intact, and the next save tries again. */
static int tolerate_failure(struct saver *s, int result, struct error *err)
{
    recorder_phase(NULL);
    if (result == 0)
        return 0;
    if (err->code != CODE_IO && err->code != CODE_DATA)
        return -1;
    run_log(s->run, "%s%s", err->text, s->ending ? "" : "; training goes on");
    return 0;
}

/* Completes the save that has a snapshot, or whose copy is under way, if there is one. */
static int save_rest(struct saver *s, struct error *err)
{
    if (tolerate_failure(s, end_save(s, true, err), err) < 0)
        return -1;
    return s->has_snapshot ? tolerate_failure(s, save_now(s, err), err) : 0;
}

/* ---- a saver's life ---- */

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

static void close_stage(struct saver *s, double seconds)
{
    saver_stage_close(s->stage, seconds);
    s->stage = NULL;
}

/* Continues without a stage; -1 if the run cannot go on: a rank is lost, or the stage has another release's files. */
static int do_without(struct saver *s, struct error *err)
{
    if (err->code == CODE_PEER || err->code == CODE_CONFIG)
        return -1;
    log_direct(s, err);
    close_stage(s, 0);
    return 0;
}

/* The first rank of a node opens the stage and begins a run in it; then the node's other ranks open it. */
static int open_stage(struct saver *s, struct error *err)
{
    int rank = comm_rank(s->world), cap = s->job->checkpoint.drain_mib;
    char name[NAME_SIZE], root[JOB_PATH_SIZE];
    bool seen = job_stage_choose(s->job->checkpoint.stage, getenv(JOB_STAGE_VARIABLE), root);
    struct ckpt_stage_config config = {
        .root = root,
        .job = name,
        .local = s->run->nodes.locals[s->run->nodes.of[rank]],
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
    if (config.first)
        s->stage = saver_stage_open(&config, cap, err);
    if (comm_agree(s->world, config.first && !s->stage ? -1 : 0, err) < 0)
        return -1;
    if (!config.first)
        s->stage = saver_stage_open(&config, cap, err);
    return comm_agree(s->world, s->stage ? 0 : -1, err);
}

/* 0 also if the run continues without a stage. */
static int start_stage(struct saver *s, struct error *err)
{
    int result = open_stage(s, err);

    if (result == 0)
        result = saver_wait_for_staged(s, err);
    if (result > 0)
        run_log(s->run,
                "saves that an earlier run staged are not drained yet; muster-ckptd tries again during training: %s",
                err->text);
    return result >= 0 ? 0 : do_without(s, err);
}

struct saver *saver_create(struct run *run, struct error *err)
{
    struct saver *s = calloc(1, sizeof *s);

    if (comm_agree(run->world, s ? 0 : error_set(err, CODE_IO, "out of memory for saving"), err) < 0) {
        free(s);
        return NULL;
    }
    *s = (struct saver){.run = run,
                        .engine = run->engine,
                        .job = run->job,
                        .world = run->world,
                        .committed_at = clock_monotonic(),
                        .named = UINT64_MAX,
                        .dropped = UINT64_MAX,
                        .resumed = UINT64_MAX,
                        .last_save = UINT64_MAX,
                        .staged_step = UINT64_MAX,
                        .committed = UINT64_MAX};
    recorder_phase("draining saves of an earlier run");
    if (!s->job->checkpoint.dir[0] || !s->job->checkpoint.stage[0] || start_stage(s, err) == 0)
        return s;
    saver_destroy(s);
    return NULL;
}

int saver_reserve(struct saver *s, bool resumed, struct error *err)
{
    struct shard_save own;
    int result;

    recorder_phase("reserving memory for checkpoints");
    if (resumed)
        s->resumed = s->engine->step;
    if (!s->stage || s->job->checkpoint.every == 0) /* a run that saves at its end need not hold the memory so long */
        return 0;
    result = shard_save_create(s->engine, NULL, &own, err);
    if (result == 0)
        result = ckpt_stage_reserve(s->stage->handle, &own.save, err) == 0 ? 0 : 1;
    shard_save_destroy(&own);
    if (result < 0)
        return -1;
    return comm_agree(s->world, result == 0 ? 0 : -1, err) == 0 ? 0 : do_without(s, err);
}

static bool is_step_saved(const struct saver *s)
{
    return s->last_save == s->engine->step || s->resumed == s->engine->step;
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

/* Training does not wait for the drain: a save without room is postponed. */
static int try_make_room(struct saver *s, bool *proceed, struct error *err)
{
    if (saver_make_room(s, false, proceed, err) < 0)
        return -1;
    if (!*proceed && !s->put_off)
        run_log(s->run, "the checkpoint due at step %" PRIu64 " waits until an earlier one is drained",
                s->engine->step);
    s->put_off = !*proceed;
    return 0;
}

int saver_step(struct saver *s, struct error *err)
{
    bool proceed;

    if (tolerate_failure(s, end_save(s, false, err), err) < 0)
        return -1;
    saver_poll(s);
    if (s->has_snapshot && tolerate_failure(s, begin_save(s, err), err) < 0) /* its transfer was hidden by this step */
        return -1;
    if (!is_due(s))
        return 0;
    /* A new snapshot would overwrite the buffer that a running copy reads. */
    if (tolerate_failure(s, end_save(s, true, err), err) < 0)
        return -1;
    if (try_make_room(s, &proceed, err) < 0)
        return -1;
    if (!proceed)
        return 0;
    s->due = false;
    if (is_step_saved(s)) /* by save_present_instead */
        return 0;
    s->has_snapshot = engine_snapshot(s->engine, &s->snapshot);
    return s->has_snapshot ? 0 : tolerate_failure(s, save_now(s, err), err);
}

int saver_settle(struct saver *s, struct error *err)
{
    int result;

    if (save_rest(s, err) < 0)
        return -1;
    recorder_phase("draining the last checkpoint");
    result = s->stage ? saver_wait_for_staged(s, err) : 0;
    recorder_phase(NULL);
    return result;
}

/*
 * Saves once more if the last staged save was not committed. Without the stage: there may be no muster-ckptd to drain
 * it.
 */
static int save_uncommitted(struct saver *s, struct error *err)
{
    double failed = comm_rank(s->world) == 0 && s->staged_step != UINT64_MAX && s->committed != s->staged_step;

    if (comm_max_f64(s->world, &failed, 1, err) < 0)
        return -1;
    if (failed == 0)
        return 0;
    return prepare_save(s, err) < 0 ? -1 : save_directly(s, NULL, clock_monotonic(), err);
}

int saver_finish(struct saver *s, bool stopping, struct error *err)
{
    uint64_t step = s->engine->step;
    int result;

    s->ending = true;
    s->stopping = stopping;
    if (save_rest(s, err) < 0)
        return -1;
    result = s->job->checkpoint.dir[0] && !is_step_saved(s) ? save_now(s, err) : 0;
    recorder_phase(NULL);
    if (result < 0 || !s->stage)
        return result;
    result = saver_settle(s, err);
    if (result > 0) { /* muster-ckptd tries once more when we have ended, as the epilog does */
        error_prefix(err, "checkpoint of step %" PRIu64 " is not in %s; every node keeps its shards in %s", step,
                     s->job->checkpoint.dir, ckpt_stage_directory(s->stage->handle));
        close_stage(s, 0);
        return 1;
    }
    if (result < 0 && err->code == CODE_PEER)
        return fail_save(step, err);
    if (save_uncommitted(s, err) < 0)
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
    if (!s)
        return;
    shard_save_destroy(&s->shard_save);
    close_stage(s, 0);
    free(s);
}

/* saver.c - the order of a save: due, a snapshot, a copy into the stage; and a saver's life. */
#include "trainer/saver_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "trainer/report/prometheus.h"
#include "trainer/watch/recorder.h"

enum { JOIN_SECONDS = 10 }; /* for muster-ckptd to end */

/* ---- one save: begun, and ended when all ranks have copied ---- */

/* This run must still own the directory, and its metrics must not be older than the checkpoint. */
static int prepare_save(struct saver *s, struct error *err)
{
    struct run *run = s->run;
    int result;

    recorder_phase("checking the claim");
    result = run_claim_check(run, err);
    recorder_phase("flushing the metrics");
    if (result == 0)
        run_metrics_sync(run);
    recorder_phase("saving a checkpoint");
    return comm_agree(s->world, result, err);
}

/*
 * 0: the copy has begun (complete_save ends it); or, without a stage, the save is committed; or there is no room: the
 * snapshot is dropped, and the save is due again. -1: the save has failed.
 */
static int begin_save(struct saver *s, struct error *err)
{
    const struct ckpt_progress *snapshot = s->has_snapshot ? &s->snapshot : NULL;
    uint64_t step = snapshot ? snapshot->step : s->engine->step;
    double started = clock_monotonic();
    bool proceed;

    s->has_snapshot = false;
    if (prepare_save(s, err) < 0)
        return -1;
    if (!s->stage)
        return saver_save_directly(s, snapshot, started, err);
    /* A run's last save waits for room. Others do not: the room that try_make_room found a step ago may be gone, and
     * then the save is due again. */
    if (saver_make_room(s, s->moment != SAVER_TRAINING, &proceed, err) < 0)
        return -1;
    if (!proceed) {
        s->begun = 0;
        return 0;
    }
    started = clock_monotonic();
    if (shard_save_create(s->engine, snapshot, &s->shard_save, err) < 0) {
        shard_save_destroy(&s->shard_save);
        return saver_name_failed(step, err);
    }
    shard_save_copy(&s->shard_save, s->stage, snapshot != NULL);
    s->waited = clock_monotonic() - started;
    return 0;
}

/* 1 when the copies of all ranks are complete, 0 when not, -1. */
static int copies_are_done(struct saver *s, struct error *err)
{
    double going_on = !atomic_load(&s->shard_save.copied);

    comm_purpose(s->world, "copy status", "of a checkpoint");
    return comm_max_f64(s->world, &going_on, 1, err) < 0 ? -1 : going_on == 0;
}

/* 0: staged on every rank; 1: not possible, *err says why; -1. */
static int end_copy(struct saver *s, struct error *err)
{
    int result = shard_save_wait(&s->shard_save, err);
    double worst = result < 0 ? 2 : result;

    comm_purpose(s->world, "copy status", "of a checkpoint");
    if (comm_max_f64(s->world, &worst, 1, err) < 0)
        return -1;
    if (worst == 0)
        return s->job->checkpoint.partner ? nodes_exchange(&s->run->nodes, s->stage, &s->shard_save.save, s->world, err)
                                          : 0;
    if (s->first)
        ckpt_stage_drop(s->stage, s->shard_save.save.state.step, s->shard_save.attempt, "", NULL);
    comm_agree(s->world, result == 0 ? 0 : -1, err); /* the error of a rank that failed, on all ranks */
    return worst == 1 && err->code != CODE_PEER ? 1 : -1;
}

/* Staging that step has failed. Writes the present state directly to checkpoint.dir instead, but not while steps are
 * skipped: its parameters may be bad. */
static int save_present_instead(struct saver *s, uint64_t step, double started, struct error *err)
{
    saver_log_direct(s, err);
    if (s->engine->step != step && s->engine->skipped_in_a_row > 0)
        return saver_name_failed(step, err);
    return saver_save_directly(s, NULL, started, err);
}

/* Does nothing while some rank still copies, unless `wait`. -1 when the save has failed. */
static int complete_save(struct saver *s, bool wait, struct error *err)
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
        return saver_name_failed(step, err);
    return result == 0 ? 0 : save_present_instead(s, step, started, err);
}

static int save_now(struct saver *s, struct error *err)
{
    return begin_save(s, err) < 0 ? -1 : complete_save(s, true, err);
}

/* Logs a failed save and continues: earlier checkpoints are intact, and the next save tries again. */
static int tolerate_failure(struct saver *s, int result, struct error *err)
{
    recorder_phase(NULL);
    if (result == 0)
        return 0;
    if (err->code != CODE_IO && err->code != CODE_DATA)
        return -1;
    run_log(s->run, "%s%s", err->text, s->moment == SAVER_TRAINING ? "; training goes on" : "");
    return 0;
}

/* Completes the save that has a snapshot, or whose copy is under way, if there is one. */
static int save_rest(struct saver *s, struct error *err)
{
    if (tolerate_failure(s, complete_save(s, true, err), err) < 0)
        return -1;
    return s->has_snapshot ? tolerate_failure(s, save_now(s, err), err) : 0;
}

/* ---- a saver's life ---- */

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
                        .dropped = UINT64_MAX,
                        .last_save = UINT64_MAX,
                        .staged_step = UINT64_MAX,
                        .committed = UINT64_MAX};
    recorder_phase("draining saves of an earlier run");
    if (!s->job->checkpoint.dir[0] || !s->job->checkpoint.stage[0] || saver_open_stage(s, err) == 0)
        return s;
    saver_destroy(s);
    return NULL;
}

int saver_reserve(struct saver *s, bool resumed, struct error *err)
{
    struct shard_save own;
    int result;

    recorder_phase("reserving memory for checkpoints");
    s->begun = s->engine->step;
    if (resumed)
        s->last_save = s->committed = s->engine->step;
    if (!s->stage || s->job->checkpoint.every == 0) /* a run that saves at its end need not hold the memory so long */
        return 0;
    result = shard_save_create(s->engine, NULL, &own, err);
    if (result == 0)
        result = ckpt_stage_reserve(s->stage, &own.save, err) == 0 ? 0 : 1;
    shard_save_destroy(&own);
    if (result < 0)
        return -1;
    return comm_agree(s->world, result == 0 ? 0 : -1, err) == 0 ? 0 : saver_do_without(s, err);
}

/*
 * While steps are skipped a save is put off: what makes them bad may be the parameters, and checkpoints of those would
 * soon have replaced all that are good.
 */
static bool is_due(struct saver *s)
{
    uint64_t every = (uint64_t)s->job->checkpoint.every, step = s->engine->step;
    bool last = step == (uint64_t)s->job->batch.steps; /* saved by saver_finish */

    return every > 0 && s->job->checkpoint.dir[0] && step / every * every > s->begun && !last &&
           s->engine->skipped_in_a_row == 0;
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

static int save_if_due(struct saver *s, struct error *err)
{
    bool proceed;

    if (tolerate_failure(s, complete_save(s, false, err), err) < 0)
        return -1;
    saver_poll(s);
    if (s->has_snapshot && tolerate_failure(s, begin_save(s, err), err) < 0) /* its transfer was hidden by this step */
        return -1;
    if (!is_due(s))
        return 0;
    /* A new snapshot would overwrite the buffer that a running copy reads. */
    if (tolerate_failure(s, complete_save(s, true, err), err) < 0)
        return -1;
    if (try_make_room(s, &proceed, err) < 0)
        return -1;
    if (!proceed)
        return 0;
    s->begun = s->engine->step;
    if (s->last_save == s->engine->step) /* by save_present_instead */
        return 0;
    /* If the state is in memory of the device's own: the copy to the host begins, and overlaps the next step. */
    s->snapshot = shard_save_progress(s->engine);
    s->has_snapshot = zero_snapshot(s->engine->zero);
    return s->has_snapshot ? 0 : tolerate_failure(s, save_now(s, err), err);
}

int saver_step(struct saver *s, struct error *err)
{
    double started = clock_monotonic();
    int result;

    recorder_base("saving a checkpoint");
    result = save_if_due(s, err);
    recorder_base("reporting");
    s->waited_in_all += clock_monotonic() - started;
    return result;
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
    return prepare_save(s, err) < 0 ? -1 : saver_save_directly(s, NULL, clock_monotonic(), err);
}

int saver_finish(struct saver *s, bool stopping, struct error *err)
{
    uint64_t step = s->engine->step;
    int result;

    s->moment = stopping ? SAVER_STOPPING : SAVER_LAST;
    if (save_rest(s, err) < 0)
        return -1;
    result = s->job->checkpoint.dir[0] && s->last_save != step ? save_now(s, err) : 0;
    recorder_phase(NULL);
    if (result < 0 || !s->stage)
        return result;
    result = saver_settle(s, err);
    if (result > 0) { /* muster-ckptd tries once more when we have ended, as the epilog does */
        error_prefix(err, "checkpoint of step %" PRIu64 " is not in %s; every node keeps its shards in %s", step,
                     s->job->checkpoint.dir, ckpt_stage_directory(s->stage));
        saver_close_stage(s, 0);
        return 1;
    }
    if (result < 0 && err->code == CODE_PEER)
        return saver_name_failed(step, err);
    if (save_uncommitted(s, err) < 0)
        return -1;
    saver_close_stage(s, JOIN_SECONDS); /* the end of the job step would kill it */
    return 0;
}

uint64_t saver_committed(const struct saver *s)
{
    return s->committed;
}

void saver_describe(const struct saver *s, struct prometheus *values)
{
    bool any = s->committed != UINT64_MAX;

    values->waited = s->waited_in_all;
    values->committed = any ? clock_realtime() - (clock_monotonic() - s->committed_at) : NAN;
    values->committed_step = any ? (double)s->committed : NAN;
    values->staged = values->left = NAN;
    if (s->stage)
        ckpt_stage_memory(s->stage, &values->staged, &values->left);
}

void saver_destroy(struct saver *s)
{
    if (!s)
        return;
    shard_save_destroy(&s->shard_save);
    saver_close_stage(s, 0);
    free(s);
}

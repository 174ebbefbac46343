/* saver_direct.c - a save without a stage: all ranks write to checkpoint.dir, and rank 0 commits. */
#include "trainer/saver_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

enum { COMMIT_SECONDS = 60 }; /* how long a network filesystem may take to show other nodes' files */

/* All shards are written; a network filesystem may show them here a little later. */
static int commit_written(const struct ckpt_save *save, struct error *err)
{
    for (int tries = 0;; tries++) {
        int committed = ckpt_commit(save->dir, save->state.step, save->attempt, err);

        if (committed != 0) /* but maybe by another job that saves here */
            return committed < 0 ? -1 : ckpt_check_owner(save, err);
        if (tries >= COMMIT_SECONDS * 10)
            return error_set(err, CODE_IO,
                             "%s: step %" PRIu64 ": other ranks' shards did not become visible here in %d seconds: "
                             "is it on a file system that all nodes share?",
                             save->dir, save->state.step, COMMIT_SECONDS);
        clock_sleep(0.1);
    }
}

/*
 * If a rank fails, the attempt is removed: otherwise its files would keep a full disk full. It is removed only after
 * comm_sum_f64 has succeeded: then every rank has stopped writing. A failure of comm_agree does not imply that, since a
 * rank may have been lost.
 */
static int write_shards(struct engine *e, const struct ckpt_save *save, struct error *err)
{
    int result = ckpt_write_shard(save, err);
    double failed = result < 0;

    if (comm_sum_f64(e->world, &failed, 1, err) < 0)
        return -1;
    if (failed > 0 && comm_rank(e->world) == 0) /* why the save failed is what counts */
        ckpt_remove_attempt(save->dir, save->state.step, save->attempt, NULL);
    return comm_agree(e->world, result, err);
}

int engine_save(struct engine *e, const struct ckpt_progress *snapshot, struct error *err)
{
    struct shard_save own;
    int result = 0;

    if (shard_save_create(e, snapshot, &own, err) < 0 || write_shards(e, &own.save, err) < 0) {
        shard_save_destroy(&own);
        return -1;
    }
    if (comm_rank(e->world) == 0)
        result = commit_written(&own.save, err);
    shard_save_destroy(&own);
    return comm_agree(e->world, result, err);
}

/* Old checkpoints that cannot be removed do not make a save fail. */
static void prune_directly(struct saver *s)
{
    struct error err;

    if (comm_rank(s->world) != 0 ||
        ckpt_prune(s->job->checkpoint.dir, s->job->checkpoint.keep, (uint64_t)s->job->checkpoint.keep_every, &err) == 0)
        return;
    if (!s->prune_logged)
        run_log(s->run, "removing old checkpoints failed: %s", err.text);
    s->prune_logged = true;
}

int saver_name_failed(uint64_t step, struct error *err)
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

int saver_save_directly(struct saver *s, const struct ckpt_progress *snapshot, double started, struct error *err)
{
    uint64_t step = snapshot ? snapshot->step : s->engine->step, *steps = NULL;
    size_t count = 0;
    double seconds;

    if (check_directory(s, err) < 0 || engine_save(s->engine, snapshot, err) < 0)
        return saver_name_failed(step, err);
    s->last_save = s->committed = step;
    s->committed_at = clock_monotonic();
    s->staged_step = UINT64_MAX;
    seconds = s->committed_at - started;
    run_metrics_saved(s->run, step, seconds);
    run_log(s->run, "checkpoint of step %" PRIu64 " saved in %.2f s", step, seconds);
    prune_directly(s);
    if (comm_rank(s->world) == 0 && ckpt_list(s->job->checkpoint.dir, &steps, &count, NULL) == 0 && count > 0)
        saver_look_for_others(s, steps[0]);
    free(steps);
    return 0;
}

/* save.c - a rank's shard in a save: its copy into the stage, and a save that is written directly to checkpoint.dir. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/thread.h"
#include "trainer/engine.h"

enum { COMMIT_SECONDS = 60 }; /* how long a network filesystem may take to show other nodes' files */

/* A name for this save that no other attempt at the same step has, the same on every rank. */
static int attempt_name(struct engine *e, char name[static CKPT_ATTEMPT_SIZE], struct error *err)
{
    memset(name, 0, CKPT_ATTEMPT_SIZE);
    snprintf(name, CKPT_ATTEMPT_SIZE, "%" PRIx64 "-%x", (uint64_t)(clock_realtime() * 1e9), (unsigned)getpid());
    ckpt_claim_attempt(name, e->claim);
    return comm_broadcast(e->world, name, CKPT_ATTEMPT_SIZE, 0, err);
}

static struct ckpt_progress present_state(const struct engine *e)
{
    return (struct ckpt_progress){.step = e->step,
                                  .consumed_samples = e->consumed_samples,
                                  .seed = e->job->batch.seed,
                                  .skipped_steps = e->skipped_steps,
                                  .skipped_in_a_row = e->skipped_in_a_row,
                                  .loss_scale = e->loss_scale.scale,
                                  .loss_scale_good_steps = e->loss_scale.good_steps,
                                  .loss_scale_hysteresis = e->loss_scale.hysteresis_left,
                                  .loss_mean = e->spike.mean,
                                  .loss_count = e->spike.count,
                                  .dp = e->config.mesh.dp,
                                  .tp = e->config.mesh.tp,
                                  .pp = e->config.mesh.pp,
                                  .zero = e->job->parallel.zero};
}

/* This rank's save, without its pieces and their addresses. */
static struct ckpt_save describe_save(const struct engine *e, const struct ckpt_progress *snapshot, const char *attempt)
{
    return (struct ckpt_save){
        .dir = e->job->checkpoint.dir,
        .attempt = attempt,
        .shard = comm_rank(e->world),
        .shards = comm_size(e->world),
        .tensors = e->units->tensors,
        .ntensors = e->units->ntensors,
        .kinds = zero_kinds,
        .nkinds = ZERO_KINDS,
        .job_text = e->job_text,
        .state = snapshot ? *snapshot : present_state(e),
    };
}

bool engine_snapshot(struct engine *e, struct ckpt_progress *snapshot)
{
    *snapshot = present_state(e);
    return zero_snapshot(e->zero);
}

int shard_save_create(struct engine *e, const struct ckpt_progress *snapshot, struct shard_save *own, struct error *err)
{
    struct ckpt_piece *pieces = NULL;
    void **addresses = NULL;
    int result;

    *own = (struct shard_save){.save = describe_save(e, snapshot, own->attempt)};
    device_wait(e->dev);
    result = zero_pieces(e->zero, snapshot ? ZERO_SAVE_SNAPSHOT : ZERO_SAVE_PRESENT, &pieces, &addresses,
                         &own->save.npieces, err);
    own->save.pieces = result < 0 ? NULL : pieces;
    own->save.sources = result < 0 ? NULL : (const void *const *)addresses;
    if (comm_agree(e->world, result, err) < 0)
        return -1;
    return attempt_name(e, own->attempt, err);
}

void shard_save_destroy(struct shard_save *own)
{
    struct error ignored;

    if (own->copying)
        shard_save_wait(own, &ignored);
    free((void *)own->save.pieces);
    free((void *)own->save.sources);
    *own = (struct shard_save){0};
}

static void *copy_shard(void *arg)
{
    struct shard_save *own = arg;

    own->result = ckpt_stage_shard(own->stage, &own->save, &own->error);
    atomic_store(&own->copied, true);
    return NULL;
}

void shard_save_copy(struct shard_save *own, struct ckpt_stage *stage, bool in_thread)
{
    own->stage = stage;
    own->copying = true;
    atomic_store(&own->copied, false);
    own->threaded = in_thread && thread_start(&own->thread, copy_shard, own) == 0;
    if (!own->threaded)
        copy_shard(own);
}

int shard_save_wait(struct shard_save *own, struct error *err)
{
    if (own->threaded)
        pthread_join(own->thread, NULL);
    own->copying = false;
    if (own->result != 0)
        *err = own->error;
    return own->result;
}

/* All shards are written; a network filesystem may show them here a little later. */
static int commit_shards(const struct ckpt_save *save, struct error *err)
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
    struct error sum_error;

    if (comm_sum_f64(e->world, &failed, 1, &sum_error) < 0) {
        *err = sum_error;
        return -1;
    }
    if (failed > 0 && comm_rank(e->world) == 0) {
        struct error ignored; /* why the save failed is what counts */

        ckpt_remove_attempt(save->dir, save->state.step, save->attempt, &ignored);
    }
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
        result = commit_shards(&own.save, err);
    shard_save_destroy(&own);
    return comm_agree(e->world, result, err);
}

/* saver_shard.c - this rank's shard in a save, and its copy into the stage. */
#include "trainer/saver_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/thread.h"

/* A name for this save that no other attempt at the same step has, the same on every rank. */
static int attempt_name(struct engine *e, char name[static CKPT_ATTEMPT_SIZE], struct error *err)
{
    memset(name, 0, CKPT_ATTEMPT_SIZE);
    snprintf(name, CKPT_ATTEMPT_SIZE, "%" PRIx64 "-%x", (uint64_t)(clock_realtime() * 1e9), (unsigned)getpid());
    ckpt_claim_attempt(name, e->claim);
    return comm_broadcast(e->world, name, CKPT_ATTEMPT_SIZE, 0, err);
}

struct ckpt_progress shard_save_progress(const struct engine *e)
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

int shard_save_create(struct engine *e, const struct ckpt_progress *snapshot, struct shard_save *own, struct error *err)
{
    struct ckpt_piece *pieces;
    void **addresses;
    int result;

    *own = (struct shard_save){.save = {.dir = e->job->checkpoint.dir,
                                        .attempt = own->attempt,
                                        .shard = comm_rank(e->world),
                                        .shards = comm_size(e->world),
                                        .tensors = e->units->tensors,
                                        .ntensors = e->units->ntensors,
                                        .kinds = zero_kinds,
                                        .nkinds = ZERO_KINDS,
                                        .job_text = e->job_text,
                                        .state = snapshot ? *snapshot : shard_save_progress(e)}};
    device_wait(e->dev);
    result = zero_pieces(e->zero, snapshot ? ZERO_SAVE_SNAPSHOT : ZERO_SAVE_PRESENT, &pieces, &addresses,
                         &own->save.npieces, err);
    own->save.pieces = pieces;
    own->save.sources = (const void *const *)addresses;
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

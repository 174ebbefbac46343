/* save.c - a rank's part of a save, and a save that is written straight to checkpoint.dir. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "trainer/engine.h"

enum { COMMIT_SECONDS = 60 }; /* how long a network filesystem may take to show other nodes' files */

/* A name for this save that no other attempt at the same step has, the same on every rank. */
static int attempt_name(struct engine *e, char *name, size_t size, struct error *err)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    memset(name, 0, size);
    snprintf(name, size, "%" PRIx64 "-%x", (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
             (unsigned)getpid());
    return comm_broadcast(e->world, name, size, 0, err);
}

static struct ckpt_state state_of(const struct engine *e)
{
    return (struct ckpt_state){.step = e->step,
                               .consumed_samples = e->consumed_samples,
                               .seed = e->job->batch.seed,
                               .skipped_steps = e->skipped_steps,
                               .skipped_in_a_row = e->skipped_in_a_row,
                               .loss_scale = e->loss_scale.scale,
                               .loss_scale_good_steps = e->loss_scale.good_steps,
                               .loss_scale_hysteresis = e->loss_scale.hysteresis_left,
                               .loss_mean = e->spike.mean,
                               .loss_count = e->spike.count,
                               .dp = e->mesh.dp,
                               .tp = e->mesh.tp,
                               .pp = e->mesh.pp,
                               .zero = e->job->parallel.zero};
}

/* This rank's save, but for its pieces. */
static struct ckpt_save describe_save(const struct engine *e, const struct ckpt_state *captured, const char *attempt)
{
    return (struct ckpt_save){
        .dir = e->job->checkpoint.dir,
        .attempt = attempt,
        .shard = comm_rank(e->world),
        .shards = comm_size(e->world),
        .tensors = e->config->units->tensors,
        .ntensors = e->config->units->ntensors,
        .kinds = zero_kinds,
        .nkinds = ZERO_KINDS,
        .job_text = e->job->text,
        .state = captured ? *captured : state_of(e),
    };
}

bool engine_capture(struct engine *e, struct ckpt_state *captured)
{
    *captured = state_of(e);
    return zero_capture(e->zero);
}

int engine_part_create(struct engine *e, const struct ckpt_state *captured, struct engine_part *part, struct error *err)
{
    struct ckpt_piece *pieces = NULL;
    void **addresses = NULL;
    int result;

    *part = (struct engine_part){.save = describe_save(e, captured, part->attempt)};
    device_wait(e->dev);
    result = zero_pieces(e->zero, true, &pieces, &addresses, &part->save.npieces, err);
    part->save.pieces = result < 0 ? NULL : pieces;
    part->save.sources = result < 0 ? NULL : (const void *const *)addresses;
    if (comm_agree(e->world, result, err) < 0)
        return -1;
    return attempt_name(e, part->attempt, sizeof part->attempt, err);
}

void engine_part_destroy(struct engine_part *part)
{
    free((void *)part->save.pieces);
    free((void *)part->save.sources);
}

/* All shards are written; a network filesystem may show them here a little later. */
static int commit_shards(const struct ckpt_save *save, struct error *err)
{
    for (int tries = 0;; tries++) {
        int committed = ckpt_commit(save->dir, save->state.step, save->attempt, err);

        if (committed != 0) /* but maybe by another job that saves here */
            return committed < 0 ? -1 : ckpt_check_committed(save, err);
        if (tries >= COMMIT_SECONDS * 10)
            return error_set(err, CODE_IO,
                             "%s: step %" PRIu64 ": other ranks' shards did not become visible here in %d seconds: "
                             "is it on a file system that all nodes share?",
                             save->dir, save->state.step, COMMIT_SECONDS);
        clock_sleep(0.1);
    }
}

/*
 * Every rank's shard, or no attempt at all: what some have written would fill a full disk for good. The sum says that
 * no rank is writing any more, which a failed comm_agree does not: a rank may have been lost.
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

        ckpt_abandon(save->dir, save->state.step, save->attempt, &ignored);
    }
    return comm_agree(e->world, result, err);
}

int engine_save(struct engine *e, const struct ckpt_state *captured, struct error *err)
{
    struct engine_part part;
    int result = 0;

    if (engine_part_create(e, captured, &part, err) < 0 || write_shards(e, &part.save, err) < 0) {
        engine_part_destroy(&part);
        return -1;
    }
    if (comm_rank(e->world) == 0)
        result = commit_shards(&part.save, err);
    engine_part_destroy(&part);
    return comm_agree(e->world, result, err);
}

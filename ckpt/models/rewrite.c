#include "ckpt/models/rewrite.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ckpt/file/workers.h"
#include "ckpt/models/units.h"
#include "ckpt/read/checkpoint.h"
#include "ckpt/write/attempt.h"
#include "common/clock.h"

#define SHARDS_AT_ONCE 2 /* so that one is read while the other is written */

struct rewrite_run {
    const struct rewrite *rewrite;
    struct units *units; /* the whole model */
    char attempt[CKPT_ATTEMPT_SIZE];
    struct workers_progress progress; /* bytes */
};

/* One shard: what ckpt_write_shard's source is asked with. */
struct shard_source {
    struct rewrite_run *writing;
    const struct ckpt_piece *pieces;
    size_t npieces;
    struct ckpt_piece *parts; /* [npieces] scratch */
};

static int source_read(void *arg, size_t kind, uint64_t first, uint64_t count, float *to, struct error *err)
{
    const struct shard_source *source = arg;
    struct rewrite_run *writing = source->writing;
    const struct rewrite *r = writing->rewrite;
    size_t nparts = pieces_cut(source->pieces, source->npieces, first, count, source->parts);

    if (r->read(r->arg, writing->units->tensors, writing->units->ntensors, kind, source->parts, nparts, to, err) < 0)
        return -1;
    workers_progress_add(&writing->progress, count * 4);
    return 0;
}

static int write_shard(void *arg, int worker, size_t shard, struct error *err)
{
    struct rewrite_run *writing = arg;
    const struct rewrite *r = writing->rewrite;
    struct ckpt_piece *pieces = NULL;
    struct shard_source source = {.writing = writing};
    struct ckpt_save save = {
        .dir = r->dir,
        .shard = (int)shard,
        .shards = mesh_world(&r->to.mesh),
        .tensors = writing->units->tensors,
        .ntensors = writing->units->ntensors,
        .kinds = r->kinds,
        .nkinds = r->nkinds,
        .source = source_read,
        .source_arg = &source,
        .state = r->state,
        .job_text = r->job_text,
        .attempt = writing->attempt,
    };
    int result = -1;

    (void)worker;
    if (units_rank_pieces(&r->shape, &r->to.mesh, r->to.chunks, (int)shard, &pieces, &save.npieces, err) == 0)
        source.parts = error_calloc(save.npieces + 1, sizeof *source.parts, err);
    save.pieces = source.pieces = pieces;
    source.npieces = save.npieces;
    if (source.parts)
        result = ckpt_write_shard(&save, err);
    free(source.parts);
    free(pieces);
    return result;
}

static int check_free(const struct rewrite *r, struct error *err)
{
    struct directory parent;
    bool committed;

    if (directory_make_path(r->dir, err) < 0 || directory_open(&parent, NULL, r->dir, err) < 0)
        return -1;
    committed = step_is_committed(&parent, r->state.step);
    directory_close(&parent);
    if (committed)
        return error_set(err, CODE_USAGE, "%s: has step %" PRIu64 " already; name another directory, or remove that",
                         r->dir, r->state.step);
    return 0;
}

int rewrite_run(struct rewrite *rewrite, struct error *err)
{
    struct rewrite_run writing = {
        .rewrite = rewrite,
        .progress = {.report = rewrite->to.progress, .arg = rewrite->to.arg, .lock = PTHREAD_MUTEX_INITIALIZER},
    };
    const struct mesh *mesh = &rewrite->to.mesh;
    const struct units *units;
    int result;

    if (rewrite->to.chunks == 0)
        rewrite->to.chunks = 1;
    rewrite->state.dp = mesh->dp;
    rewrite->state.tp = mesh->tp;
    rewrite->state.pp = mesh->pp;
    rewrite->state.zero = rewrite->to.zero;
    if (units_check_mesh(&rewrite->shape, mesh, rewrite->to.chunks, err) < 0 || check_free(rewrite, err) < 0 ||
        !(units = writing.units = units_create_whole(&rewrite->shape, err)))
        return -1;
    snprintf(writing.attempt, sizeof writing.attempt, "%s-%" PRIx64 "-%x", rewrite->name,
             (uint64_t)(clock_realtime() * 1e9), (unsigned)getpid());
    for (size_t t = 0; t < units->ntensors; t++)
        writing.progress.total += 4 * rewrite->nkinds * box_elements(units->tensors[t].shape, units->tensors[t].ndim);
    result = workers_run(SHARDS_AT_ONCE, (size_t)mesh_world(mesh), write_shard, &writing, err);
    if (result == 0) {
        result = ckpt_commit(rewrite->dir, rewrite->state.step, writing.attempt, err);
        if (result == 0)
            result = error_set(err, CODE_IO, "%s: step %" PRIu64 ": its shards were written, but are not visible",
                               rewrite->dir, rewrite->state.step);
    }
    if (result < 0)
        ckpt_remove_attempt(rewrite->dir, rewrite->state.step, writing.attempt, NULL);
    units_destroy(writing.units);
    return result < 0 ? -1 : 0;
}

/* ---- reshard ----------------------------------------------------------------------------------------------------- */

static int read_pieces(void *arg, const struct ckpt_tensor *tensors, size_t ntensors, size_t kind,
                       const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err)
{
    struct ckpt *source = arg;

    return checkpoint_read_pieces(source, tensors, ntensors, source->manifest->kinds[kind], pieces, npieces, to, err);
}

int ckpt_reshard(struct ckpt *source, const char *dir, const struct rewrite_to *to, struct error *err)
{
    struct rewrite rewrite = {
        .dir = dir,
        .name = "reshard",
        .to = *to,
        .state = *ckpt_progress(source),
        .kinds = (const char *const *)source->manifest->kinds,
        .nkinds = source->manifest->nkinds,
        .job_text = ckpt_job_text(source),
        .read = read_pieces,
        .arg = source,
    };
    struct job job;

    if (units_read_job(source, &job, err) < 0)
        return -1;
    rewrite.shape = job.model;
    if (to->chunks == 0 && to->mesh.pp > 1)
        rewrite.to.chunks = job.parallel.chunks;
    job_destroy(&job);
    return rewrite_run(&rewrite, err);
}

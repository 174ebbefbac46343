#include "config.h"

#include "ckpt/models/rewrite.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ckpt/file/workers.h"
#include "ckpt/format/pieces.h"
#include "ckpt/models/mesh_pieces.h"
#include "ckpt/read/checkpoint.h"
#include "ckpt/write/attempt.h"
#include "common/clock.h"

#define SHARDS_AT_ONCE 2 /* so that one is read while the other is written */

struct writing {
    const struct rewrite *rewrite;
    struct units *units; /* the whole model */
    char attempt[CKPT_ATTEMPT_SIZE];

    uint64_t total; /* bytes */

    pthread_mutex_t lock;
    uint64_t done; /* under the lock */
};

/* One shard: what ckpt_write_shard's source is asked with. */
struct shard_source {
    struct writing *writing;
    const struct ckpt_piece *pieces;
    size_t npieces;
    struct ckpt_piece *parts; /* [npieces] scratch */
};

static void add_done(struct writing *writing, uint64_t bytes)
{
    const struct rewrite *r = writing->rewrite;

    pthread_mutex_lock(&writing->lock);
    writing->done += bytes;
    if (r->progress)
        r->progress(writing->done, writing->total, r->progress_arg);
    pthread_mutex_unlock(&writing->lock);
}

static int source_read(void *arg, size_t kind, uint64_t first, uint64_t count, float *to, struct error *err)
{
    const struct shard_source *source = arg;
    struct writing *writing = source->writing;
    const struct rewrite *r = writing->rewrite;
    size_t nparts = pieces_cut(source->pieces, source->npieces, first, count, source->parts);

    if (r->read(r->arg, writing->units->tensors, writing->units->ntensors, kind, source->parts, nparts, to, err) < 0)
        return -1;
    add_done(writing, count * 4);
    return 0;
}

static int write_shard(void *arg, int worker, size_t shard, struct error *err)
{
    struct writing *writing = arg;
    const struct rewrite *r = writing->rewrite;
    struct ckpt_piece *pieces = NULL;
    struct shard_source source = {.writing = writing};
    struct ckpt_save save = {
        .dir = r->dir,
        .shard = (int)shard,
        .shards = mesh_world(&r->mesh),
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
    if (mesh_pieces(&r->shape, &r->mesh, r->chunks, (int)shard, &pieces, &save.npieces, err) < 0)
        goto out;
    save.pieces = source.pieces = pieces;
    source.npieces = save.npieces;
    source.parts = calloc(save.npieces + 1, sizeof *source.parts);
    if (!source.parts)
        error_errno(err, CODE_IO, "a list of %zu pieces", save.npieces);
    else
        result = ckpt_write_shard(&save, err);
out:
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
    committed = attempt_is_committed(&parent, r->state.step);
    directory_close(&parent);
    if (committed)
        return error_set(err, CODE_USAGE, "%s: has step %" PRIu64 " already; name another directory, or remove that",
                         r->dir, r->state.step);
    return 0;
}

/* The table, the attempt's name and the bytes. */
static int begin_writing(struct writing *writing, struct error *err)
{
    const struct rewrite *r = writing->rewrite;
    const struct units_place whole = {.dp = 1, .tp = 1, .first_stage = true, .last_stage = true};

    snprintf(writing->attempt, sizeof writing->attempt, "%s-%" PRIx64 "-%x", r->name,
             (uint64_t)(clock_realtime() * 1e9), (unsigned)getpid());
    writing->units = units_create(&r->shape, &whole, err);
    if (!writing->units)
        return -1;
    for (size_t t = 0; t < writing->units->ntensors; t++)
        writing->total += box_elements(writing->units->tensors[t].shape, writing->units->tensors[t].ndim);
    writing->total *= 4 * r->nkinds;
    return 0;
}

int rewrite_run(const struct rewrite *rewrite, struct error *err)
{
    struct writing writing = {.rewrite = rewrite, .lock = PTHREAD_MUTEX_INITIALIZER};
    int result;

    if (mesh_check(&rewrite->shape, &rewrite->mesh, rewrite->chunks, err) < 0 || check_free(rewrite, err) < 0 ||
        begin_writing(&writing, err) < 0)
        return -1;
    result = workers_run(SHARDS_AT_ONCE, (size_t)mesh_world(&rewrite->mesh), write_shard, &writing, err);
    if (result == 0) {
        result = ckpt_commit(rewrite->dir, rewrite->state.step, writing.attempt, err);
        if (result == 0)
            result = error_set(err, CODE_IO, "%s: step %" PRIu64 ": its shards were written, but are not visible",
                               rewrite->dir, rewrite->state.step);
    }
    if (result < 0)
        ckpt_abandon(rewrite->dir, rewrite->state.step, writing.attempt, NULL);
    units_destroy(writing.units);
    return result < 0 ? -1 : 0;
}

/* ---- reshard ----------------------------------------------------------------------------------------------------- */

static int read_pieces(void *arg, const struct ckpt_tensor *tensors, size_t ntensors, size_t kind,
                       const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err)
{
    struct ckpt *source = arg;
    size_t nkinds;

    return checkpoint_read_pieces(source, tensors, ntensors, ckpt_kinds(source, &nkinds)[kind], pieces, npieces, to,
                                  err);
}

/* The job file has what the tensors do not show: heads and chunks. Another release's may be unreadable. */
static void read_job(const struct ckpt *source, struct rewrite *rewrite)
{
    struct job job;

    if (job_parse(&job, ckpt_job_text(source), "job", NULL, 0, NULL) < 0)
        return;
    rewrite->shape.heads = job.model.heads;
    if (rewrite->chunks == 0 && rewrite->mesh.pp > 1)
        rewrite->chunks = job.parallel.chunks;
    job_destroy(&job);
}

int ckpt_reshard(struct ckpt *source, const char *dir, const struct mesh *mesh, int chunks, int zero,
                 void (*progress)(uint64_t done, uint64_t total, void *arg), void *arg, struct error *err)
{
    struct rewrite rewrite = {
        .dir = dir,
        .name = "reshard",
        .mesh = *mesh,
        .chunks = chunks,
        .state = *ckpt_state(source),
        .job_text = ckpt_job_text(source),
        .read = read_pieces,
        .arg = source,
        .progress = progress,
        .progress_arg = arg,
    };
    size_t ntensors;
    const struct ckpt_tensor *tensors = ckpt_tensors(source, &ntensors);

    rewrite.kinds = ckpt_kinds(source, &rewrite.nkinds);
    if (mesh_model_of(tensors, ntensors, &rewrite.shape, err) < 0)
        return error_prefix(err, "%s", ckpt_path(source));
    read_job(source, &rewrite);
    if (rewrite.chunks == 0)
        rewrite.chunks = 1;
    rewrite.state.dp = mesh->dp;
    rewrite.state.tp = mesh->tp;
    rewrite.state.pp = mesh->pp;
    rewrite.state.zero = zero;
    return rewrite_run(&rewrite, err);
}

/* reshard.c - ckpt_reshard of rewrite.h. */
#include "config.h"

#include "ckpt/checkpoint.h"
#include "ckpt/mesh_pieces.h"
#include "ckpt/rewrite.h"

static int read_pieces(void *arg, const struct ckpt_tensor *tensors, size_t ntensors, size_t kind,
                       const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err)
{
    struct ckpt *source = arg;
    size_t nkinds;

    return checkpoint_read_pieces(source, tensors, ntensors, ckpt_kinds(source, &nkinds)[kind], pieces, npieces, to,
                                  err);
}

/* The job file tells what the tensors do not: the heads, and the chunks. It may be of a version that we cannot read. */
static void ask_job(const struct ckpt *source, struct rewrite *rewrite)
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
    ask_job(source, &rewrite);
    if (rewrite.chunks == 0)
        rewrite.chunks = 1;
    rewrite.state.dp = mesh->dp;
    rewrite.state.tp = mesh->tp;
    rewrite.state.pp = mesh->pp;
    rewrite.state.zero = zero;
    return rewrite_run(&rewrite, err);
}

/*
 * rewrite.h - a whole checkpoint in the shards of a given mesh, written by one process from a source that can read
 * any piece of any tensor; and ckpt_reshard, whose source is another checkpoint.
 *
 * Memory is bounded whatever the model's size: two shards are written at a time, each by way of a buffer of 32 MiB, and
 * the reader's and writer's blocks. The destination is committed as any save is, or else abandoned.
 */
#ifndef MUSTER_CKPT_MODELS_REWRITE_H
#define MUSTER_CKPT_MODELS_REWRITE_H

#include "ckpt/ckpt.h"
#include "common/job.h"
#include "common/mesh.h"

struct rewrite {
    const char *dir;          /* of checkpoints; must not have one of this step */
    const char *name;         /* of the program's command, for the attempt: letters */
    struct model_shape shape; /* heads may be 0: unknown */
    struct mesh mesh;
    int chunks;
    const char *const *kinds;
    size_t nkinds;
    struct ckpt_state state; /* with the mesh and the ZeRO stage that are to be noted in it */
    const char *job_text;

    /*
     * Put the pieces of one kind, one after the other, into `to`. They are of `tensors`, the model's whole table.
     * Called from two threads at once.
     */
    int (*read)(void *arg, const struct ckpt_tensor *tensors, size_t ntensors, size_t kind,
                const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err);
    void *arg;
    void (*progress)(uint64_t done, uint64_t total, void *arg); /* bytes; from one thread at a time; may be NULL */
    void *progress_arg;
};

/* 0, or -1 with nothing left of it. CODE_USAGE when the mesh does not fit the model, or dir has that step. */
int rewrite_run(const struct rewrite *rewrite, struct error *err);

/*
 * Write `source` anew into `dir` as a trainer of that mesh would have saved it; zero is only noted. chunks 0 takes the
 * job file's. All kinds, the state and the job file are kept.
 */
int ckpt_reshard(struct ckpt *source, const char *dir, const struct mesh *mesh, int chunks, int zero,
                 void (*progress)(uint64_t done, uint64_t total, void *arg), void *arg, struct error *err);

#endif

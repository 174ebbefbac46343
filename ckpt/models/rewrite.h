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

/* The mesh whose shards are to be written. */
struct rewrite_to {
    struct mesh mesh;
    int chunks;                                                 /* 0: the job file's, or 1 */
    int zero;                                                   /* only noted */
    void (*progress)(uint64_t done, uint64_t total, void *arg); /* bytes; from one thread at a time; may be NULL */
    void *arg;
};

struct rewrite {
    const char *dir;          /* of checkpoints; must not have one of this step */
    const char *name;         /* of the program's command, for the attempt: letters */
    struct model_shape shape;
    struct rewrite_to to;
    const char *const *kinds;
    size_t nkinds;
    struct ckpt_progress state; /* except mesh and ZeRO stage, which are those of `to` */
    const char *job_text;

    /*
     * Put the pieces of one kind, one after the other, into `to`. They are of `tensors`, the model's whole table.
     * Called from two threads at once.
     */
    int (*read)(void *arg, const struct ckpt_tensor *tensors, size_t ntensors, size_t kind,
                const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err);
    void *arg;
};

/* 0, or -1 with nothing left of it. CODE_USAGE when the mesh does not fit the model, or dir has that step. */
int rewrite_run(struct rewrite *rewrite, struct error *err);

/* Write `source` anew into `dir` as a trainer of that mesh would have saved it, with all kinds, state and job file. */
int ckpt_reshard(struct ckpt *source, const char *dir, const struct rewrite_to *to, struct error *err);

#endif

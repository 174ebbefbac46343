/*
 * rank_config.h - the configuration of one rank's part: its units, chunks, ZeRO and pipeline, as a pure function of job
 * and mesh. The engine is created from it, and prediction.h adds up its bytes.
 */
#ifndef MUSTER_TRAINER_RANK_CONFIG_H
#define MUSTER_TRAINER_RANK_CONFIG_H

#include "ckpt/models/units.h"
#include "common/job.h"
#include "common/mesh.h"
#include "trainer/model/model.h"
#include "trainer/pipeline.h"
#include "trainer/parallel/zero.h"

struct rank_config {
    struct mesh_place place;
    int most_micro_batches; /* of a step, at the full batch */
    struct units *units;    /* owned */
    struct context context; /* without device and tp group: the engine fills them in */
    struct model_config model;
    struct zero_config zero;
    struct pipeline_config pipeline;
    size_t tensor_gradients; /* most elements that are summed over tp */
};

/* training: false is for a forward pass on one rank. NULL with CODE_CONFIG if the job does not fit the mesh, CODE_IO
 * when out of memory. The job must outlive it. */
struct rank_config *rank_config_create(const struct job *job, const struct mesh *mesh, int rank, bool training,
                                       const struct device_traits *device, struct error *err);
void rank_config_destroy(struct rank_config *config);

/*
 * A dp rank's share of a global batch of `size` samples: a contiguous run, whose sizes differ by at most one, divided
 * into micro-batches, of which the last may be short. micro_batches is the same on every dp rank, so that all take part
 * in every exchange: a rank with fewer samples adds empty ones.
 */
struct share {
    long first, count;
    int micro_batches;
};

struct share batch_share(const struct job *job, const struct mesh *mesh, int dp_rank, int size);

/* The most samples of a step that a rank holds: its largest share, and an empty one. */
long most_samples(const struct job *job, const struct mesh *mesh);

#endif

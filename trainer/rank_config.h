/*
 * rank_config.h - what one rank of a mesh holds and does, as a pure function of the job. The engine is created from it,
 * and prediction.h adds up its bytes.
 */
#ifndef MUSTER_TRAINER_RANK_CONFIG_H
#define MUSTER_TRAINER_RANK_CONFIG_H

#include "ckpt/models/units.h"
#include "common/job.h"
#include "common/mesh.h"
#include "trainer/model/model.h"
#include "trainer/parallel/pipeline.h"
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

/* training: false is for a forward pass alone, of one rank. NULL with CODE_CONFIG where the job does not fit the mesh,
 * or there is no memory. The job must outlive it. */
struct rank_config *rank_config_create(const struct job *job, const struct mesh *mesh, int rank, bool training,
                                       const struct device_traits *device, struct error *err);
void rank_config_destroy(struct rank_config *config);

/*
 * This dp rank's share of a global batch of `size` samples: a contiguous run, sizes differing by one at most, and cut
 * into micro-batches of which the last may be short. micro_batches is the same on every dp rank, so that all take part
 * in every exchange: a rank with fewer samples has empty ones.
 */
struct share {
    long first, count;
    int micro_batches;
};

struct share batch_share(const struct job *job, const struct mesh *mesh, int dp_rank, int size);

/* Samples that a rank holds of a step at most: its largest share, and one more that is empty. */
long most_samples(const struct job *job, const struct mesh *mesh);

#endif

/*
 * layout.h - what one rank of a mesh is to hold and do, as a pure function of the job: the engine is created by it, and
 * footprint.h adds up what that takes.
 */
#ifndef MUSTER_TRAINER_LAYOUT_H
#define MUSTER_TRAINER_LAYOUT_H

#include "ckpt/units.h"
#include "common/job.h"
#include "common/mesh.h"
#include "trainer/model/model.h"
#include "trainer/parallel/pipeline.h"
#include "trainer/parallel/zero.h"

struct layout {
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
struct layout *layout_create(const struct job *job, const struct mesh *mesh, int rank, bool training,
                             const struct device_traits *device, struct error *err);
void layout_destroy(struct layout *layout);

/*
 * This dp rank's share of a global batch of `size` samples: a contiguous run, sizes differing by one at most, and cut
 * into micro-batches of which the last may be short. micro_batches is the same on every dp rank, so that all take part
 * in every exchange: a rank with fewer samples has empty ones.
 */
struct share {
    long first, count;
    int micro_batches;
};

struct share layout_share(const struct job *job, const struct mesh *mesh, int dp_rank, int size);

/* Samples that a rank holds of a step at most: its largest share, and one more that is empty. */
long layout_most_samples(const struct job *job, const struct mesh *mesh);

#endif

/*
 * rank_config.h - the configuration of one rank of a mesh: its units, its chunks of layers, and its part of ZeRO. A
 * pure function of job, mesh, rank and the device's traits. configure_parts (rank_config.c) copies parallel.zero,
 * parallel.reduce, parallel.offload and the types of `precision` into zero_config and pass_sizes. tp and pp come with
 * the mesh, and place_chunks uses parallel.chunks; other keys are read from the job where they are used.
 *
 * This header also predicts the bytes that a rank will hold, by kind. The engine is created from a rank_config and
 * allocates by the same arithmetic, so the prediction is exact.
 */
#ifndef MUSTER_PLAN_RANK_CONFIG_H
#define MUSTER_PLAN_RANK_CONFIG_H

#include "common/job.h"
#include "common/mesh.h"
#include "common/workspace/workspace.h"
#include "plan/activations.h"
#include "plan/state.h"

struct rank_config {
    const struct job *job; /* borrowed */
    struct mesh mesh;
    struct mesh_coords coords;
    struct device_traits device;
    int most_micro_batches; /* of a step, at the full batch */
    struct rank_units units;
    struct pass_sizes sizes; /* of a micro-batch; sizes.shape is the job's */
    struct model_config model;
    struct zero_config zero;
    size_t tp_scratch; /* for tp_create */
};

/* -1 with CODE_CONFIG if the job, at its full batch, does not fit the mesh, with CODE_IO when out of memory. */
int rank_config_set(struct rank_config *config, const struct job *job, const struct mesh *mesh, int rank,
                    const struct device_traits *device, struct error *err);

/* -1 with CODE_CONFIG if steps of `size` samples are too small for the mesh. During a ramp-up, the run calls this for
 * the sizes that are still to come. */
int rank_config_check_batch(const struct job *job, const struct mesh *mesh, int size, struct error *err);

/*
 * A dp rank's share of a global batch of `size` samples. It is contiguous; the shares differ by at most one sample. It
 * is divided into micro-batches, the last of which may be short. micro_batches is the same on every dp rank, so that
 * all take part in every exchange. A rank with fewer samples runs empty micro-batches, each of one empty sample. Only
 * the dp rank matters: all tp ranks and all stages of a dp rank read the same samples. trainer/step.c reads them.
 */
struct share {
    long first, count;
    int micro_batches;
};

struct share rank_config_share(const struct job *job, const struct mesh *mesh, int dp_rank, int size);

/* The most samples of a step that a rank holds: its largest share, and an empty one. */
long rank_config_most_samples(const struct job *job, const struct mesh *mesh);

/* The bytes of rank `rank` of this mesh on such a device. -1 with CODE_CONFIG if the job does not fit the mesh. */
int rank_config_footprint(const struct job *job, const struct mesh *mesh, int rank, const struct device_traits *device,
                          struct footprint *bytes, struct error *err);

/* The bytes that this rank will hold. */
struct footprint rank_config_bytes(const struct rank_config *config);

/* The kernels' part of FOOTPRINT_WORKSPACE: the most that any operation of the model needs. */
size_t rank_config_workspace(const struct rank_config *config);

/* Whether the model's attention goes to cuDNN's kernels: kernels_use_cudnn. */
bool rank_config_uses_cudnn(const struct job *job, const struct device_traits *device);

/*
 * The table "memory a rank, in MiB", malloc'ed: a row for each kind, a column for each pipeline stage; all tp and dp
 * ranks of a stage hold the same. If there are many stages, only the first ones, the largest and the last are shown.
 * `json`: an array with an object for every stage, whose members are the kinds, in bytes.
 */
char *rank_config_table(const struct job *job, const struct mesh *mesh, const struct device_traits *device, bool json,
                        struct error *err);

#endif

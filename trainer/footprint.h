/*
 * footprint.h - the bytes a rank needs, by kind: one arithmetic for the engine, which allocates by it, and for whoever
 * wants to know before a run. Pure.
 */
#ifndef MUSTER_TRAINER_FOOTPRINT_H
#define MUSTER_TRAINER_FOOTPRINT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/job.h"
#include "common/mesh.h"
#include "kernels/kernels.h"

/* On the device, but for the fields that say host. */
struct footprint {
    size_t parameters;    /* in the type of the forward pass; and the fp32 ones where they are the same */
    size_t gradients;     /* fp32: the step's sums, and those of the micro-batch under way */
    size_t optimizer;     /* master, exp_avg, exp_avg_sq */
    size_t activations;   /* kept from forward to backward */
    size_t workspace;     /* what one layer needs at a time; logits; scratch of the kernels */
    size_t communication; /* gathered units, buckets under way, what stages send and receive */
    size_t host_optimizer;
    size_t host_staging; /* on its way to a device whose memory is no host memory, or from it; but for what
                            comm_staged.c takes when ranks share a GPU */
};

size_t footprint_device(const struct footprint *bytes);
size_t footprint_host(const struct footprint *bytes);

/* What rank `rank` of this mesh will hold on such a device. -1 with CODE_CONFIG where the job does not fit the mesh. */
int footprint_predict(const struct job *job, const struct mesh *mesh, int rank, const struct device_traits *device,
                      struct footprint *bytes, struct error *err);

/* Of `workspace`, what the kernels hold for themselves: the most that any operation of the model asks for. */
struct layout;
size_t footprint_workspace(const struct job *job, const struct layout *layout, const struct device_traits *device);

/*
 * The table for people, "memory a rank, in MiB": a row a kind, a column a pipeline stage; tp and dp ranks of a stage
 * hold the same. Where there are many stages, the first ones, the heaviest and the last are shown. Returns the length,
 * or -1.
 */
enum { FOOTPRINT_TABLE_SIZE = 2048 };

int footprint_table(char text[static FOOTPRINT_TABLE_SIZE], const struct job *job, const struct mesh *mesh,
                    const struct device_traits *device, struct error *err);

#endif

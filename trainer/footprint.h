/*
 * footprint.h - the bytes a rank needs, by kind: one arithmetic for the engine, which allocates by it, and for whoever
 * wants to know before a run. Pure.
 */
#ifndef MUSTER_TRAINER_FOOTPRINT_H
#define MUSTER_TRAINER_FOOTPRINT_H

#include <stddef.h>

#include "common/job.h"
#include "common/mesh.h"

/* On the device, but for the fields that say host. */
struct footprint {
    size_t parameters;    /* in the type of the forward pass; and the fp32 ones where they are the same */
    size_t gradients;     /* fp32: the step's sums, and those of the micro-batch under way */
    size_t optimizer;     /* master, exp_avg, exp_avg_sq */
    size_t activations;   /* kept from forward to backward */
    size_t workspace;     /* what one layer needs at a time; logits; scratch of the kernels */
    size_t communication; /* gathered units, buckets under way, what stages send and receive */
    size_t host_optimizer;
};

size_t footprint_device(const struct footprint *bytes);
size_t footprint_host(const struct footprint *bytes);

/* What rank `rank` of this mesh will hold, where operations run with so many threads (on a CPU) and widen the type of
 * the forward pass or not (device_widens). -1 with CODE_CONFIG where the job does not fit the mesh. */
int footprint_predict(const struct job *job, const struct mesh *mesh, int rank, int threads, bool widens,
                      struct footprint *bytes, struct error *err);

/* One line: the sum on the device, what it is made of, and what is on the host. As snprintf. */
int footprint_format(char *text, size_t size, const struct footprint *bytes);

#endif

/* footprint.h - the bytes that a rank holds, by kind. Who allocates adds its own; trainer/prediction.h adds up all. */
#ifndef MUSTER_PLAN_FOOTPRINT_H
#define MUSTER_PLAN_FOOTPRINT_H

#include <stddef.h>

/* On the device, but for the fields that say host. */
struct footprint {
    size_t parameters;    /* in the type of the forward pass; and the fp32 ones where they are the same */
    size_t gradients;     /* fp32: the step's sums, and those of the micro-batch under way */
    size_t optimizer;     /* master, exp_avg, exp_avg_sq */
    size_t activations;   /* kept from forward to backward */
    size_t workspace;     /* what one layer needs at a time; logits; scratch of the kernels */
    size_t communication; /* gathered units, buckets under way, what stages send and receive */
    size_t host_optimizer;
    size_t host_staging; /* on its way to a device with discrete memory, or from it; but for what
                            comm_staged.c takes when ranks share a GPU */
};

size_t footprint_device(const struct footprint *bytes);
size_t footprint_host(const struct footprint *bytes);

#endif

/* footprint.h - the bytes that a rank holds, by kind. Each part of the engine adds its own (trainer/rank_config.h). */
#ifndef MUSTER_PLAN_FOOTPRINT_H
#define MUSTER_PLAN_FOOTPRINT_H

#include <stddef.h>

/* On the device, except for the host_ fields. */
struct footprint {
    size_t parameters;    /* in the type of the forward pass; and the fp32 ones where they are the same */
    size_t gradients;     /* fp32: the step's sums, and those of the current micro-batch */
    size_t optimizer;     /* master, exp_avg, exp_avg_sq */
    size_t activations;   /* kept from forward to backward */
    size_t workspace;     /* scratch of one layer and of the kernels; logits */
    size_t communication; /* gathered units, buckets in flight, what stages send and receive */
    size_t host_optimizer;
    size_t host_staging; /* buffers for transfers to and from discrete device memory, without those of
                            comm_device.c, which are used when ranks share a GPU */
};

static inline size_t footprint_device(const struct footprint *b)
{
    return b->parameters + b->gradients + b->optimizer + b->activations + b->workspace + b->communication;
}

static inline size_t footprint_host(const struct footprint *b)
{
    return b->host_optimizer + b->host_staging;
}

#endif

/*
 * footprint.h - the bytes that a rank holds, by kind. plan/state.h and plan/activations.h have the arithmetic, and
 * plan/rank_config.h adds everything up. The engine allocates the buffers that these list, so a prediction is exact.
 */
#ifndef MUSTER_PLAN_FOOTPRINT_H
#define MUSTER_PLAN_FOOTPRINT_H

#include <stdbool.h>
#include <stddef.h>

enum footprint_kind {
    FOOTPRINT_PARAMETERS,    /* in the type of the forward pass; and the fp32 ones where they are the same */
    FOOTPRINT_GRADIENTS,     /* the step's sums, and those of the current micro-batch */
    FOOTPRINT_OPTIMIZER,     /* master, exp_avg, exp_avg_sq */
    FOOTPRINT_ACTIVATIONS,   /* kept from forward to backward */
    FOOTPRINT_WORKSPACE,     /* scratch of one layer and of the kernels; logits */
    FOOTPRINT_COMMUNICATION, /* gathered units, buckets in flight, what stages send and receive */
    FOOTPRINT_HOST_OPTIMIZER,
    FOOTPRINT_HOST_STAGING, /* buffers for transfers to and from discrete device memory, without those of
                               comm_device.c, which are used when ranks share a GPU */
    FOOTPRINT_KINDS,
};

struct footprint {
    size_t bytes[FOOTPRINT_KINDS];
};

/* One buffer; a size of 0 is none. */
struct planned_buffer {
    size_t bytes;
    enum footprint_kind kind;
};

static inline bool footprint_on_host(enum footprint_kind kind)
{
    return kind >= FOOTPRINT_HOST_OPTIMIZER;
}

static inline size_t footprint_device(const struct footprint *b)
{
    size_t sum = 0;

    for (int kind = 0; kind < FOOTPRINT_HOST_OPTIMIZER; kind++)
        sum += b->bytes[kind];
    return sum;
}

static inline size_t footprint_host(const struct footprint *b)
{
    return b->bytes[FOOTPRINT_HOST_OPTIMIZER] + b->bytes[FOOTPRINT_HOST_STAGING];
}

static inline void footprint_add(struct footprint *b, const struct planned_buffer *buffers, int count, size_t times)
{
    for (int i = 0; i < count; i++)
        b->bytes[buffers[i].kind] += buffers[i].bytes * times;
}

#endif

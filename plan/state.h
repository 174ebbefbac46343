/*
 * state.h - the bytes that a rank holds, by kind; and the memory of ZeRO: sizes of the buffers for parameters,
 * gradients and optimizer state, and of those for their exchange. trainer/parallel/zero.h has the table of the stages;
 * it allocates exactly the buffers listed here. plan/activations.h has the others, and plan/rank_config.h adds
 * everything up. So a prediction is exact.
 */
#ifndef MUSTER_PLAN_STATE_H
#define MUSTER_PLAN_STATE_H

#include <stdbool.h>

#include "common/dtype.h"
#include "plan/tensors.h"

enum footprint_kind {
    FOOTPRINT_PARAMETERS,    /* in the type of the forward pass; and the fp32 ones where they are the same */
    FOOTPRINT_GRADIENTS,     /* the step's sums, and those of the current micro-batch */
    FOOTPRINT_OPTIMIZER,     /* master, exp_avg, exp_avg_sq */
    FOOTPRINT_ACTIVATIONS,   /* kept from forward to backward */
    FOOTPRINT_WORKSPACE,     /* scratch of one layer and of the kernels; logits */
    FOOTPRINT_COMMUNICATION, /* gathered units, buckets in flight, what stages send and receive */
    FOOTPRINT_HOST_OPTIMIZER,
    FOOTPRINT_HOST_STAGING, /* buffers for transfers to and from discrete device memory, without those of
                               comm_device.c */
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

/* The part of it in the host's memory: all of it, if the device is the host. */
static inline size_t footprint_of_host(const struct footprint *b, bool is_host)
{
    return (is_host ? footprint_device(b) : 0) + footprint_host(b);
}

/* By so much a rank's process grows after MPI's start, beside these buffers: code that oneDNN generates, threads, page
 * tables and muster-ckptd (6 to 12 MiB with 1 to 4 ranks of MPICH and 1 or 2 threads), and the three blocks of a save
 * that is not staged (12 MiB). */
enum { PROCESS_GROWTH = 24 << 20 };

/* An upper bound of the host memory of a rank's process beside these buffers. With a GPU's driver it is an assumption. */
static inline double process_bytes(bool gpu)
{
    return PROCESS_GROWTH + (gpu ? 512 << 20 : 16 << 20);
}

static inline void footprint_add(struct footprint *b, const struct planned_buffer *buffers, int count, size_t times)
{
    for (int i = 0; i < count; i++)
        b->bytes[buffers[i].kind] += buffers[i].bytes * times;
}

/* ---- ZeRO -------------------------------------------------------------------------------------------------------- */

/* The options that decide where state is held, and when it is exchanged. */
struct zero_config {
    int zero_stage, dp, dp_rank;
    enum dtype compute_dtype; /* of parameters in the forward pass */
    enum dtype reduce_dtype;  /* of gradients between ranks: precision.reduce */
    enum dtype grad_dtype;    /* of the sums that are kept: precision.gradients */
    bool offload;
    bool reduce_every_micro_batch; /* parallel.reduce; false: once a step */
    bool many_micro_batches;       /* some step may have more than one */
    bool tied;                     /* the token embedding is held by another pipeline stage too */
    bool discrete;                 /* the device's memory is not host memory (device_is_host) */
    bool mirror;                   /* if discrete: allocate copies of the state in host memory, for zero_pieces */
};

enum {
    ZERO_KINDS = 3,   /* of state: "param", "exp_avg", "exp_avg_sq" */
    BLOCK_SLOTS = 2,  /* buffers for gathered blocks, and for blocks' gradients: one is in use, one in flight */
    REDUCE_SLOTS = 2, /* buckets of gradients in flight at once */
    BUCKET_ELEMENTS = 8 << 20,  /* of all ranks together in one reduce-scatter */
    LEAST_BUCKET = 1 << 16,     /* of one rank */
    STAGING_ELEMENTS = 1 << 20, /* copied from the host to the device at a time */
    TIE_ELEMENTS = 1 << 16,     /* of the tied embedding's gradient exchanged at a time */
};

/* One unit's buffers in this configuration: their sizes, and where some of them begin in the unit's flat buffer
 * (*_first). In elements. */
struct zero_sizes {
    size_t shard_first, shard_count; /* this rank's part of the flat buffer */
    size_t state_first, state_count; /* the part whose optimizer state this rank has */
    size_t param;                    /* held all the time, in the type of the forward pass */
    size_t master;                   /* fp32; 0 if the parameters are their own master */
    size_t grad;                     /* the step's sums on the device */
    size_t host_grad;                /* and on the host */
    size_t param_first, grad_first;  /* the elements at which param and grad begin */
    size_t own_micro_grad;           /* a buffer of this unit alone for a micro-batch's gradients; 0: one of
                                        zero.micro_grad_slots[] */
    size_t gathered; /* this unit's own gather buffer; 0 below ZeRO stage 3, and for blocks, which share BLOCK_SLOTS
                        buffers */
    size_t mirror;   /* each kind of state, copied to the host for zero_pieces */
};

/* The sizes of shared buffers. */
struct zero_shared_sizes {
    size_t block_micro_grad, block_gathered; /* elements of one buffer */
    int micro_grad_slots;                    /* buffers of block_micro_grad elements: 0, 1 or BLOCK_SLOTS */
    size_t bucket;                           /* elements of one rank in a reduce-scatter; 0 with one rank */
    bool outgoing, incoming, bounce;         /* the reduce slots have these buffers */
    int staging_halves;                      /* of STAGING_ELEMENTS each: one is sent while the other is filled */
    size_t staging_element;                  /* bytes */
};

/* The units of a rank: how many of each kind, all of one size. */
struct rank_units {
    struct unit_size size[UNIT_KINDS];
    int number[UNIT_KINDS];
};

/* The effective configuration: with one dp rank nothing is sharded or reduced. */
struct zero_config zero_effective(const struct zero_config *config);
struct zero_sizes zero_sizes_of(size_t count, bool is_block, const struct zero_config *effective);
struct zero_shared_sizes zero_shared_of(const struct rank_units *units, const struct zero_config *effective);

/* True if this rank's shard of the gradients is summed in host memory. */
static inline bool zero_sums_on_host(const struct zero_config *effective)
{
    return effective->offload && effective->zero_stage > 0;
}

/* A unit's buffers. */
enum {
    STATE_PARAM,
    STATE_GRAD,
    STATE_MICRO_GRAD,
    STATE_HOST_GRAD,
    STATE_MASTER,
    STATE_EXP_AVG,
    STATE_EXP_AVG_SQ,
    STATE_GATHERED,
    STATE_MIRROR, /* ZERO_KINDS of them */
    STATE_BUFFERS = STATE_MIRROR + ZERO_KINDS,
};
void zero_unit_buffers(const struct zero_sizes *sizes, const struct zero_config *effective,
                       struct planned_buffer buffers[STATE_BUFFERS]);

/* The buffers that units share. The slots' buffers come once for each slot. */
enum {
    SHARED_MICRO_GRAD,                                 /* BLOCK_SLOTS */
    SHARED_GATHERED = SHARED_MICRO_GRAD + BLOCK_SLOTS, /* BLOCK_SLOTS */
    SHARED_SCRATCH = SHARED_GATHERED + BLOCK_SLOTS,    /* REDUCE_SLOTS each: this and the next three */
    SHARED_OUTGOING = SHARED_SCRATCH + REDUCE_SLOTS,
    SHARED_INCOMING = SHARED_OUTGOING + REDUCE_SLOTS,
    SHARED_BOUNCE = SHARED_INCOMING + REDUCE_SLOTS,
    SHARED_TIE = SHARED_BOUNCE + REDUCE_SLOTS,
    SHARED_STAGING,
    SHARED_BUFFERS,
};
void zero_shared_buffers(const struct zero_shared_sizes *sizes, const struct zero_config *effective,
                         struct planned_buffer buffers[SHARED_BUFFERS]);

/* Adds the bytes of all these buffers. */
void zero_footprint(const struct rank_units *units, const struct zero_config *config, struct footprint *bytes);

#endif

/*
 * zero_impl.h - shared by the files zero*.c. Private to them.
 *
 *   zero.c         the sizes of all buffers (zero_sizes); creates and destroys
 *   zero_state.c   initial values; the state's copies in host memory, and its pieces of checkpoints
 *   zero_grads.c   sums of gradients over micro-batches and ranks: zero_grad_ready starts the sum over ranks in
 *                  every micro-batch or in the last (config.reduce_every_micro_batch); ZeRO stage 0
 *                  gathers the sums afterwards (gather_whole)
 *   zero_params.c  zero_step, which is AdamW; ZeRO stages 1 and 2: all-gather after it (start_all_gather); stage 3:
 *                  zero_gather; after initialization and loading: zero_refresh_params
 */
#ifndef MUSTER_TRAINER_PARALLEL_ZERO_IMPL_H
#define MUSTER_TRAINER_PARALLEL_ZERO_IMPL_H

#include "trainer/parallel/zero.h"

struct zero_unit {
    const struct unit *unit;
    struct zero_sizes size;
    char *param;   /* ZeRO stages 0 to 2: whole; 3: the shard */
    float *master; /* [state_count], may lie in param */
    float *exp_avg, *exp_avg_sq;
    void *grad;            /* of config.grad_dtype; whole, or the shard: see grad_first */
    float *host_grad;      /* [state_count] */
    float *own_micro_grad; /* its own buffer of a micro-batch's gradients; NULL for blocks: zero.micro_grad_slots[] */
    float *current_micro_grad; /* the buffer in use (zero_grad_begin): grad, own_micro_grad or a slot's */
    float *mirror[ZERO_KINDS];
};

/* A buffer for a gathered unit. */
struct gather_slot {
    char *buffer;
    int unit; /* whose parameters it holds or receives; -1: none */
    bool in_use;
    struct comm_request *request;
    uint64_t used; /* time of the last use: the oldest is reused first */
};

/* A bucket of gradients in flight: elements [first, first + count) of the unit's shard. */
struct reduce_slot {
    char *outgoing; /* [dp][bucket] of reduce_dtype, 16-bit; NULL: sent from the gradients' buffer */
    char *incoming; /* [bucket] of reduce_dtype; NULL: received in place */
    char *bounce;   /* [bucket] of reduce_dtype in host memory; only if the sums are there and the device is discrete */
    void *scratch;
    struct zero_unit *unit; /* NULL: free */
    size_t first, count;
    bool overwrite;        /* it begins the sums of a step instead of adding to them */
    const float *releases; /* for the unit's last bucket: the micro-batch's buffer that is free afterwards */
    struct comm_request *request;
};

struct micro_grad_slot {
    float *buffer;
    struct zero_unit *unit; /* NULL: free */
};

struct zero {
    struct device *dev, *host; /* host: a CPU device for buffers in host memory; dev itself if dev is a CPU */
    const struct kernels *k, *on_host;
    struct zero_comms comms;
    const struct units *units;
    struct zero_config config; /* effective */
    struct zero_shared_sizes shared;
    struct zero_unit *unit; /* [nunits] */
    bool first, last;       /* of the step's micro-batches */

    struct micro_grad_slot micro_grad_slots[BLOCK_SLOTS];
    struct reduce_slot reduce[REDUCE_SLOTS];
    int next_reduce; /* the oldest slot, which is used next */

    struct gather_slot *gathers; /* BLOCK_SLOTS for the blocks, then one a unit */
    int ngathers;
    const int *plan;
    size_t plan_count, plan_at;
    uint64_t clock;

    char *staging;                        /* [halves][STAGING_ELEMENTS] in host memory */
    uint64_t staged[2];                   /* the transfer of each half; 0: none */
    int half;                             /* to be filled next */
    uint64_t landed;                      /* the last transfer of gradients to the host */
    uint64_t snapshot_transfer;           /* the last of zero_snapshot; 0: none */
    float *tie;                           /* [2][TIE_ELEMENTS], in the memory of the sums */
    struct comm_request **param_requests; /* [nunits] all-gathers after a step */
    struct squares *squares;              /* [nunits] for the norm */

    struct zero_buffer *buffers; /* a list of all that was allocated */
    struct error error;          /* the first failure since the last zero_status */
};

/* zero.c */
bool zero_is_block(const struct units *units, int unit);
int zero_status(struct zero *zero, struct error *err); /* takes the first failure */

/* zero_grads.c: elements [first, first + count) of u->grad in fp32. Those of 16 bits are copied to a micro-batch's
 * buffer, which is free after the backward pass; the next call overwrites it. */
float *zero_widen_grad(struct zero *zero, const struct zero_unit *u, size_t first, size_t count);

/* zero_params.c: staging, from the host to a device, half by half. On a CPU these are copies. */
char *zero_staging(struct zero *zero); /* a free half, for STAGING_ELEMENTS of staging_element bytes */
void zero_send_staged(struct zero *zero, void *to, size_t bytes); /* sends that half, once filled */
void zero_staging_join(struct zero *zero); /* operations enqueued from now on wait for these transfers */

/* zero_params.c, after initialization and loading: casts a separate master copy to the parameters, and in stages 1 and
 * 2 all-gathers them. */
int zero_refresh_params(struct zero *zero, struct error *err);

#endif

/* zero_impl.h - shared by the files zero*.c. Private to them. */
#ifndef MUSTER_TRAINER_PARALLEL_ZERO_IMPL_H
#define MUSTER_TRAINER_PARALLEL_ZERO_IMPL_H

#include "trainer/parallel/zero.h"

enum {
    BLOCK_SLOTS = 2,            /* blocks gathered, or with open gradients, at once: one in use and one in flight */
    REDUCE_SLOTS = 2,           /* buckets of gradients in flight at once */
    BUCKET_ELEMENTS = 8 << 20,  /* of all ranks together in one reduce-scatter */
    LEAST_BUCKET = 1 << 16,     /* of one rank */
    STAGING_ELEMENTS = 1 << 20, /* copied from the host to the device at a time */
    TIE_ELEMENTS = 1 << 16,     /* of the tied embedding's gradient exchanged at a time */
};

/* The sizes of one unit's buffers in this configuration, in elements. */
struct zero_sizes {
    size_t shard_first, shard_count; /* this rank's part of the flat buffer */
    size_t state_first, state_count; /* the part that this rank has optimizer state for */
    size_t param;                    /* held all the time, in the type of the forward pass */
    size_t master;                   /* fp32; 0 if the parameters are their own master */
    size_t moment;                   /* each of exp_avg and exp_avg_sq */
    size_t grad;                     /* the step's sums on the device */
    size_t host_grad;                /* and on the host */
    size_t open;                     /* the unit's own buffer for the micro-batch's gradients; 0: a shared one */
    size_t gathered;                 /* the same for gathered parameters */
    size_t mirror;                   /* each kind of state, copied to the host for zero_pieces */
};

/* The sizes of shared buffers. */
struct zero_shared_sizes {
    size_t block_open, block_gathered; /* each of BLOCK_SLOTS */
    int open_slots, gather_slots;      /* their numbers */
    size_t bucket;                     /* elements of one rank in a reduce-scatter; 0 with one rank */
    bool wire, incoming, bounce;       /* the reduce slots have these buffers */
    int staging_halves;                /* of STAGING_ELEMENTS each: one is sent while the other is filled */
    size_t staging_element;            /* bytes */
};

/* The effective configuration: with one dp rank nothing is sharded or reduced. */
struct zero_config zero_effective(const struct zero_config *config);
struct zero_sizes zero_sizes_of(const struct unit *unit, bool is_block, const struct zero_config *effective);
struct zero_shared_sizes zero_shared_sizes_of(const struct units *units, const struct zero_config *effective);

struct zero_unit {
    const struct unit *unit;
    struct zero_sizes size;
    char *param;   /* stages 0 to 2: whole; 3: the shard */
    float *master; /* [state_count], may lie in param */
    float *exp_avg, *exp_avg_sq;
    float *grad;      /* whole, or the shard: see grad_first */
    float *host_grad; /* [state_count] */
    float *open;      /* its own buffer of a micro-batch's gradients; blocks share */
    float *given;     /* the buffer that zero_grad_begin returned */
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
    char *wire;     /* [dp][bucket] 16-bit; NULL: sent from the gradients' buffer */
    char *incoming; /* [bucket] of the wire's type; NULL: received in place */
    char *bounce;   /* [bucket] of it on the host, where the sums are and the device is discrete */
    void *scratch;
    struct zero_unit *unit; /* NULL: free */
    size_t first, count;
    bool overwrite;      /* it begins the sums of a step instead of adding to them */
    const float *closes; /* for the unit's last bucket: the open buffer that is free afterwards; else NULL */
    struct comm_request *request;
};

struct open_slot {
    float *buffer;
    struct zero_unit *unit; /* NULL: free */
};

struct zero {
    struct device *dev, *host; /* host: a CPU for what lies in host memory; dev itself where that is one */
    const struct kernels *k, *on_host;
    struct zero_comms comms;
    const struct units *units;
    struct zero_config config; /* effective */
    struct zero_shared_sizes shared;
    struct zero_unit *state;
    bool first, last; /* of the step's micro-batches */

    struct open_slot open[BLOCK_SLOTS];
    struct reduce_slot reduce[REDUCE_SLOTS];
    int next_reduce; /* the oldest slot, which is used next */

    struct gather_slot *gathers; /* BLOCK_SLOTS for the blocks, then one a unit */
    int ngathers;
    const int *plan;
    size_t plan_count, plan_at;
    uint64_t clock;

    char *staging;                   /* [halves][STAGING_ELEMENTS] in host memory */
    uint64_t staged[2];              /* the transfer of each half; 0: none */
    int half;                        /* to be filled next */
    uint64_t landed;                 /* the last transfer of gradients to the host */
    uint64_t captured;               /* the last of zero_capture; 0: nothing is captured */
    float *tie;                      /* [2][TIE_ELEMENTS], in the memory of the sums */
    struct comm_request **gathering; /* [nunits], after a step */

    bool failed;
    struct error error; /* the first failure since the last zero_status */
};

/* zero.c */
void zero_fail(struct zero *zero, const struct error *err);
bool zero_is_block(const struct units *units, int unit);
static inline enum memory zero_state_space(const struct zero *zero)
{
    return zero->config.offload ? MEMORY_HOST : MEMORY_DEVICE;
}

/* True if this rank's shard of the gradients is summed in host memory. */
static inline bool zero_sums_on_host(const struct zero_config *effective)
{
    return effective->offload && effective->stage > 0;
}

/* The element of the unit at which u->grad begins. */
static inline size_t zero_grad_first(const struct zero *zero, const struct zero_unit *u)
{
    return u->size.grad == u->size.shard_count && zero->config.dp > 1 ? u->size.shard_first : 0;
}

/* The reduced gradients of [state_first, state_first + state_count), for the step. */
static inline float *zero_state_grad(const struct zero *zero, const struct zero_unit *u)
{
    return u->host_grad ? u->host_grad : u->grad + (u->size.state_first - zero_grad_first(zero, u));
}

/* The sums of this rank's shard; in stage 0 on the device, also with offload. */
static inline float *zero_shard_grad(const struct zero *zero, const struct zero_unit *u)
{
    return u->host_grad && zero->config.stage > 0 ? u->host_grad
                                                  : u->grad + (u->size.shard_first - zero_grad_first(zero, u));
}

/* The element of the unit at which u->param begins. */
static inline size_t zero_param_first(const struct zero *zero, const struct zero_unit *u)
{
    return zero->config.stage == 3 ? u->size.shard_first : 0;
}

/* zero_state.c: transfers between host and device. On a CPU they are copies. */
char *zero_staging(struct zero *zero); /* a free half, for STAGING_ELEMENTS of staging_element bytes */
void zero_send_staged(struct zero *zero, void *to, size_t bytes); /* sends that half, once filled */
void zero_staging_join(struct zero *zero); /* operations enqueued from now on wait for these transfers */
void zero_initialize_discrete(struct zero *zero, int unit, const struct initial_weights *initial);
void zero_fill_mirror(struct zero *zero); /* waits for the captured state, or copies the present one */
void zero_load_mirror(struct zero *zero); /* copies the mirrors to the state */

/* zero_params.c */
int zero_publish(struct zero *zero, struct error *err); /* parameters from the master copy, sent to all ranks */
void zero_forget_gathered(struct zero *zero);
int zero_start_spread(struct zero *zero, int unit, struct error *err); /* after its shard was updated */
int zero_finish_spread(struct zero *zero, struct error *err);

#endif

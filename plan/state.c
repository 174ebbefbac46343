/* state.c - the memory of ZeRO. */
#include "plan/state.h"

struct zero_config zero_effective(const struct zero_config *config)
{
    struct zero_config effective = *config;

    if (config->dp == 1) {
        effective.zero_stage = 0;
        effective.reduce_every_micro_batch = false;
    }
    return effective;
}

static bool needs_micro_grad(const struct zero_config *c)
{
    return c->reduce_every_micro_batch || c->many_micro_batches || c->grad_dtype != DTYPE_F32;
}

/* The sums over ranks are sent from the micro-batch's buffer. */
static bool sends_micro_grad(const struct zero_config *c)
{
    return c->reduce_every_micro_batch || (c->grad_dtype != DTYPE_F32 && c->dp > 1);
}

struct zero_sizes zero_sizes_of(size_t count, bool is_block, const struct zero_config *c)
{
    struct zero_sizes s = {0};

    s.shard_count = unit_shard(count, c->dp, c->dp_rank, &s.shard_first);
    s.state_first = c->zero_stage == 0 ? 0 : s.shard_first;
    s.state_count = c->zero_stage == 0 ? count : s.shard_count;
    s.param = c->zero_stage == 3 ? s.shard_count : count;
    s.param_first = c->zero_stage == 3 ? s.shard_first : 0;
    s.gathered = c->zero_stage == 3 && !is_block ? count : 0;
    s.mirror = c->discrete && c->mirror && !c->offload ? s.state_count : 0;
    s.master = c->compute_dtype != DTYPE_F32 || c->offload ? s.state_count : 0;
    s.host_grad = c->offload ? s.state_count : 0;
    if (!c->reduce_every_micro_batch || c->zero_stage == 0) {
        s.grad = count;
    } else if (!c->offload) {
        s.grad = s.shard_count;
        s.grad_first = s.shard_first;
    }
    s.own_micro_grad = needs_micro_grad(c) && !is_block ? count : 0;
    return s;
}

static size_t bucket_size(const struct rank_units *units, const struct zero_config *c)
{
    size_t bucket = BUCKET_ELEMENTS / (size_t)c->dp, largest = 0;

    for (int kind = 0; kind < UNIT_KINDS; kind++)
        if (units->number[kind] > 0 && units->size[kind].count / (size_t)c->dp > largest)
            largest = units->size[kind].count / (size_t)c->dp;
    if (bucket < LEAST_BUCKET)
        bucket = LEAST_BUCKET;
    return bucket < largest ? bucket : largest;
}

struct zero_shared_sizes zero_shared_of(const struct rank_units *units, const struct zero_config *c)
{
    size_t block = units->number[UNIT_KIND_BLOCK] > 0 ? units->size[UNIT_KIND_BLOCK].count : 0;
    struct zero_shared_sizes s = {0};

    s.block_gathered = c->zero_stage == 3 ? block : 0;
    s.staging_halves = c->discrete ? 2 : c->offload ? 1 : 0;
    s.staging_element = c->discrete ? sizeof(float) : dtype_size(c->compute_dtype);
    s.micro_grad_slots = !needs_micro_grad(c) || !block ? 0 : sends_micro_grad(c) ? BLOCK_SLOTS : 1;
    s.block_micro_grad = s.micro_grad_slots ? block : 0;
    if (c->dp > 1) {
        s.bucket = bucket_size(units, c);
        s.outgoing = c->reduce_dtype != DTYPE_F32;
        s.incoming = s.outgoing || sends_micro_grad(c);
    }
    s.bounce = c->discrete && s.incoming && zero_sums_on_host(c);
    return s;
}

void zero_unit_buffers(const struct zero_sizes *s, const struct zero_config *c, struct planned_buffer b[STATE_BUFFERS])
{
    enum footprint_kind state = c->offload ? FOOTPRINT_HOST_OPTIMIZER : FOOTPRINT_OPTIMIZER;
    size_t compute = dtype_size(c->compute_dtype), fp32 = sizeof(float);

    b[STATE_PARAM] = (struct planned_buffer){s->param * compute, FOOTPRINT_PARAMETERS};
    b[STATE_GRAD] = (struct planned_buffer){s->grad * dtype_size(c->grad_dtype), FOOTPRINT_GRADIENTS};
    b[STATE_MICRO_GRAD] = (struct planned_buffer){s->own_micro_grad * fp32, FOOTPRINT_GRADIENTS};
    b[STATE_HOST_GRAD] = (struct planned_buffer){s->host_grad * fp32, FOOTPRINT_HOST_OPTIMIZER};
    b[STATE_MASTER] = (struct planned_buffer){s->master * fp32, state};
    b[STATE_EXP_AVG] = b[STATE_EXP_AVG_SQ] = (struct planned_buffer){s->state_count * fp32, state};
    b[STATE_GATHERED] = (struct planned_buffer){s->gathered * compute, FOOTPRINT_COMMUNICATION};
    for (int kind = 0; kind < ZERO_KINDS; kind++)
        b[STATE_MIRROR + kind] = (struct planned_buffer){s->mirror * fp32, FOOTPRINT_HOST_STAGING};
}

void zero_shared_buffers(const struct zero_shared_sizes *s, const struct zero_config *c,
                         struct planned_buffer b[SHARED_BUFFERS])
{
    size_t part = s->bucket * dtype_size(c->reduce_dtype), all = part * (size_t)c->dp;
    bool tie_on_host = c->discrete && zero_sums_on_host(c);

    for (int i = 0; i < BLOCK_SLOTS; i++) {
        size_t micro_grad = i < s->micro_grad_slots ? s->block_micro_grad * sizeof(float) : 0;

        b[SHARED_MICRO_GRAD + i] = (struct planned_buffer){micro_grad, FOOTPRINT_GRADIENTS};
        b[SHARED_GATHERED + i] =
            (struct planned_buffer){s->block_gathered * dtype_size(c->compute_dtype), FOOTPRINT_COMMUNICATION};
    }
    for (int i = 0; i < REDUCE_SLOTS; i++) {
        b[SHARED_SCRATCH + i] = (struct planned_buffer){all, FOOTPRINT_COMMUNICATION};
        b[SHARED_OUTGOING + i] = (struct planned_buffer){s->outgoing ? all : 0, FOOTPRINT_COMMUNICATION};
        b[SHARED_INCOMING + i] = (struct planned_buffer){s->incoming ? part : 0, FOOTPRINT_COMMUNICATION};
        b[SHARED_BOUNCE + i] = (struct planned_buffer){s->bounce ? part : 0, FOOTPRINT_HOST_STAGING};
    }
    b[SHARED_TIE] = (struct planned_buffer){c->tied ? 2 * TIE_ELEMENTS * sizeof(float) : 0,
                                            tie_on_host ? FOOTPRINT_HOST_STAGING : FOOTPRINT_COMMUNICATION};
    b[SHARED_STAGING] = (struct planned_buffer){(size_t)s->staging_halves * STAGING_ELEMENTS * s->staging_element,
                                                c->discrete ? FOOTPRINT_HOST_STAGING : FOOTPRINT_HOST_OPTIMIZER};
}

void zero_footprint(const struct rank_units *units, const struct zero_config *config, struct footprint *bytes)
{
    struct zero_config effective = zero_effective(config);
    struct zero_shared_sizes shared = zero_shared_of(units, &effective);
    struct planned_buffer unit[STATE_BUFFERS], all[SHARED_BUFFERS];

    for (int kind = 0; kind < UNIT_KINDS; kind++) {
        struct zero_sizes sizes = zero_sizes_of(units->size[kind].count, kind == UNIT_KIND_BLOCK, &effective);

        zero_unit_buffers(&sizes, &effective, unit);
        footprint_add(bytes, unit, STATE_BUFFERS, (size_t)units->number[kind]);
    }
    zero_shared_buffers(&shared, &effective, all);
    footprint_add(bytes, all, SHARED_BUFFERS, 1);
}

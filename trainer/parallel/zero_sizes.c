/* zero_sizes.c - the sizes of all buffers. Pure: zero.c allocates by it, zero_footprint predicts by it. */
#include "trainer/parallel/zero_impl.h"

struct zero_config zero_effective(const struct zero_config *config)
{
    struct zero_config effective = *config;

    if (config->dp == 1) {
        effective.stage = 0;
        effective.reduce_every = false;
    }
    return effective;
}

static bool keeps_shard_only(const struct zero_config *c)
{
    return c->reduce_every && c->stage > 0;
}

static bool needs_open(const struct zero_config *c)
{
    return c->training && (c->reduce_every || c->many_micro_batches);
}

struct zero_sizes zero_sizes_of(const struct unit *unit, bool is_block, const struct zero_config *c)
{
    struct zero_sizes s = {0};

    s.shard_count = unit_shard(unit, c->dp, c->dp_rank, &s.shard_first);
    s.state_first = c->stage == 0 ? 0 : s.shard_first;
    s.state_count = c->stage == 0 ? unit->count : s.shard_count;
    s.param = c->stage == 3 ? s.shard_count : unit->count;
    s.gathered = c->stage == 3 && !is_block ? unit->count : 0;
    s.mirror = c->discrete && c->mirror && !c->offload ? s.state_count : 0;
    if (!c->training)
        return s;
    s.master = c->compute != DTYPE_F32 || c->offload ? s.state_count : 0;
    s.moment = s.state_count;
    s.host_grad = c->offload ? s.state_count : 0;
    if (!keeps_shard_only(c))
        s.grad = unit->count;
    else if (!c->offload)
        s.grad = s.shard_count;
    s.open = needs_open(c) && !is_block ? unit->count : 0;
    return s;
}

static size_t bucket_size(const struct units *units, const struct zero_config *c)
{
    size_t bucket = BUCKET_ELEMENTS / (size_t)c->dp, largest = 0;

    for (int i = 0; i < units->nunits; i++)
        if (units->units[i].count / (size_t)c->dp > largest)
            largest = units->units[i].count / (size_t)c->dp;
    if (bucket < LEAST_BUCKET)
        bucket = LEAST_BUCKET;
    return bucket < largest ? bucket : largest;
}

struct zero_shared_sizes zero_shared_sizes_of(const struct units *units, const struct zero_config *c)
{
    size_t block = units_largest_block(units);
    struct zero_shared_sizes s = {0};

    s.gather_slots = c->stage == 3 && block ? BLOCK_SLOTS : 0;
    s.block_gathered = s.gather_slots ? block : 0;
    s.staging_halves = c->discrete ? 2 : c->offload && c->training ? 1 : 0;
    s.staging_element = c->discrete ? sizeof(float) : dtype_size(c->compute);
    if (!c->training)
        return s;
    s.open_slots = !needs_open(c) || !block ? 0 : c->reduce_every ? BLOCK_SLOTS : 1;
    s.block_open = s.open_slots ? block : 0;
    if (c->dp > 1) {
        s.bucket = bucket_size(units, c);
        s.wire = c->wire != DTYPE_F32;
        s.incoming = s.wire || c->reduce_every;
    }
    s.bounce = c->discrete && s.incoming && zero_sums_on_host(c);
    return s;
}

void zero_footprint(const struct units *units, const struct zero_config *config, struct footprint *bytes)
{
    struct zero_config c = zero_effective(config);
    struct zero_shared_sizes shared = zero_shared_sizes_of(units, &c);
    size_t element = dtype_size(c.compute), state = 0, slot;

    for (int i = 0; i < units->nunits; i++) {
        bool is_block = i >= UNIT_BLOCK0 && i < units_head(units);
        struct zero_sizes s = zero_sizes_of(&units->units[i], is_block, &c);

        bytes->parameters += s.param * element;
        bytes->gradients += (s.grad + s.open) * sizeof(float);
        state += (s.master + 2 * s.moment) * sizeof(float);
        bytes->host_optimizer += s.host_grad * sizeof(float);
        bytes->host_staging += s.mirror * (c.training ? 3 : 1) * sizeof(float);
        bytes->communication += s.gathered * element;
    }
    *(c.offload ? &bytes->host_optimizer : &bytes->optimizer) += state;
    *(c.discrete ? &bytes->host_staging : &bytes->host_optimizer) +=
        (size_t)shared.staging_halves * STAGING_ELEMENTS * shared.staging_element;
    bytes->host_staging += shared.bounce ? REDUCE_SLOTS * shared.bucket * dtype_size(c.wire) : 0;
    bytes->gradients += (size_t)shared.open_slots * shared.block_open * sizeof(float);
    bytes->communication += (size_t)shared.gather_slots * shared.block_gathered * element;
    slot = shared.bucket * (size_t)c.dp * dtype_size(c.wire); /* scratch */
    slot += shared.wire ? shared.bucket * (size_t)c.dp * dtype_size(c.wire) : 0;
    slot += shared.incoming ? shared.bucket * dtype_size(c.wire) : 0;
    bytes->communication += REDUCE_SLOTS * slot;
    *(c.discrete && zero_sums_on_host(&c) ? &bytes->host_staging : &bytes->communication) +=
        c.tied && c.training ? 2 * TIE_ELEMENTS * sizeof(float) : 0;
}

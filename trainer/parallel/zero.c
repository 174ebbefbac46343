/* zero.c - the sizes of all buffers; creates and destroys. zero_impl.h lists what is where. */
#include <stdlib.h>

#include "trainer/parallel/zero_impl.h"

int zero_status(struct zero *zero, struct error *err)
{
    return error_take(&zero->error, err) < 0 ? -1 : device_status(zero->dev, err);
}

bool zero_is_block(const struct units *units, int unit)
{
    return unit >= UNIT_BLOCK0 && unit < units_head(units);
}

/* ---- sizes ---- */

struct zero_config zero_effective(const struct zero_config *config)
{
    struct zero_config effective = *config;

    if (config->dp == 1) {
        effective.zero_stage = 0;
        effective.reduce_every_micro_batch = false;
    }
    return effective;
}

static bool keeps_shard_only(const struct zero_config *c)
{
    return c->reduce_every_micro_batch && c->zero_stage > 0;
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

struct zero_sizes zero_sizes_of(const struct unit *unit, bool is_block, const struct zero_config *c)
{
    struct zero_sizes s = {0};

    s.shard_count = unit_shard(unit, c->dp, c->dp_rank, &s.shard_first);
    s.state_first = c->zero_stage == 0 ? 0 : s.shard_first;
    s.state_count = c->zero_stage == 0 ? unit->count : s.shard_count;
    s.param = c->zero_stage == 3 ? s.shard_count : unit->count;
    s.param_first = c->zero_stage == 3 ? s.shard_first : 0;
    s.gathered = c->zero_stage == 3 && !is_block ? unit->count : 0;
    s.mirror = c->discrete && c->mirror && !c->offload ? s.state_count : 0;
    s.master = c->compute_dtype != DTYPE_F32 || c->offload ? s.state_count : 0;
    s.moment = s.state_count;
    s.host_grad = c->offload ? s.state_count : 0;
    if (!keeps_shard_only(c)) {
        s.grad = unit->count;
    } else if (!c->offload) {
        s.grad = s.shard_count;
        s.grad_first = s.shard_first;
    }
    s.own_micro_grad = needs_micro_grad(c) && !is_block ? unit->count : 0;
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

static struct zero_shared_sizes shared_sizes_of(const struct units *units, const struct zero_config *c)
{
    size_t block = units_largest_block(units);
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

/* ---- buffers ---- */

struct zero_buffer {
    struct zero_buffer *next;
    enum memory space;
    void *at;
    size_t bytes;
};

static void clear_buffer(struct zero *zero, const struct zero_buffer *buffer)
{
    if (buffer->space == MEMORY_HOST)
        zero->on_host->zero(zero->host, buffer->at, buffer->bytes);
    else
        zero->k->zero(zero->dev, buffer->at, buffer->bytes);
}

void zero_clear(struct zero *zero)
{
    for (const struct zero_buffer *buffer = zero->buffers; buffer; buffer = buffer->next)
        clear_buffer(zero, buffer);
}

/*
 * Adds `bytes` to *counted, a field of a struct footprint. Without a device it only counts: so the prediction is exact.
 * The buffer is zeroed, because the padding between tensors is never written, and norms include it. With 0 bytes the
 * pointer stays NULL.
 */
static int alloc_buffer(struct zero *zero, enum memory space, void *address_of_pointer, size_t bytes, size_t *counted,
                        struct error *err)
{
    struct zero_buffer *buffer;

    *counted += bytes;
    if (!bytes || !zero->dev)
        return 0;
    buffer = error_calloc(1, sizeof *buffer, err);
    if (!buffer)
        return -1;
    *buffer = (struct zero_buffer){.next = zero->buffers, .space = space, .bytes = bytes};
    zero->buffers = buffer;
    buffer->at = *(void **)address_of_pointer = device_alloc(zero->dev, space, bytes, err);
    if (!buffer->at)
        return -1;
    clear_buffer(zero, buffer);
    return 0;
}

static int create_unit(struct zero *zero, int index, struct footprint *bytes, struct error *err)
{
    const struct zero_config *c = &zero->config;
    struct zero_unit *u = &zero->unit[index];
    enum memory space = zero_state_space(zero);
    size_t *state = c->offload ? &bytes->host_optimizer : &bytes->optimizer;
    struct zero_sizes *s = &u->size;
    int result = 0;

    u->unit = &zero->units->units[index];
    *s = zero_sizes_of(u->unit, zero_is_block(zero->units, index), c);
    if (alloc_buffer(zero, MEMORY_DEVICE, &u->param, s->param * dtype_size(c->compute_dtype), &bytes->parameters, err) <
            0 ||
        alloc_buffer(zero, MEMORY_DEVICE, &u->grad, s->grad * dtype_size(c->grad_dtype), &bytes->gradients, err) < 0 ||
        alloc_buffer(zero, MEMORY_DEVICE, &u->own_micro_grad, s->own_micro_grad * sizeof(float), &bytes->gradients,
                     err) < 0 ||
        alloc_buffer(zero, MEMORY_HOST, &u->host_grad, s->host_grad * sizeof(float), &bytes->host_optimizer, err) < 0 ||
        alloc_buffer(zero, space, &u->master, s->master * sizeof(float), state, err) < 0 ||
        alloc_buffer(zero, space, &u->exp_avg, s->moment * sizeof(float), state, err) < 0 ||
        alloc_buffer(zero, space, &u->exp_avg_sq, s->moment * sizeof(float), state, err) < 0)
        result = -1;
    for (int kind = 0; kind < ZERO_KINDS && result == 0; kind++)
        result =
            alloc_buffer(zero, MEMORY_HOST, &u->mirror[kind], s->mirror * sizeof(float), &bytes->host_staging, err);
    if (result < 0)
        return error_prefix(err, "%s", u->unit->name);
    if (!u->master && u->param)
        u->master = (float *)u->param + (s->state_first - u->size.param_first);
    return 0;
}

static int create_gathers(struct zero *zero, struct footprint *bytes, struct error *err)
{
    size_t element = dtype_size(zero->config.compute_dtype);

    if (zero->config.zero_stage < 3)
        return 0;
    zero->ngathers = BLOCK_SLOTS + zero->units->nunits;
    zero->gathers = error_calloc((size_t)zero->ngathers, sizeof *zero->gathers, err);
    if (!zero->gathers)
        return -1;
    for (int i = 0; i < zero->ngathers; i++) {
        bool shared = i < BLOCK_SLOTS;
        size_t count = shared ? zero->shared.block_gathered : zero->unit[i - BLOCK_SLOTS].size.gathered;

        zero->gathers[i].unit = -1;
        if (alloc_buffer(zero, MEMORY_DEVICE, &zero->gathers[i].buffer, count * element, &bytes->communication, err) <
            0)
            return error_prefix(err, "gathered parameters");
    }
    return 0;
}

static int create_shared(struct zero *zero, struct footprint *bytes, struct error *err)
{
    const struct zero_config *c = &zero->config;
    const struct zero_shared_sizes *s = &zero->shared;
    size_t part = s->bucket * dtype_size(c->reduce_dtype), all = part * (size_t)c->dp;
    size_t tie = c->tied ? 2 * TIE_ELEMENTS * sizeof(float) : 0;
    size_t staging = (size_t)s->staging_halves * STAGING_ELEMENTS * s->staging_element;
    bool tie_on_host = c->discrete && zero_sums_on_host(c);

    for (int i = 0; i < s->micro_grad_slots; i++)
        if (alloc_buffer(zero, MEMORY_DEVICE, &zero->micro_grad_slots[i].buffer, s->block_micro_grad * sizeof(float),
                         &bytes->gradients, err) < 0)
            return -1;
    for (int i = 0; i < REDUCE_SLOTS; i++) {
        struct reduce_slot *slot = &zero->reduce[i];
        size_t *counted = &bytes->communication;

        if (alloc_buffer(zero, MEMORY_DEVICE, &slot->scratch, all, counted, err) < 0 ||
            alloc_buffer(zero, MEMORY_DEVICE, &slot->outgoing, s->outgoing ? all : 0, counted, err) < 0 ||
            alloc_buffer(zero, MEMORY_DEVICE, &slot->incoming, s->incoming ? part : 0, counted, err) < 0 ||
            alloc_buffer(zero, MEMORY_HOST, &slot->bounce, s->bounce ? part : 0, &bytes->host_staging, err) < 0)
            return -1;
    }
    if (alloc_buffer(zero, tie_on_host ? MEMORY_HOST : MEMORY_DEVICE, &zero->tie, tie,
                     tie_on_host ? &bytes->host_staging : &bytes->communication, err) < 0)
        return -1;
    return alloc_buffer(zero, MEMORY_HOST, &zero->staging, staging,
                        c->discrete ? &bytes->host_staging : &bytes->host_optimizer, err);
}

static int create_buffers(struct zero *zero, struct footprint *bytes, struct error *err)
{
    for (int i = 0; i < zero->units->nunits; i++)
        if (create_unit(zero, i, bytes, err) < 0)
            return -1;
    return create_gathers(zero, bytes, err) < 0 ? -1 : create_shared(zero, bytes, err);
}

/* Without a device it only counts the bytes. */
static struct zero *create_zero(struct device *dev, const struct zero_comms *comms, const struct units *units,
                                const struct zero_config *config, struct footprint *bytes, struct error *err)
{
    struct zero *zero = error_calloc(1, sizeof *zero, err);

    if (!zero)
        return NULL;
    zero->dev = dev;
    zero->comms = *comms;
    zero->units = units;
    zero->config = zero_effective(config);
    zero->shared = shared_sizes_of(units, &zero->config);
    zero->unit = error_calloc((size_t)units->nunits, sizeof *zero->unit, err);
    zero->param_requests = error_calloc((size_t)units->nunits, sizeof *zero->param_requests, err);
    zero->squares = error_calloc((size_t)units->nunits, sizeof *zero->squares, err);
    if (!zero->unit || !zero->param_requests || !zero->squares)
        goto fail;
    if (dev) {
        zero->host = device_is_host(dev) ? dev : device_create("cpu", 0, err);
        if (!zero->host)
            goto fail;
        zero->k = device_kernels(dev);
        zero->on_host = device_kernels(zero->host);
    }
    if (create_buffers(zero, bytes, err) == 0)
        return zero;
fail:
    zero_destroy(zero);
    return NULL;
}

struct zero *zero_create(struct device *dev, const struct zero_comms *comms, const struct units *units,
                         const struct zero_config *config, struct error *err)
{
    struct footprint bytes = {0};

    return create_zero(dev, comms, units, config, &bytes, err);
}

void zero_footprint(const struct units *units, const struct zero_config *config, struct footprint *bytes)
{
    const struct zero_comms none = {0};
    struct error err;

    zero_destroy(create_zero(NULL, &none, units, config, bytes, &err));
}

void zero_destroy(struct zero *zero)
{
    if (!zero)
        return;
    if (zero->dev)
        device_transfer_wait(zero->dev, zero->snapshot_transfer); /* after a step there are no other transfers */
    while (zero->buffers) {
        struct zero_buffer *buffer = zero->buffers;

        zero->buffers = buffer->next;
        device_free(zero->dev, buffer->space, buffer->at);
        free(buffer);
    }
    if (zero->host != zero->dev)
        device_destroy(zero->host);
    free(zero->gathers);
    free(zero->param_requests);
    free(zero->squares);
    free(zero->unit);
    free(zero);
}

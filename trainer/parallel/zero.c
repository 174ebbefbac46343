/* zero.c - creates and destroys; zero_params.c, zero_grads.c and zero_state.c have the rest. */
#include <stdlib.h>

#include "trainer/parallel/zero_impl.h"

const char *const zero_kinds[ZERO_KINDS] = {"param", "exp_avg", "exp_avg_sq"};

void zero_fail(struct zero *zero, const struct error *err)
{
    if (!zero->failed)
        zero->error = *err;
    zero->failed = true;
}

int zero_status(struct zero *zero, struct error *err)
{
    if (!zero->failed)
        return device_status(zero->dev, err);
    *err = zero->error;
    zero->failed = false;
    return -1;
}

bool zero_is_block(const struct units *units, int unit)
{
    return unit >= UNIT_BLOCK0 && unit < units_head(units);
}

static void clear_buffer(struct zero *zero, enum memory space, void *at, size_t bytes)
{
    if (space == MEMORY_HOST)
        zero->on_host->zero(zero->host, at, bytes);
    else
        zero->k->zero(zero->dev, at, bytes);
}

/* Zeroed, because the padding between tensors is never written, and norms include it. No bytes: leaves NULL. */
static int alloc_buffer(struct zero *zero, enum memory space, void *pointer, size_t bytes, struct error *err)
{
    void **at = pointer;

    if (!bytes)
        return 0;
    *at = device_alloc(zero->dev, space, bytes, err);
    if (!*at)
        return -1;
    clear_buffer(zero, space, *at, bytes);
    return 0;
}

static int create_mirror(struct zero *zero, struct zero_unit *u, struct error *err)
{
    for (int kind = 0; kind < (zero->config.training ? ZERO_KINDS : 1); kind++)
        if (alloc_buffer(zero, MEMORY_HOST, &u->mirror[kind], u->size.mirror * sizeof(float), err) < 0)
            return -1;
    return 0;
}

static int unit_create(struct zero *zero, int index, struct error *err)
{
    const struct zero_config *c = &zero->config;
    struct zero_unit *u = &zero->state[index];
    enum memory space = zero_state_space(zero);
    struct zero_sizes *s = &u->size;

    u->unit = &zero->units->units[index];
    *s = zero_sizes_of(u->unit, zero_is_block(zero->units, index), c);
    if (alloc_buffer(zero, MEMORY_DEVICE, &u->param, s->param * dtype_size(c->compute), err) < 0 ||
        alloc_buffer(zero, MEMORY_DEVICE, &u->grad, s->grad * sizeof(float), err) < 0 ||
        alloc_buffer(zero, MEMORY_DEVICE, &u->open, s->open * sizeof(float), err) < 0 ||
        alloc_buffer(zero, MEMORY_HOST, &u->host_grad, s->host_grad * sizeof(float), err) < 0 ||
        alloc_buffer(zero, space, &u->master, s->master * sizeof(float), err) < 0 ||
        alloc_buffer(zero, space, &u->exp_avg, s->moment * sizeof(float), err) < 0 ||
        alloc_buffer(zero, space, &u->exp_avg_sq, s->moment * sizeof(float), err) < 0 ||
        create_mirror(zero, u, err) < 0)
        return error_prefix(err, "%s", u->unit->name);
    if (!u->master)
        u->master = (float *)u->param + (s->state_first - zero_param_first(zero, u));
    return 0;
}

static int create_gathers(struct zero *zero, struct error *err)
{
    size_t element = dtype_size(zero->config.compute);

    if (zero->config.stage < 3)
        return 0;
    zero->ngathers = BLOCK_SLOTS + zero->units->nunits;
    zero->gathers = calloc((size_t)zero->ngathers, sizeof *zero->gathers);
    if (!zero->gathers)
        return error_set(err, CODE_IO, "out of memory for %d units", zero->ngathers);
    for (int i = 0; i < zero->ngathers; i++) {
        bool shared = i < BLOCK_SLOTS;
        size_t count = shared ? zero->shared.block_gathered : zero->state[i - BLOCK_SLOTS].size.gathered;

        zero->gathers[i].unit = -1;
        if (alloc_buffer(zero, MEMORY_DEVICE, &zero->gathers[i].buffer, count * element, err) < 0)
            return error_prefix(err, "gathered parameters");
    }
    return 0;
}

/* The memory of the buffer for the tied embedding's gradients. */
static enum memory zero_tie_space(const struct zero *zero)
{
    return zero->config.discrete && zero_sums_on_host(&zero->config) ? MEMORY_HOST : MEMORY_DEVICE;
}

static int create_shared(struct zero *zero, struct error *err)
{
    const struct zero_shared_sizes *s = &zero->shared;
    size_t all = s->bucket * (size_t)zero->config.dp * dtype_size(zero->config.wire);
    enum memory tie = zero_tie_space(zero);

    for (int i = 0; i < s->open_slots; i++)
        if (alloc_buffer(zero, MEMORY_DEVICE, &zero->open[i].buffer, s->block_open * sizeof(float), err) < 0)
            return -1;
    for (int i = 0; i < REDUCE_SLOTS; i++) {
        struct reduce_slot *slot = &zero->reduce[i];
        size_t incoming = s->incoming ? s->bucket * dtype_size(zero->config.wire) : 0;

        if (alloc_buffer(zero, MEMORY_DEVICE, &slot->scratch, all, err) < 0 ||
            alloc_buffer(zero, MEMORY_DEVICE, &slot->wire, s->wire ? all : 0, err) < 0 ||
            alloc_buffer(zero, MEMORY_DEVICE, &slot->incoming, incoming, err) < 0 ||
            alloc_buffer(zero, MEMORY_HOST, &slot->bounce, s->bounce ? incoming : 0, err) < 0)
            return -1;
    }
    if (zero->config.tied && zero->config.training &&
        alloc_buffer(zero, tie, &zero->tie, 2 * TIE_ELEMENTS * sizeof(float), err) < 0)
        return -1;
    return alloc_buffer(zero, MEMORY_HOST, &zero->staging,
                        (size_t)s->staging_halves * STAGING_ELEMENTS * s->staging_element, err);
}

struct zero *zero_create(struct device *dev, const struct zero_comms *comms, const struct units *units,
                         const struct zero_config *config, struct error *err)
{
    struct zero *zero = calloc(1, sizeof *zero);

    if (zero) {
        zero->dev = dev;
        zero->k = device_kernels(dev);
        zero->comms = *comms;
        zero->units = units;
        zero->config = zero_effective(config);
        zero->shared = zero_shared_sizes_of(units, &zero->config);
        zero->state = calloc((size_t)units->nunits, sizeof *zero->state);
        zero->gathering = calloc((size_t)units->nunits, sizeof *zero->gathering);
    }
    if (!zero || !zero->state || !zero->gathering) {
        error_set(err, CODE_IO, "out of memory for %d units", units->nunits);
        goto fail;
    }
    zero->host = device_is_host(dev) ? dev : device_create("cpu", 0, err);
    if (!zero->host)
        goto fail;
    zero->on_host = device_kernels(zero->host);
    for (int i = 0; i < units->nunits; i++)
        if (unit_create(zero, i, err) < 0)
            goto fail;
    if (create_gathers(zero, err) < 0 || create_shared(zero, err) < 0)
        goto fail;
    return zero;
fail:
    zero_destroy(zero);
    return NULL;
}

static void unit_destroy(struct zero *zero, struct zero_unit *u)
{
    enum memory space = zero_state_space(zero);

    if (u->size.master)
        device_free(zero->dev, space, u->master);
    device_free(zero->dev, MEMORY_DEVICE, u->param);
    device_free(zero->dev, MEMORY_DEVICE, u->grad);
    device_free(zero->dev, MEMORY_DEVICE, u->open);
    device_free(zero->dev, MEMORY_HOST, u->host_grad);
    device_free(zero->dev, space, u->exp_avg);
    device_free(zero->dev, space, u->exp_avg_sq);
    for (int kind = 0; kind < ZERO_KINDS; kind++)
        device_free(zero->dev, MEMORY_HOST, u->mirror[kind]);
}

void zero_destroy(struct zero *zero)
{
    if (!zero)
        return;
    device_transfer_wait(zero->dev, zero->captured); /* after a step there are no other transfers */
    for (int i = 0; zero->state && i < zero->units->nunits; i++)
        unit_destroy(zero, &zero->state[i]);
    for (int i = 0; zero->gathers && i < zero->ngathers; i++)
        device_free(zero->dev, MEMORY_DEVICE, zero->gathers[i].buffer);
    for (int i = 0; i < BLOCK_SLOTS; i++)
        device_free(zero->dev, MEMORY_DEVICE, zero->open[i].buffer);
    for (int i = 0; i < REDUCE_SLOTS; i++) {
        device_free(zero->dev, MEMORY_DEVICE, zero->reduce[i].scratch);
        device_free(zero->dev, MEMORY_DEVICE, zero->reduce[i].wire);
        device_free(zero->dev, MEMORY_DEVICE, zero->reduce[i].incoming);
        device_free(zero->dev, MEMORY_HOST, zero->reduce[i].bounce);
    }
    device_free(zero->dev, zero_tie_space(zero), zero->tie);
    device_free(zero->dev, MEMORY_HOST, zero->staging);
    if (zero->host != zero->dev)
        device_destroy(zero->host);
    free(zero->gathers);
    free(zero->gathering);
    free(zero->state);
    free(zero);
}

void zero_clear(struct zero *zero)
{
    enum memory space = zero_state_space(zero);

    for (int i = 0; i < zero->units->nunits; i++) {
        struct zero_unit *u = &zero->state[i];

        clear_buffer(zero, MEMORY_DEVICE, u->param, u->size.param * dtype_size(zero->config.compute));
        clear_buffer(zero, space, u->master, u->size.state_count * sizeof(float));
        clear_buffer(zero, space, u->exp_avg, u->size.moment * sizeof(float));
        clear_buffer(zero, space, u->exp_avg_sq, u->size.moment * sizeof(float));
        for (int kind = 0; kind < ZERO_KINDS; kind++)
            if (u->mirror[kind])
                clear_buffer(zero, MEMORY_HOST, u->mirror[kind], u->size.mirror * sizeof(float));
    }
}

int zero_initialize(struct zero *zero, const struct initial_weights *initial, struct error *err)
{
    bool discrete = zero->config.discrete && !zero->config.offload;

    zero_clear(zero);
    for (int i = 0; i < zero->units->nunits; i++) {
        struct zero_unit *u = &zero->state[i];

        if (discrete)
            zero_initialize_discrete(zero, i, initial);
        else if (u->size.state_count)
            initial_weights(initial, zero->units, i, u->size.state_first, u->size.state_count, u->master);
    }
    return zero_publish(zero, err);
}

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

/* Allocates a buffer of plan/state.h. It is zeroed, because the padding between tensors is never written, and norms
 * include it. With 0 bytes the pointer stays NULL. */
static int alloc_buffer(struct zero *zero, void *address_of_pointer, const struct planned_buffer *planned,
                        struct error *err)
{
    struct zero_buffer *buffer;

    if (!planned->bytes)
        return 0;
    buffer = error_calloc(1, sizeof *buffer, err);
    if (!buffer)
        return -1;
    *buffer = (struct zero_buffer){.next = zero->buffers,
                                   .space = footprint_on_host(planned->kind) ? MEMORY_HOST : MEMORY_DEVICE,
                                   .bytes = planned->bytes};
    zero->buffers = buffer;
    buffer->at = *(void **)address_of_pointer = device_alloc(zero->dev, buffer->space, buffer->bytes, err);
    if (!buffer->at)
        return -1;
    clear_buffer(zero, buffer);
    return 0;
}

static int create_unit(struct zero *zero, int index, struct error *err)
{
    struct zero_unit *u = &zero->unit[index];
    void *none; /* below ZeRO stage 3 */
    void *const addresses[STATE_BUFFERS] = {
        [STATE_PARAM] = &u->param,
        [STATE_GRAD] = &u->grad,
        [STATE_MICRO_GRAD] = &u->own_micro_grad,
        [STATE_HOST_GRAD] = &u->host_grad,
        [STATE_MASTER] = &u->master,
        [STATE_EXP_AVG] = &u->exp_avg,
        [STATE_EXP_AVG_SQ] = &u->exp_avg_sq,
        [STATE_GATHERED] = zero->gathers ? (void *)&zero->gathers[BLOCK_SLOTS + index].buffer : &none,
        [STATE_MIRROR] = &u->mirror[0],
        [STATE_MIRROR + 1] = &u->mirror[1],
        [STATE_MIRROR + 2] = &u->mirror[2],
    };
    struct planned_buffer buffers[STATE_BUFFERS];

    u->unit = &zero->units->units[index];
    u->size = zero_sizes_of(u->unit->count, zero_is_block(zero->units, index), &zero->config);
    zero_unit_buffers(&u->size, &zero->config, buffers);
    for (int i = 0; i < STATE_BUFFERS; i++)
        if (alloc_buffer(zero, addresses[i], &buffers[i], err) < 0)
            return error_prefix(err, "%s", u->unit->name);
    if (!u->master && u->param)
        u->master = (float *)u->param + (u->size.state_first - u->size.param_first);
    return 0;
}

static int create_gathers(struct zero *zero, struct error *err)
{
    if (zero->config.zero_stage < 3)
        return 0;
    zero->ngathers = BLOCK_SLOTS + zero->units->nunits;
    zero->gathers = error_calloc((size_t)zero->ngathers, sizeof *zero->gathers, err);
    for (int i = 0; zero->gathers && i < zero->ngathers; i++)
        zero->gathers[i].unit = -1;
    return zero->gathers ? 0 : -1;
}

static int create_shared(struct zero *zero, struct error *err)
{
    struct planned_buffer buffers[SHARED_BUFFERS];
    void *none, *addresses[SHARED_BUFFERS] = {[SHARED_TIE] = &zero->tie, [SHARED_STAGING] = &zero->staging};

    for (int i = 0; i < BLOCK_SLOTS; i++) {
        addresses[SHARED_MICRO_GRAD + i] = &zero->micro_grad_slots[i].buffer;
        addresses[SHARED_GATHERED + i] = zero->gathers ? (void *)&zero->gathers[i].buffer : &none;
    }
    for (int i = 0; i < REDUCE_SLOTS; i++) {
        addresses[SHARED_SCRATCH + i] = &zero->reduce[i].scratch;
        addresses[SHARED_OUTGOING + i] = &zero->reduce[i].outgoing;
        addresses[SHARED_INCOMING + i] = &zero->reduce[i].incoming;
        addresses[SHARED_BOUNCE + i] = &zero->reduce[i].bounce;
    }
    zero_shared_buffers(&zero->shared, &zero->config, buffers);
    for (int i = 0; i < SHARED_BUFFERS; i++)
        if (alloc_buffer(zero, addresses[i], &buffers[i], err) < 0)
            return error_prefix(err, "exchanges of ZeRO");
    return 0;
}

struct zero *zero_create(struct device *dev, const struct zero_comms *comms, const struct units *units,
                         const struct rank_units *counts, const struct zero_config *config, struct error *err)
{
    struct zero *zero = error_calloc(1, sizeof *zero, err);

    if (!zero)
        return NULL;
    zero->dev = dev;
    zero->comms = *comms;
    zero->units = units;
    zero->config = zero_effective(config);
    zero->shared = zero_shared_of(counts, &zero->config);
    zero->unit = error_calloc((size_t)units->nunits, sizeof *zero->unit, err);
    zero->param_requests = error_calloc((size_t)units->nunits, sizeof *zero->param_requests, err);
    zero->squares = error_calloc((size_t)units->nunits, sizeof *zero->squares, err);
    zero->host = device_is_host(dev) ? dev : device_create("cpu", 0, err);
    if (!zero->unit || !zero->param_requests || !zero->squares || !zero->host || create_gathers(zero, err) < 0)
        goto fail;
    zero->k = device_kernels(dev);
    zero->on_host = device_kernels(zero->host);
    for (int i = 0; i < units->nunits; i++)
        if (create_unit(zero, i, err) < 0)
            goto fail;
    if (create_shared(zero, err) == 0)
        return zero;
fail:
    zero_destroy(zero);
    return NULL;
}

void zero_destroy(struct zero *zero)
{
    if (!zero)
        return;
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

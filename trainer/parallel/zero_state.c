/* zero_state.c - the state for checkpoints, and transfers of it between host and device. */
#include <stdlib.h>

#include "trainer/parallel/zero_impl.h"

int zero_pieces(struct zero *zero, bool saving, struct ckpt_piece **pieces, void ***addresses, size_t *npieces,
                struct error *err)
{
    size_t most = (size_t)zero->units->nunits * UNIT_MAX_TENSORS, n = 0;
    size_t offsets[UNIT_MAX_TENSORS];

    if (zero->config.discrete && !zero->config.offload && !zero->config.mirror)
        return error_set(err, CODE_INTERNAL, "zero: no host memory was allocated for checkpoints");
    if (saving && zero->config.discrete && !zero->config.offload)
        zero_fill_mirror(zero);
    *pieces = calloc(most, sizeof **pieces);
    *addresses = calloc(most * ZERO_KINDS, sizeof **addresses);
    if (!*pieces || !*addresses) {
        free(*pieces);
        free(*addresses);
        return error_set(err, CODE_IO, "out of memory for the list of %zu tensors", most);
    }
    for (int i = 0; i < zero->units->nunits; i++) {
        struct zero_unit *u = &zero->state[i];
        size_t first = saving ? u->size.shard_first : u->size.state_first;
        size_t count = saving ? u->size.shard_count : u->size.state_count;
        size_t got = units_pieces(zero->units, i, first, count, saving, *pieces + n, offsets);

        for (size_t j = 0; j < got; j++, n++) {
            size_t at = offsets[j] - u->size.state_first;
            void **address = *addresses + n * ZERO_KINDS;

            address[0] = (u->size.mirror ? u->mirror[0] : u->master) + at;
            address[1] = (u->size.mirror ? u->mirror[1] : u->exp_avg) + at;
            address[2] = (u->size.mirror ? u->mirror[2] : u->exp_avg_sq) + at;
        }
    }
    *npieces = n;
    return 0;
}

int zero_loaded(struct zero *zero, struct error *err)
{
    if (zero->config.discrete && !zero->config.offload)
        zero_load_mirror(zero);
    return zero_publish(zero, err);
}

float *zero_master(struct zero *zero, int unit)
{
    struct zero_unit *u = &zero->state[unit];

    return u->size.mirror ? u->mirror[0] : u->master;
}

/* ---- staging: from the host to a device, half by half ---- */

static char *half_at(const struct zero *zero)
{
    return zero->staging + (size_t)zero->half * STAGING_ELEMENTS * zero->shared.staging_element;
}

char *zero_staging(struct zero *zero)
{
    device_transfer_wait(zero->dev, zero->staged[zero->half]);
    zero->staged[zero->half] = 0;
    return half_at(zero);
}

void zero_send_staged(struct zero *zero, void *to, size_t bytes)
{
    zero->staged[zero->half] = device_transfer(zero->dev, to, half_at(zero), bytes);
    zero->half = (zero->half + 1) % zero->shared.staging_halves;
}

void zero_staging_join(struct zero *zero)
{
    for (int i = 0; i < 2; i++)
        device_transfer_join(zero->dev, zero->staged[i]);
}

/* ---- initial weights ---- */

void zero_initialize_discrete(struct zero *zero, int unit, const struct initial_weights *initial)
{
    struct zero_unit *u = &zero->state[unit];

    for (size_t low = 0; low < u->size.state_count; low += STAGING_ELEMENTS) {
        size_t left = u->size.state_count - low, count = left < STAGING_ELEMENTS ? left : STAGING_ELEMENTS;

        initial_weights(initial, zero->units, unit, u->size.state_first + low, count, (float *)zero_staging(zero));
        zero_send_staged(zero, u->master + low, count * sizeof(float));
    }
    zero_staging_join(zero);
}

/* ---- the mirror ---- */

static float *state_of(const struct zero_unit *u, int kind)
{
    float *const state[ZERO_KINDS] = {u->master, u->exp_avg, u->exp_avg_sq};

    return state[kind];
}

bool zero_capture(struct zero *zero)
{
    if (!zero->config.discrete || zero->config.offload)
        return false;
    for (int i = 0; i < zero->units->nunits; i++) {
        const struct zero_unit *u = &zero->state[i];

        for (int kind = 0; kind < ZERO_KINDS; kind++)
            if (u->mirror[kind])
                zero->captured =
                    device_transfer(zero->dev, u->mirror[kind], state_of(u, kind), u->size.mirror * sizeof(float));
    }
    return true; /* the same on all ranks, though one may hold nothing */
}

void zero_fill_mirror(struct zero *zero)
{
    if (!zero->captured)
        zero_capture(zero);
    device_transfer_wait(zero->dev, zero->captured);
    zero->captured = 0;
}

void zero_load_mirror(struct zero *zero)
{
    uint64_t ticket = 0;

    for (int i = 0; i < zero->units->nunits; i++) {
        const struct zero_unit *u = &zero->state[i];

        for (int kind = 0; kind < ZERO_KINDS; kind++)
            if (u->mirror[kind])
                ticket = device_transfer(zero->dev, state_of(u, kind), u->mirror[kind], u->size.mirror * sizeof(float));
    }
    device_transfer_join(zero->dev, ticket);
    device_transfer_wait(zero->dev, ticket);
}

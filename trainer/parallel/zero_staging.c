/* zero_staging.c - from the host to a device, half by half; and the state's mirror in host memory. */
#include "trainer/parallel/zero_impl.h"

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
    return true; /* alike on all ranks, though one may hold nothing */
}

void zero_show(struct zero *zero)
{
    if (!zero->captured)
        zero_capture(zero);
    device_transfer_wait(zero->dev, zero->captured);
    zero->captured = 0;
}

void zero_take_mirror(struct zero *zero)
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

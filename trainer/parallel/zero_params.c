/* zero_params.c - the optimizer step; gathers parameters: before use in ZeRO stage 3, after a step in 1 and 2. */

#include "trainer/parallel/zero_impl.h"

static char *element_bytes(const struct zero *zero, char *buffer, size_t index)
{
    return buffer + index * dtype_size(zero->config.compute_dtype);
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

/* ---- ZeRO stage 3: units are gathered and released ---- */

void zero_plan(struct zero *zero, const int *units, size_t count)
{
    zero->plan = units;
    zero->plan_count = count;
    zero->plan_at = 0;
}

/* The slot that holds or receives the unit, or NULL. */
static struct gather_slot *find_slot(const struct zero *zero, int unit)
{
    for (int i = 0; i < zero->ngathers; i++)
        if (zero->gathers[i].unit == unit)
            return &zero->gathers[i];
    return NULL;
}

/* Blocks share a few slots: takes the least recently used free one. Other units have their own. */
static struct gather_slot *choose_slot(struct zero *zero, int unit)
{
    struct gather_slot *best = NULL;

    if (!zero_is_block(zero->units, unit))
        return &zero->gathers[BLOCK_SLOTS + unit];
    for (int i = 0; i < BLOCK_SLOTS; i++) {
        struct gather_slot *slot = &zero->gathers[i];

        if (!slot->in_use && !slot->request && (!best || slot->used < best->used))
            best = slot;
    }
    return best;
}

/* NULL if every slot is in use, which can happen only for a unit that is gathered ahead; it is then gathered later. */
static struct gather_slot *start_gather(struct zero *zero, int unit)
{
    struct zero_unit *u = &zero->unit[unit];
    struct gather_slot *slot = find_slot(zero, unit);

    if (slot)
        return slot;
    slot = choose_slot(zero, unit);
    if (!slot)
        return NULL;
    slot->unit = unit;
    zero->k->copy(zero->dev, element_bytes(zero, slot->buffer, u->size.shard_first), u->param,
                  u->size.shard_count * dtype_size(zero->config.compute_dtype));
    comm_purpose(zero->comms.dp, u->unit->name, "parameters");
    slot->request = comm_start_all_gather(zero->comms.dp, zero->config.compute_dtype, slot->buffer, u->size.shard_count,
                                          error_first(&zero->error));
    return slot;
}

void zero_gather(struct zero *zero, int unit)
{
    struct gather_slot *slot;

    if (zero->config.zero_stage < 3)
        return;
    if (zero->plan_at >= zero->plan_count || zero->plan[zero->plan_at] != unit)
        error_set(error_first(&zero->error), CODE_INTERNAL, "unit %d is gathered out of the plan's order", unit);
    zero->plan_at++;
    slot = start_gather(zero, unit);
    if (!slot) {
        error_set(error_first(&zero->error), CODE_INTERNAL, "no slot is free to gather unit %d", unit);
        return;
    }
    slot->in_use = true;
    slot->used = ++zero->clock;
    if (zero->plan_at < zero->plan_count) /* gather the next unit while this one is used */
        start_gather(zero, zero->plan[zero->plan_at]);
    comm_wait(slot->request, error_first(&zero->error));
    slot->request = NULL;
}

void zero_release(struct zero *zero, int unit)
{
    struct gather_slot *slot = find_slot(zero, unit);

    if (slot)
        slot->in_use = false;
}

const void *zero_param(const struct zero *zero, int unit)
{
    const struct gather_slot *slot = find_slot(zero, unit);

    /* After a failure there may be no slot; the step's results are discarded, so any memory of the size is enough. */
    if (zero->config.zero_stage < 3)
        return zero->unit[unit].param;
    return slot ? slot->buffer : zero->gathers[zero_is_block(zero->units, unit) ? 0 : BLOCK_SLOTS + unit].buffer;
}

/* After a step the gathered parameters are outdated. Waits for units gathered ahead and not used. */
static void forget_gathered(struct zero *zero)
{
    for (int i = 0; i < zero->ngathers; i++) {
        comm_wait(zero->gathers[i].request, error_first(&zero->error));
        zero->gathers[i].request = NULL;
        zero->gathers[i].in_use = false;
        zero->gathers[i].unit = -1;
    }
}

/* ---- stages 1 and 2: updated shards are gathered ---- */

static void start_all_gather(struct zero *zero, int unit)
{
    struct zero_unit *u = &zero->unit[unit];

    if (zero->config.zero_stage == 0 || zero->config.zero_stage == 3 || !u->unit->count)
        return;
    comm_purpose(zero->comms.dp, u->unit->name, "parameters");
    zero->param_requests[unit] = comm_start_all_gather(zero->comms.dp, zero->config.compute_dtype, u->param,
                                                       u->size.shard_count, error_first(&zero->error));
}

static int finish_all_gather(struct zero *zero, struct error *err)
{
    for (int i = 0; i < zero->units->nunits; i++) {
        comm_wait(zero->param_requests[i], error_first(&zero->error));
        zero->param_requests[i] = NULL;
    }
    return zero_status(zero, err);
}

/* Parameters from their master copy. */
static void refresh_unit(struct zero *zero, const struct zero_unit *u)
{
    enum dtype compute = zero->config.compute_dtype;
    char *param = element_bytes(zero, u->param, u->size.state_first - u->size.param_first);

    if (!u->size.master)
        return;
    if (!zero->config.discrete || !zero->config.offload) {
        zero->k->cast(zero->dev, compute, param, DTYPE_F32, u->master, u->size.state_count);
        return;
    }
    for (size_t low = 0; low < u->size.state_count; low += STAGING_ELEMENTS) {
        size_t left = u->size.state_count - low, count = left < STAGING_ELEMENTS ? left : STAGING_ELEMENTS;

        zero->on_host->cast(zero->host, compute, zero_staging(zero), DTYPE_F32, u->master + low, count);
        zero_send_staged(zero, element_bytes(zero, param, low), count * dtype_size(compute));
    }
    zero_staging_join(zero);
}

int zero_refresh_params(struct zero *zero, struct error *err)
{
    forget_gathered(zero);
    for (int i = 0; i < zero->units->nunits; i++) {
        refresh_unit(zero, &zero->unit[i]);
        start_all_gather(zero, i);
    }
    return finish_all_gather(zero, err);
}

/* ---- AdamW on this rank's part of the state, and the new parameters ---- */

/* Elements [low, low + count) of a unit, all of one tensor. */
static struct adamw step_range(const struct zero *zero, const struct zero_unit *u, const float *grad,
                               const struct adamw *hyperparameters, size_t low, size_t count)
{
    struct adamw adamw = *hyperparameters;
    size_t at = low - u->size.state_first;

    adamw.count = count;
    adamw.param = u->master + at;
    adamw.grad = grad + at;
    adamw.exp_avg = u->exp_avg + at;
    adamw.exp_avg_sq = u->exp_avg_sq + at;
    adamw.copy_dtype = zero->config.compute_dtype;
    if (u->size.master || zero->config.offload)
        adamw.copy = element_bytes(zero, u->param, low - u->size.param_first);
    return adamw;
}

/* Through a staging buffer. */
static void step_on_host(struct zero *zero, struct adamw adamw)
{
    void *param = adamw.copy;

    adamw.copy = zero_staging(zero);
    zero->on_host->adamw(zero->host, &adamw, 1);
    zero_send_staged(zero, param, adamw.count * dtype_size(zero->config.compute_dtype));
}

static void step_unit(struct zero *zero, const struct zero_unit *u, const struct adamw *hyperparameters)
{
    size_t most = zero->config.offload ? STAGING_ELEMENTS : SIZE_MAX;
    const float *grad = u->host_grad;
    struct adamw arrays[UNIT_MAX_TENSORS];
    int count = 0;

    if (!u->size.state_count)
        return;
    if (!grad)
        grad = zero_widen_grad(zero, u, u->size.state_first, u->size.state_count);
    /* Tensor by tensor: they differ in weight decay, and padding must not change. */
    for (int i = 0; i < u->unit->ntensors; i++) {
        const struct unit_tensor *t = &u->unit->tensors[i];
        size_t begin, left = unit_tensor_overlap(t, u->size.state_first, u->size.state_count, &begin), here;

        for (size_t low = t->offset + begin; left > 0; low += here, left -= here) {
            here = left < most ? left : most;
            struct adamw adamw = step_range(zero, u, grad, hyperparameters, low, here);

            if (!t->row.decays)
                adamw.weight_decay = 0;
            if (zero->config.offload)
                step_on_host(zero, adamw);
            else
                arrays[count++] = adamw;
        }
    }
    if (zero->config.offload)
        zero_staging_join(zero);
    else
        zero->k->adamw(zero->dev, arrays, count);
}

int zero_step(struct zero *zero, const struct adamw *hyperparameters, struct error *err)
{
    forget_gathered(zero);
    device_transfer_join(zero->dev, zero->snapshot_transfer); /* the snapshot state is about to change */
    for (int i = 0; i < zero->units->nunits; i++) {
        step_unit(zero, &zero->unit[i], hyperparameters);
        start_all_gather(zero, i);
    }
    if (finish_all_gather(zero, err) < 0)
        return -1;
    return zero->host == zero->dev ? 0 : device_status(zero->host, err);
}

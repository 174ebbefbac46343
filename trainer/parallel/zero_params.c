/* zero_params.c - the optimizer step, and the parameters: gathered for use in stage 3, after a step in 1 and 2. */
#include <math.h>
#include <string.h>

#include "trainer/parallel/zero_impl.h"

static char *element_bytes(const struct zero *zero, char *buffer, size_t index)
{
    return buffer + index * dtype_size(zero->config.compute);
}

/* ---- stage 3: units are gathered and released ---- */

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
    struct zero_unit *u = &zero->state[unit];
    struct gather_slot *slot = find_slot(zero, unit);
    struct error err;

    if (slot)
        return slot;
    slot = choose_slot(zero, unit);
    if (!slot)
        return NULL;
    slot->unit = unit;
    zero->k->copy(zero->dev, element_bytes(zero, slot->buffer, u->size.shard_first), u->param,
                  u->size.shard_count * dtype_size(zero->config.compute));
    comm_purpose(zero->comms.dp, u->unit->name, "parameters");
    slot->request =
        comm_start_all_gather(zero->comms.dp, zero->config.compute, slot->buffer, u->size.shard_count, &err);
    if (!slot->request)
        zero_fail(zero, &err);
    return slot;
}

void zero_gather(struct zero *zero, int unit)
{
    struct gather_slot *slot;
    struct error err;

    if (zero->config.stage < 3)
        return;
    if (zero->plan_at >= zero->plan_count || zero->plan[zero->plan_at] != unit) {
        error_set(&err, CODE_INTERNAL, "unit %d is gathered out of the plan's order", unit);
        zero_fail(zero, &err);
    }
    zero->plan_at++;
    slot = start_gather(zero, unit);
    if (!slot) {
        error_set(&err, CODE_INTERNAL, "no slot is free to gather unit %d", unit);
        zero_fail(zero, &err);
        return;
    }
    slot->in_use = true;
    slot->used = ++zero->clock;
    if (zero->plan_at < zero->plan_count) /* gather the next unit while this one is used */
        start_gather(zero, zero->plan[zero->plan_at]);
    if (comm_wait(slot->request, &err) < 0)
        zero_fail(zero, &err);
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
    if (zero->config.stage < 3)
        return zero->state[unit].param;
    return slot ? slot->buffer : zero->gathers[zero_is_block(zero->units, unit) ? 0 : BLOCK_SLOTS + unit].buffer;
}

/* After a step the gathered parameters are outdated. Waits for units gathered ahead and not used. */
void zero_forget_gathered(struct zero *zero)
{
    struct error err;

    for (int i = 0; i < zero->ngathers; i++) {
        if (comm_wait(zero->gathers[i].request, &err) < 0)
            zero_fail(zero, &err);
        zero->gathers[i].request = NULL;
        zero->gathers[i].in_use = false;
        zero->gathers[i].unit = -1;
    }
}

/* ---- stages 1 and 2: updated shards are gathered ---- */

int zero_start_spread(struct zero *zero, int unit, struct error *err)
{
    struct zero_unit *u = &zero->state[unit];

    if (zero->config.stage == 0 || zero->config.stage == 3 || !u->unit->count)
        return 0;
    comm_purpose(zero->comms.dp, u->unit->name, "parameters");
    zero->gathering[unit] =
        comm_start_all_gather(zero->comms.dp, zero->config.compute, u->param, u->size.shard_count, err);
    return zero->gathering[unit] ? 0 : -1;
}

int zero_finish_spread(struct zero *zero, struct error *err)
{
    int result = 0;

    for (int i = 0; i < zero->units->nunits; i++) {
        if (comm_wait(zero->gathering[i], err) < 0)
            result = -1;
        zero->gathering[i] = NULL;
    }
    return result;
}

/* Parameters from their master copy. */
static void publish_unit(struct zero *zero, const struct zero_unit *u)
{
    enum dtype compute = zero->config.compute;
    char *param = element_bytes(zero, u->param, u->size.state_first - zero_param_first(zero, u));

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

int zero_publish(struct zero *zero, struct error *err)
{
    zero_forget_gathered(zero);
    for (int i = 0; i < zero->units->nunits; i++) {
        publish_unit(zero, &zero->state[i]);
        if (zero_start_spread(zero, i, err) < 0)
            return -1;
    }
    return zero_finish_spread(zero, err) < 0 ? -1 : zero_status(zero, err);
}

/* ---- AdamW on this rank's part of the state, and the new parameters ---- */

/* Elements [low, high) of a unit, all of one tensor. With offload the new parameters pass through a staging buffer. */
static void step_range(struct zero *zero, const struct zero_unit *u, struct adamw *adamw, size_t low, size_t high)
{
    size_t element = dtype_size(zero->config.compute), at = low - u->size.state_first;
    char *param = u->param + (low - zero_param_first(zero, u)) * element;

    adamw->count = high - low;
    adamw->param = u->master + at;
    adamw->grad = zero_state_grad(zero, u) + at;
    adamw->exp_avg = u->exp_avg + at;
    adamw->exp_avg_sq = u->exp_avg_sq + at;
    adamw->copy_dtype = zero->config.compute;
    if (!zero->config.offload) {
        adamw->copy = u->size.master ? param : NULL;
        zero->k->adamw(zero->dev, adamw);
        return;
    }
    adamw->copy = zero_staging(zero);
    zero->on_host->adamw(zero->host, adamw);
    zero_send_staged(zero, param, adamw->count * element);
}

static void step_unit(struct zero *zero, const struct zero_unit *u, const struct zero_step *step)
{
    size_t most = zero->config.offload ? STAGING_ELEMENTS : SIZE_MAX;
    struct adamw adamw = {
        .grad_scale = (float)step->grad_scale,
        .lr = (float)step->lr,
        .beta1 = (float)step->beta1,
        .beta2 = (float)step->beta2,
        .eps = (float)step->eps,
        .bias1 = (float)(1.0 - pow(step->beta1, (double)step->step)),
        .bias2 = (float)(1.0 - pow(step->beta2, (double)step->step)),
    };

    /* Tensor by tensor: they differ in weight decay, and padding must not change. */
    for (int i = 0; i < u->unit->ntensors; i++) {
        const struct unit_tensor *t = &u->unit->tensors[i];
        size_t begin, left = unit_tensor_overlap(t, u->size.state_first, u->size.state_count, &begin);

        adamw.weight_decay = initial_weights_decay(&zero->units->tensors[t->index]) ? (float)step->weight_decay : 0.0f;
        for (size_t low = t->offset + begin; left > 0;) {
            size_t count = left < most ? left : most;

            step_range(zero, u, &adamw, low, low + count);
            low += count;
            left -= count;
        }
    }
    if (zero->config.offload)
        zero_staging_join(zero);
}

int zero_step(struct zero *zero, const struct zero_step *step, struct error *err)
{
    zero_forget_gathered(zero);
    device_transfer_join(zero->dev, zero->captured); /* the captured state is about to change */
    for (int i = 0; i < zero->units->nunits; i++) {
        step_unit(zero, &zero->state[i], step);
        if (zero_start_spread(zero, i, err) < 0)
            return -1;
    }
    if (zero_finish_spread(zero, err) < 0 || zero_status(zero, err) < 0)
        return -1;
    return zero->host == zero->dev ? 0 : device_status(zero->host, err);
}

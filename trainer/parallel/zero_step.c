/* zero_step.c - AdamW on this rank's part of the state, and the parameters that come of it. */
#include <math.h>

#include "trainer/parallel/zero_impl.h"

/* Elements [low, high) of a unit, all of one tensor: the offloaded state's new parameters go by a staging buffer. */
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

    /* Tensor by tensor: they differ in decay, and padding stays what it was. */
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
    device_transfer_join(zero->dev, zero->captured); /* what is being captured is about to change */
    for (int i = 0; i < zero->units->nunits; i++) {
        step_unit(zero, &zero->state[i], step);
        if (zero_start_spread(zero, i, err) < 0)
            return -1;
    }
    if (zero_finish_spread(zero, err) < 0 || zero_status(zero, err) < 0)
        return -1;
    return zero->host == zero->dev ? 0 : device_status(zero->host, err);
}

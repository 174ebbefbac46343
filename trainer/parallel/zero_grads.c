/* zero_grads.c - sums gradients over micro-batches and ranks, a bucket at a time. */
#include "trainer/parallel/zero_impl.h"

/* Element `index` of the unit in u->grad. */
static char *grad_at(const struct zero *zero, const struct zero_unit *u, size_t index)
{
    return (char *)u->grad + (index - u->size.grad_first) * dtype_size(zero->config.grad_dtype);
}

/* The type and the address of the sums of this rank's shard; in ZeRO stage 0 on the device, also with offload. */
static enum dtype sums_dtype(const struct zero *zero)
{
    return zero_sums_on_host(&zero->config) ? DTYPE_F32 : zero->config.grad_dtype;
}

static char *shard_grad(const struct zero *zero, const struct zero_unit *u)
{
    return zero_sums_on_host(&zero->config) ? (char *)u->host_grad : grad_at(zero, u, u->size.shard_first);
}

void zero_begin_micro_batch(struct zero *zero, bool first, bool last)
{
    zero->first = first;
    zero->last = last;
}

/* ---- buckets in flight ---- */

/*
 * Finds the slot by its buffer and not by its unit: a unit may have two buffers, of consecutive micro-batches, and the
 * later one is not sent yet.
 */
static void release_micro_grad(struct zero *zero, const float *buffer)
{
    for (int i = 0; i < BLOCK_SLOTS; i++)
        if (zero->micro_grad_slots[i].buffer == buffer)
            zero->micro_grad_slots[i].unit = NULL;
}

/* Copies complete sums to the host, during the backward pass of the remaining units. */
static void offload_gradients(struct zero *zero, float *host, const float *grad, size_t count)
{
    zero->landed = device_transfer(zero->dev, host, grad, count * sizeof *host);
}

/* y += x, rounded once to y's type. x may be overwritten. */
static void add_rounded(struct device *dev, const struct kernels *k, enum dtype y_dtype, void *y, enum dtype x_dtype,
                        void *x, size_t count)
{
    if (y_dtype == DTYPE_F32) {
        k->accumulate(dev, y, x_dtype, x, count);
    } else if (x_dtype == y_dtype) {
        k->add(dev, y_dtype, y, x, count);
    } else {
        k->accumulate(dev, x, y_dtype, y, count);
        k->cast(dev, y_dtype, y, x_dtype, x, count);
    }
}

/* Adds the received bucket to the step's sums of this rank's shard. */
static void fold_gradients(struct zero *zero, const struct reduce_slot *slot)
{
    enum dtype dtype = sums_dtype(zero), received = zero->config.reduce_dtype;
    char *sums = shard_grad(zero, slot->unit) + slot->first * dtype_size(dtype);
    struct device *dev = slot->bounce ? zero->host : zero->dev;
    const struct kernels *k = slot->bounce ? zero->on_host : zero->k;
    void *incoming = slot->bounce ? slot->bounce : slot->incoming;

    if (!slot->incoming) { /* fp32, in place */
        float *in_place = (float *)grad_at(zero, slot->unit, slot->unit->size.shard_first + slot->first);

        if (sums != (char *)in_place)
            offload_gradients(zero, (float *)sums, in_place, slot->count);
        return;
    }
    if (slot->bounce)
        device_transfer_wait(
            zero->dev, device_transfer(zero->dev, slot->bounce, slot->incoming, slot->count * dtype_size(received)));
    if (slot->overwrite)
        k->cast(dev, dtype, sums, received, incoming, slot->count);
    else
        add_rounded(dev, k, dtype, sums, received, incoming, slot->count);
}

static void finish_oldest(struct zero *zero)
{
    struct reduce_slot *slot = &zero->reduce[zero->next_reduce];

    zero->next_reduce = (zero->next_reduce + 1) % REDUCE_SLOTS;
    if (!slot->unit)
        return;
    if (comm_wait(slot->request, error_first(&zero->error)) == 0)
        fold_gradients(zero, slot);
    if (slot->releases)
        release_micro_grad(zero, slot->releases);
    slot->unit = NULL;
    slot->request = NULL;
}

static void start_bucket(struct zero *zero, struct zero_unit *u, const float *send, size_t first)
{
    struct reduce_slot *slot = &zero->reduce[zero->next_reduce];
    size_t left = u->size.shard_count - first, stride = u->size.shard_count;
    const void *from = send + first;
    void *to;

    finish_oldest(zero);
    slot->unit = u;
    slot->first = first;
    slot->count = left < zero->shared.bucket ? left : zero->shared.bucket;
    slot->overwrite = zero->first || !zero->config.reduce_every_micro_batch;
    slot->releases = first + slot->count == u->size.shard_count ? send : NULL;
    if (slot->outgoing) {
        for (int rank = 0; rank < zero->config.dp; rank++)
            zero->k->cast(zero->dev, zero->config.reduce_dtype,
                          slot->outgoing + (size_t)rank * slot->count * dtype_size(zero->config.reduce_dtype),
                          DTYPE_F32, send + (size_t)rank * u->size.shard_count + first, slot->count);
        from = slot->outgoing;
        stride = slot->count;
    }
    to = slot->incoming ? slot->incoming : grad_at(zero, u, u->size.shard_first + first);
    comm_purpose(zero->comms.dp, u->unit->name, "gradients");
    slot->request = comm_start_reduce_scatter(zero->comms.dp, zero->config.reduce_dtype, to, from, slot->count, stride,
                                              slot->scratch, error_first(&zero->error));
}

static void start_reduce(struct zero *zero, struct zero_unit *u, const float *send)
{
    for (size_t first = 0; first < u->size.shard_count; first += zero->shared.bucket)
        start_bucket(zero, u, send, first);
}

/* ---- in the model ---- */

/* A buffer for a block's gradients in this micro-batch; waits for the oldest reductions until one is free. */
static float *acquire_micro_grad(struct zero *zero, struct zero_unit *u)
{
    for (int tries = 0; tries <= REDUCE_SLOTS; tries++) {
        for (int i = 0; i < zero->shared.micro_grad_slots; i++)
            if (!zero->micro_grad_slots[i].unit) {
                zero->micro_grad_slots[i].unit = u;
                return zero->micro_grad_slots[i].buffer;
            }
        finish_oldest(zero);
    }
    error_set(error_first(&zero->error), CODE_INTERNAL, "too many blocks have gradients to be reduced");
    return zero->micro_grad_slots[0].buffer;
}

static bool is_in_flight(const struct zero *zero, const struct zero_unit *u)
{
    for (int i = 0; i < REDUCE_SLOTS; i++)
        if (zero->reduce[i].unit == u)
            return true;
    return false;
}

/* A unit without parameters, as that of rotary positions, has no buffer and sends nothing. */
float *zero_grad_begin(struct zero *zero, int unit)
{
    struct zero_unit *u = &zero->unit[unit];

    if (u->unit->count == 0)
        return NULL;
    if (zero->first && !zero->config.reduce_every_micro_batch && zero->config.grad_dtype == DTYPE_F32) {
        u->current_micro_grad = u->grad;
    } else if (u->own_micro_grad) {
        while (is_in_flight(zero, u)) /* the previous micro-batch's gradients are still being sent */
            finish_oldest(zero);
        u->current_micro_grad = u->own_micro_grad;
    } else {
        u->current_micro_grad = acquire_micro_grad(zero, u);
    }
    return u->current_micro_grad;
}

/* The tied embedding's gradient is complete only after the sum over the first and the last pipeline stage. */
static bool is_tied(const struct zero *zero, const struct zero_unit *u)
{
    return zero->config.tied && u == &zero->unit[UNIT_WTE];
}

/* Sums over micro-batches that are kept in 16 bits. */
static void keep_rounded(struct zero *zero, struct zero_unit *u)
{
    float *sums = u->current_micro_grad;
    enum dtype dtype = zero->config.grad_dtype;

    if (!zero->first)
        zero->k->accumulate(zero->dev, sums, dtype, u->grad, u->unit->count);
    if (zero->last && zero->config.dp > 1) {
        start_reduce(zero, u, sums);
        return;
    }
    zero->k->cast(zero->dev, dtype, u->grad, DTYPE_F32, sums, u->unit->count);
    release_micro_grad(zero, sums);
}

void zero_grad_ready(struct zero *zero, int unit)
{
    struct zero_unit *u = &zero->unit[unit];

    if (u->unit->count == 0)
        return;
    if (zero->config.reduce_every_micro_batch) {
        start_reduce(zero, u, u->current_micro_grad);
        return;
    }
    if (zero->config.grad_dtype != DTYPE_F32) {
        keep_rounded(zero, u);
        return;
    }
    if (u->current_micro_grad != u->grad) {
        zero->k->accumulate(zero->dev, u->grad, DTYPE_F32, u->current_micro_grad, u->unit->count);
        release_micro_grad(zero, u->current_micro_grad);
    }
    if (!zero->last)
        return;
    if (zero->config.dp > 1)
        start_reduce(zero, u, u->grad);
    else if (u->host_grad && !is_tied(zero, u))
        offload_gradients(zero, u->host_grad, u->grad, u->unit->count);
}

/* ---- around a step ---- */

/* Sums the first and the last pipeline stage's gradients of the same shard: both get the same bits. */
static void sum_tied(struct zero *zero)
{
    struct zero_unit *u = &zero->unit[UNIT_WTE];
    char *grad = shard_grad(zero, u);
    enum dtype dtype = sums_dtype(zero);
    bool on_host = zero_sums_on_host(&zero->config);
    struct comm *tie = zero->comms.tie;

    if (!zero->config.tied)
        return;
    if (on_host) {
        device_transfer_wait(zero->dev, zero->landed);
        tie = comm_host(tie);
    }
    for (size_t first = 0; first < u->size.shard_count; first += TIE_ELEMENTS) {
        size_t left = u->size.shard_count - first, count = left < TIE_ELEMENTS ? left : TIE_ELEMENTS;

        comm_purpose(tie, u->unit->name, "gradients");
        comm_all_reduce(tie, dtype, grad + first * dtype_size(dtype), count, zero->tie, error_first(&zero->error));
    }
}

float *zero_widen_grad(struct zero *zero, const struct zero_unit *u, size_t first, size_t count)
{
    float *widened = u->own_micro_grad ? u->own_micro_grad : zero->micro_grad_slots[0].buffer;

    if (zero->config.grad_dtype == DTYPE_F32)
        return (float *)grad_at(zero, u, first);
    zero->k->cast(zero->dev, DTYPE_F32, widened, zero->config.grad_dtype, grad_at(zero, u, first), count);
    return widened;
}

/* ZeRO stage 0 needs every gradient on every rank. With offload they are then copied to the host. */
static void gather_whole(struct zero *zero)
{
    bool rounded = zero->config.grad_dtype != DTYPE_F32;

    for (int i = zero->units->nunits - 1; i >= 0 && zero->config.zero_stage == 0; i--) {
        struct zero_unit *u = &zero->unit[i];

        comm_purpose(zero->comms.dp, u->unit->name, "gradients");
        if (zero->config.dp > 1 && u->unit->count)
            comm_all_gather(zero->comms.dp, zero->config.grad_dtype, u->grad, u->size.shard_count,
                            error_first(&zero->error));
        if (!u->host_grad || !(zero->config.dp > 1 || is_tied(zero, u) || rounded))
            continue;
        offload_gradients(zero, u->host_grad, zero_widen_grad(zero, u, 0, u->unit->count), u->unit->count);
        if (rounded) /* the next unit's go to the same buffer */
            device_transfer_wait(zero->dev, zero->landed);
    }
}

int zero_finish_gradients(struct zero *zero, struct error *err)
{
    for (int i = 0; i < REDUCE_SLOTS; i++)
        finish_oldest(zero);
    sum_tied(zero);
    gather_whole(zero);
    device_transfer_wait(zero->dev, zero->landed); /* the host reads the copies; the next step overwrites the sources */
    zero->landed = 0;
    return zero_status(zero, err);
}

int zero_grad_norm_squared(struct zero *zero, double *result, struct error *err)
{
    bool on_host = zero_sums_on_host(&zero->config);
    struct device *dev = on_host ? zero->host : zero->dev;
    const struct kernels *k = on_host ? zero->on_host : zero->k;
    double sum = 0;
    int arrays = 0;

    /* Each rank's shard only, in every stage, so that all stages round the same. */
    for (int i = 0; i < zero->units->nunits; i++) {
        const struct zero_unit *u = &zero->unit[i];
        size_t skip = 0;

        if (u->unit->copy || !u->size.shard_count)
            continue;
        if (!zero->units->saves_replicated && u->unit->replicated > u->size.shard_first)
            skip = u->unit->replicated - u->size.shard_first;
        if (skip >= u->size.shard_count)
            continue;
        zero->squares[arrays++] =
            on_host ? (struct squares){u->host_grad + skip, u->size.shard_count - skip}
                    : (struct squares){zero_widen_grad(zero, u, u->size.shard_first + skip, u->size.shard_count - skip),
                                       u->size.shard_count - skip};
        if (sums_dtype(zero) == DTYPE_F32)
            continue;
        k->sum_of_squares(dev, result, zero->squares, arrays); /* before the next unit is widened */
        sum += *result;
        arrays = 0;
    }
    k->sum_of_squares(dev, result, zero->squares, arrays);
    *result += sum;
    comm_purpose(zero->comms.world, "gradient norm", NULL);
    return comm_sum_f64(zero->comms.world, result, 1, err);
}

#include "trainer/parallel/zero.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SCRATCH_SLOTS = 3
}; /* units whose gradients may be open at once: the tied embedding, a block, and one to spare */

struct zero_unit {
    const struct unit *unit;
    size_t shard_first, shard_count; /* this rank's part of the flat buffer */
    float *param, *grad;             /* whole */
    float *exp_avg, *exp_avg_sq;     /* [state_count] from state_first on */
    size_t state_first, state_count;
    float *open; /* what zero_grad_begin gave out */
    struct comm_request *reducing;
};

struct scratch {
    float *buffer;
    size_t count;
    bool taken;
};

struct zero {
    struct device *dev;
    const struct kernels *k;
    struct comm *dp;
    const struct units *units;
    struct zero_unit *state;
    int stage;
    bool first, last; /* of the step's micro-batches */
    struct scratch scratch[SCRATCH_SLOTS];
    bool failed;
    struct error error; /* the first failure since the last zero_finish_gradients */
};

const char *const zero_kinds[ZERO_KINDS] = {"param", "exp_avg", "exp_avg_sq"};

/* Zeroed: nobody writes the padding between tensors, and norms run over it. */
static float *alloc_floats(struct zero *zero, size_t count, struct error *err)
{
    float *floats = device_alloc(zero->dev, MEMORY_DEVICE, count * sizeof(float), err);

    if (floats)
        zero->k->zero(zero->dev, floats, count * sizeof(float));
    return floats;
}

static int unit_create(struct zero *zero, int index, bool training, struct error *err)
{
    struct zero_unit *u = &zero->state[index];
    int dp = comm_size(zero->dp);

    u->unit = &zero->units->units[index];
    u->shard_count = u->unit->count / (size_t)dp;
    u->shard_first = u->shard_count * (size_t)comm_rank(zero->dp);
    u->state_first = zero->stage == 0 ? 0 : u->shard_first;
    u->state_count = zero->stage == 0 ? u->unit->count : u->shard_count;
    u->param = alloc_floats(zero, u->unit->count, err);
    if (u->param && training) {
        u->grad = alloc_floats(zero, u->unit->count, err);
        u->exp_avg = u->grad ? alloc_floats(zero, u->state_count, err) : NULL;
        u->exp_avg_sq = u->exp_avg ? alloc_floats(zero, u->state_count, err) : NULL;
    }
    return (training ? u->exp_avg_sq : u->param) ? 0 : error_prefix(err, "%s", u->unit->name);
}

struct zero *zero_create(struct device *dev, struct comm *dp, const struct units *units, int stage, bool training,
                         struct error *err)
{
    struct zero *zero = calloc(1, sizeof *zero);

    if (!zero || !(zero->state = calloc((size_t)units->nunits, sizeof *zero->state))) {
        error_set(err, CODE_IO, "out of memory for %d units", units->nunits);
        free(zero);
        return NULL;
    }
    zero->dev = dev;
    zero->k = device_kernels(dev);
    zero->dp = dp;
    zero->units = units;
    zero->stage = stage;
    for (int i = 0; i < units->nunits; i++)
        if (unit_create(zero, i, training, err) < 0) {
            zero_destroy(zero);
            return NULL;
        }
    return zero;
}

void zero_destroy(struct zero *zero)
{
    if (!zero)
        return;
    for (int i = 0; i < zero->units->nunits; i++) {
        struct zero_unit *u = &zero->state[i];

        device_free(zero->dev, MEMORY_DEVICE, u->param);
        device_free(zero->dev, MEMORY_DEVICE, u->grad);
        device_free(zero->dev, MEMORY_DEVICE, u->exp_avg);
        device_free(zero->dev, MEMORY_DEVICE, u->exp_avg_sq);
    }
    for (int i = 0; i < SCRATCH_SLOTS; i++)
        device_free(zero->dev, MEMORY_DEVICE, zero->scratch[i].buffer);
    free(zero->state);
    free(zero);
}

void zero_clear(struct zero *zero)
{
    for (int i = 0; i < zero->units->nunits; i++) {
        struct zero_unit *u = &zero->state[i];

        zero->k->zero(zero->dev, u->param, u->unit->count * sizeof(float));
        zero->k->zero(zero->dev, u->exp_avg, u->state_count * sizeof(float));
        zero->k->zero(zero->dev, u->exp_avg_sq, u->state_count * sizeof(float));
    }
}

void zero_initialize(struct zero *zero, uint64_t seed)
{
    zero_clear(zero);
    for (int i = 0; i < zero->units->nunits; i++)
        units_initialize(zero->units, i, seed, 0, zero->state[i].unit->count, zero->state[i].param);
}

/* ---- in the model ---- */

/* Stages 0 and 1 keep every parameter in place, so gathering and releasing have nothing to do. */
void zero_gather(struct zero *zero, int unit)
{
    (void)zero, (void)unit;
}

void zero_release(struct zero *zero, int unit)
{
    (void)zero, (void)unit;
}

float *zero_param(const struct zero *zero, int unit)
{
    return zero->state[unit].param;
}

static void fail(struct zero *zero, const struct error *err)
{
    if (!zero->failed)
        zero->error = *err;
    zero->failed = true;
}

/* The smallest free slot that is large enough; one is made in the first step and kept. */
static float *take_scratch(struct zero *zero, size_t count)
{
    struct scratch *best = NULL;
    struct error err;

    for (int i = 0; i < SCRATCH_SLOTS; i++) {
        struct scratch *slot = &zero->scratch[i];

        if (!slot->taken && slot->buffer && slot->count >= count && (!best || slot->count < best->count))
            best = slot;
    }
    for (int i = 0; i < SCRATCH_SLOTS && !best; i++)
        if (!zero->scratch[i].buffer) {
            best = &zero->scratch[i];
            best->count = count;
            best->buffer = alloc_floats(zero, count, &err);
        }
    if (!best || !best->buffer) {
        if (!best)
            error_set(&err, CODE_INTERNAL, "more than %d units have open gradients", SCRATCH_SLOTS);
        fail(zero, &err);
        return NULL;
    }
    best->taken = true;
    return best->buffer;
}

static void give_scratch(struct zero *zero, const float *buffer)
{
    for (int i = 0; i < SCRATCH_SLOTS; i++)
        if (zero->scratch[i].buffer == buffer)
            zero->scratch[i].taken = false;
}

float *zero_grad_begin(struct zero *zero, int unit)
{
    struct zero_unit *u = &zero->state[unit];

    u->open = zero->first ? NULL : take_scratch(zero, u->unit->count);
    if (!u->open) /* also after a failure, so that the model needs no check: the step will be thrown away */
        u->open = u->grad;
    return u->open;
}

static void wait_reduce(struct zero *zero, struct zero_unit *u)
{
    struct error err;

    if (comm_wait(u->reducing, &err) < 0)
        fail(zero, &err);
    u->reducing = NULL;
}

/* Units are reduced from the last to the first; two are under way at most, which bounds memory and drives progress. */
static void start_reduce(struct zero *zero, struct zero_unit *u)
{
    int before_last = (int)(u - zero->state) + 2;
    struct error err;

    if (before_last < zero->units->nunits)
        wait_reduce(zero, &zero->state[before_last]);
    device_wait(zero->dev); /* what is sent must have been computed */
    u->reducing =
        comm_start_reduce_scatter(zero->dp, DTYPE_F32, u->grad + u->shard_first, u->grad, u->shard_count, &err);
    if (!u->reducing)
        fail(zero, &err);
}

void zero_grad_ready(struct zero *zero, int unit)
{
    struct zero_unit *u = &zero->state[unit];

    if (u->open != u->grad) {
        zero->k->add(zero->dev, DTYPE_F32, u->grad, u->open, u->unit->count);
        give_scratch(zero, u->open);
    }
    u->open = NULL;
    if (zero->last)
        start_reduce(zero, u);
}

/* ---- around a step ---- */

void zero_micro_batch(struct zero *zero, bool first, bool last)
{
    zero->first = first;
    zero->last = last;
}

/* The units in the order in which zero_grad_ready started them: last to first. Every rank waits in the same order. */
int zero_finish_gradients(struct zero *zero, struct error *err)
{
    for (int i = zero->units->nunits - 1; i >= 0; i--)
        wait_reduce(zero, &zero->state[i]);
    for (int i = zero->units->nunits - 1; zero->stage == 0 && i >= 0 && !zero->failed; i--) {
        struct error gather_error;

        if (comm_all_gather(zero->dp, DTYPE_F32, zero->state[i].grad, zero->state[i].shard_count, &gather_error) < 0)
            fail(zero, &gather_error);
    }
    if (zero->failed) {
        if (err)
            *err = zero->error;
        zero->failed = false;
        return -1;
    }
    return device_status(zero->dev, err);
}

int zero_grad_norm_squared(struct zero *zero, double *result, struct error *err)
{
    double total = 0;

    /* Each rank's shard only, in every stage, so that the stages round alike. */
    for (int i = 0; i < zero->units->nunits; i++) {
        const struct zero_unit *u = &zero->state[i];
        double sum = 0;

        zero->k->sum_of_squares(zero->dev, &sum, u->grad + u->shard_first, u->shard_count);
        total += sum;
    }
    *result = total;
    return comm_sum_f64(zero->dp, result, 1, err);
}

/* The part of each tensor that this rank updates; padding stays what it was. */
static void step_unit(struct zero *zero, const struct zero_unit *u, const struct zero_step *step)
{
    struct adamw adamw = {
        .grad_scale = (float)step->grad_scale,
        .lr = (float)step->lr,
        .beta1 = (float)step->beta1,
        .beta2 = (float)step->beta2,
        .eps = (float)step->eps,
        .bias1 = (float)(1.0 - pow(step->beta1, (double)step->step)),
        .bias2 = (float)(1.0 - pow(step->beta2, (double)step->step)),
    };
    size_t end = u->state_first + u->state_count;

    for (int i = 0; i < u->unit->ntensors; i++) {
        const struct unit_tensor *t = &u->unit->tensors[i];
        size_t low = t->offset > u->state_first ? t->offset : u->state_first;
        size_t high = t->offset + t->count < end ? t->offset + t->count : end;

        if (low >= high)
            continue;
        adamw.count = high - low;
        adamw.param = u->param + low;
        adamw.grad = u->grad + low;
        adamw.exp_avg = u->exp_avg + (low - u->state_first);
        adamw.exp_avg_sq = u->exp_avg_sq + (low - u->state_first);
        adamw.weight_decay = t->decay ? (float)step->weight_decay : 0.0f;
        zero->k->adamw(zero->dev, &adamw);
    }
}

static int gather_params(struct zero *zero, struct error *err)
{
    device_wait(zero->dev);
    for (int i = 0; i < zero->units->nunits; i++)
        if (comm_all_gather(zero->dp, DTYPE_F32, zero->state[i].param, zero->state[i].shard_count, err) < 0)
            return -1;
    return 0;
}

int zero_step(struct zero *zero, const struct zero_step *step, struct error *err)
{
    for (int i = 0; i < zero->units->nunits; i++)
        step_unit(zero, &zero->state[i], step);
    if (zero->stage >= 1 && gather_params(zero, err) < 0)
        return -1;
    return device_status(zero->dev, err);
}

/* ---- for checkpoints and tests ---- */

int zero_pieces(struct zero *zero, bool saving, struct ckpt_piece **pieces, void ***addresses, size_t *npieces,
                struct error *err)
{
    size_t most = (size_t)zero->units->nunits * UNIT_MAX_TENSORS, n = 0;
    size_t offsets[UNIT_MAX_TENSORS];

    *pieces = calloc(most, sizeof **pieces);
    *addresses = calloc(most * ZERO_KINDS, sizeof **addresses);
    if (!*pieces || !*addresses) {
        free(*pieces);
        free(*addresses);
        return error_set(err, CODE_IO, "out of memory for the list of %zu tensors", most);
    }
    for (int i = 0; i < zero->units->nunits; i++) {
        struct zero_unit *u = &zero->state[i];
        size_t first = saving ? u->shard_first : u->state_first;
        size_t count = saving ? u->shard_count : u->state_count;
        size_t got = units_pieces(zero->units, i, first, count, *pieces + n, offsets);

        for (size_t j = 0; j < got; j++, n++) {
            void **at = *addresses + n * ZERO_KINDS;

            at[0] = u->param + offsets[j];
            at[1] = u->exp_avg + (offsets[j] - u->state_first);
            at[2] = u->exp_avg_sq + (offsets[j] - u->state_first);
        }
    }
    *npieces = n;
    return 0;
}

int zero_loaded(struct zero *zero, struct error *err)
{
    return zero->stage >= 1 ? gather_params(zero, err) : 0;
}

const float *zero_gradient(const struct zero *zero, int unit)
{
    return zero->state[unit].grad;
}

/* zero_state.c - the state's initial values, and its pieces of checkpoints. */
#include <math.h>
#include <string.h>

#include "common/philox.h"
#include "trainer/parallel/zero_impl.h"

const char *const zero_kinds[ZERO_KINDS] = {"param", "exp_avg", "exp_avg_sq"};

/* ---- initial weights ---- */

enum { CHUNK = 65536 }; /* elements a thread takes at a time */

/*
 * Maps element `at` of this tp rank's box to its index in the logical tensor. *run: the number of elements from there
 * on that are contiguous in both.
 */
static uint64_t logical_element(const struct ckpt_tensor *tensor, const struct unit_tensor *t, uint64_t at,
                                uint64_t *run)
{
    uint64_t element = 0, stride = 1, left = at;

    *run = t->shape[tensor->ndim - 1] - at % t->shape[tensor->ndim - 1];
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        element += (t->start[i] + left % t->shape[i]) * stride;
        left /= t->shape[i];
        stride *= tensor->shape[i];
    }
    return element;
}

static void draw_normal(const struct ckpt_tensor *tensor, const struct unit_tensor *t, struct philox_stream stream,
                        double deviation, size_t begin, size_t count, float *out)
{
#pragma omp parallel for schedule(static)
    for (size_t chunk = 0; chunk < count; chunk += CHUNK) {
        size_t end = chunk + CHUNK < count ? chunk + CHUNK : count;

        for (size_t i = chunk; i < end;) {
            uint64_t run, element = logical_element(tensor, t, begin + i, &run);
            size_t length = run < end - i ? (size_t)run : end - i;

            philox_normal(out + i, length, stream, element, 0.0, deviation);
            i += length;
        }
    }
}

void initial_weights(const struct job *job, const struct units *units, int unit, size_t first, size_t count, float *out)
{
    const int layers = units_head(units) - UNIT_BLOCK0;
    const double deviations[] = {[INITIAL_NORMAL] = job->init_std,
                                 [INITIAL_OUTPUT] = job->init_std / (job->init_depth ? sqrt(2.0 * layers) : 1)};
    const struct unit *u = &units->units[unit];

    memset(out, 0, count * sizeof *out);
    for (int i = 0; i < u->ntensors; i++) {
        const struct unit_tensor *t = &u->tensors[i];
        const struct ckpt_tensor *tensor = &units->tensors[t->index];
        struct philox_stream stream = {.seed = job->batch.seed, .site = philox_site(tensor->name)};
        size_t begin, length = unit_tensor_overlap(t, first, count, &begin);
        float *at = out + (t->offset + begin - first);

        if (t->row.initial == INITIAL_NORMAL || t->row.initial == INITIAL_OUTPUT)
            draw_normal(tensor, t, stream, deviations[t->row.initial], begin, length, at);
        for (size_t j = 0; t->row.initial == INITIAL_ONES && j < length; j++)
            at[j] = 1.0f;
    }
}

/* In discrete memory: staged from the host. */
static void initialize_discrete(struct zero *zero, int unit, const struct job *job)
{
    struct zero_unit *u = &zero->unit[unit];

    for (size_t low = 0; low < u->size.state_count; low += STAGING_ELEMENTS) {
        size_t left = u->size.state_count - low, count = left < STAGING_ELEMENTS ? left : STAGING_ELEMENTS;

        initial_weights(job, zero->units, unit, u->size.state_first + low, count, (float *)zero_staging(zero));
        zero_send_staged(zero, u->master + low, count * sizeof(float));
    }
    zero_staging_join(zero);
}

static float *state_of_kind(const struct zero_unit *u, int kind)
{
    float *const state[ZERO_KINDS] = {u->master, u->exp_avg, u->exp_avg_sq};

    return state[kind];
}

int zero_initialize(struct zero *zero, const struct job *job, struct error *err)
{
    bool discrete = zero->config.discrete && !zero->config.offload;

    zero_clear(zero);
    for (int i = 0; i < zero->units->nunits; i++) {
        struct zero_unit *u = &zero->unit[i];

        if (discrete)
            initialize_discrete(zero, i, job);
        else if (u->size.state_count)
            initial_weights(job, zero->units, i, u->size.state_first, u->size.state_count, u->master);
    }
    return zero_refresh_params(zero, err);
}

/* ---- the mirror: the state of a discrete device, copied to the host ---- */

/* Starts to copy the state to its mirror, or the mirror to the state. Returns the last transfer; 0: there is none. */
static uint64_t transfer_state(struct zero *zero, bool to_mirror)
{
    uint64_t transfer = 0;

    for (int i = 0; i < zero->units->nunits; i++) {
        const struct zero_unit *u = &zero->unit[i];

        for (int kind = 0; kind < ZERO_KINDS; kind++) {
            float *state = state_of_kind(u, kind), *mirror = u->mirror[kind];

            if (mirror)
                transfer = device_transfer(zero->dev, to_mirror ? mirror : state, to_mirror ? state : mirror,
                                           u->size.mirror * sizeof(float));
        }
    }
    return transfer;
}

bool zero_snapshot(struct zero *zero)
{
    if (!zero->config.discrete || zero->config.offload)
        return false;
    zero->snapshot_transfer = transfer_state(zero, true);
    return true; /* also on a rank that holds no unit: all ranks must return the same */
}

/* ---- pieces of checkpoints ---- */

int zero_pieces(struct zero *zero, enum zero_pieces_for use, struct ckpt_piece **pieces, void ***addresses,
                size_t *npieces, struct error *err)
{
    bool saving = use != ZERO_LOAD;
    size_t most = (size_t)zero->units->nunits * UNIT_MAX_TENSORS, n = 0;
    size_t offsets[UNIT_MAX_TENSORS];

    *pieces = NULL;
    *addresses = NULL;
    *npieces = 0;
    if (zero->config.discrete && !zero->config.offload && !zero->config.mirror)
        return error_set(err, CODE_INTERNAL, "zero: no host memory was allocated for checkpoints");
    if (saving && zero->config.discrete && !zero->config.offload) {
        if (use == ZERO_SAVE_PRESENT) /* over a snapshot that was taken and not saved, if there is one */
            zero_snapshot(zero);
        device_transfer_wait(zero->dev, zero->snapshot_transfer);
        zero->snapshot_transfer = 0;
    }
    *pieces = error_calloc(most, sizeof **pieces, err);
    *addresses = error_calloc(most * ZERO_KINDS, sizeof **addresses, err);
    if (!*pieces || !*addresses)
        return -1;
    for (int i = 0; i < zero->units->nunits; i++) {
        struct zero_unit *u = &zero->unit[i];
        size_t first = saving ? u->size.shard_first : u->size.state_first;
        size_t count = saving ? u->size.shard_count : u->size.state_count;
        size_t got = units_pieces(zero->units, i, first, count, saving, *pieces + n, offsets);

        for (size_t j = 0; j < got; j++, n++) {
            size_t at = offsets[j] - u->size.state_first;

            for (int kind = 0; kind < ZERO_KINDS; kind++)
                (*addresses)[n * ZERO_KINDS + (size_t)kind] =
                    (u->size.mirror ? u->mirror[kind] : state_of_kind(u, kind)) + at;
        }
    }
    *npieces = n;
    return 0;
}

int zero_finish_load(struct zero *zero, struct error *err)
{
    if (zero->config.discrete && !zero->config.offload) {
        uint64_t transfer = transfer_state(zero, false);

        device_transfer_join(zero->dev, transfer);
        device_transfer_wait(zero->dev, transfer);
    }
    return zero_refresh_params(zero, err);
}

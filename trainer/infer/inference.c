#include "trainer/infer/inference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/models/units.h"
#include "common/memory_limit.h"
#include "trainer/model/block.h"
#include "trainer/model/head.h"

/* The activations of one block serve all blocks, one after the other. */
struct forward_pass {
    struct model_shape shape; /* the job's, with a sequence of `room` tokens */
    struct context context;
    struct comm *alone;
    struct tp_group tp;
    struct units *units;
    void **params; /* [nunits]: each unit's flat buffer, in device memory */
    struct block_activations activations;
    struct block_scratch scratch;
    struct model_head head;
    void *x[2];             /* [room, d] a block's input and output */
    int32_t *tokens;        /* [room] */
    int32_t *tokens_host;   /* the same in host memory: of a discrete device */
    void *memory, *staging; /* of all of these, on the device and on the host */
};

/* ---- memory ---- */

/* With NULL bases it only counts the bytes. */
static void place_forward(struct forward_pass *f, struct buffer_layout *to, struct buffer_layout *host)
{
    size_t rows = (size_t)f->shape.seq_length, bytes = rows * (size_t)f->shape.hidden * dtype_size(f->context.dtype);

    block_activations_place(&f->activations, &f->context, RECOMPUTE_NONE, to, to);
    block_scratch_place(&f->scratch, &f->context, to, host);
    head_place(&f->head, &f->context, f->units, to, host);
    f->x[0] = place_buffer(to, bytes);
    f->x[1] = place_buffer(to, bytes);
    f->tokens = place_buffer(to, rows * sizeof *f->tokens);
    f->tokens_host = f->context.sizes.discrete ? place_buffer(host, rows * sizeof *f->tokens) : f->tokens;
}

static int check_memory(const struct forward_pass *f, size_t activations, struct error *err)
{
    /* Of the host: what the machine and this process's control groups have left. */
    uint64_t machine = memory_available(), group = memory_limit_left();
    uint64_t unused = f->context.sizes.discrete ? device_bytes_unused(f->context.dev)
                      : machine < group         ? machine
                                                : group;
    size_t parameters = 0;

    for (int i = 0; i < f->units->nunits; i++)
        parameters += f->units->units[i].count * dtype_size(f->context.dtype);
    if (parameters + activations <= unused)
        return 0;
    return error_set(
        err, CODE_IO,
        "%.2f GiB of parameters and %.2f GiB for the activations of %d tokens are needed, and %.2f GiB are "
        "free: take another device, or lower --tokens",
        (double)parameters / 0x1p30, (double)activations / 0x1p30, f->shape.seq_length, (double)unused / 0x1p30);
}

static int allocate_parameters(struct forward_pass *f, struct error *err)
{
    struct device *dev = f->context.dev;

    f->params = error_calloc((size_t)f->units->nunits, sizeof *f->params, err);
    for (int i = 0; f->params && i < f->units->nunits; i++) {
        const struct unit *unit = &f->units->units[i];

        f->params[i] = device_alloc(dev, MEMORY_DEVICE, unit->count * dtype_size(f->context.dtype), err);
        if (!f->params[i])
            return error_prefix(err, "parameters of %s", unit->name);
    }
    return f->params ? 0 : -1;
}

static int allocate_all(struct forward_pass *f, struct error *err)
{
    struct buffer_layout layout = {0}, host = {0};
    struct device *dev = f->context.dev;

    place_forward(f, &layout, &host);
    if (check_memory(f, layout.used, err) < 0 || allocate_parameters(f, err) < 0)
        return -1;
    f->memory = device_alloc(dev, MEMORY_DEVICE, layout.used, err);
    if (f->memory && host.used)
        f->staging = device_alloc(dev, MEMORY_HOST, host.used, err);
    if (!f->memory || (host.used && !f->staging))
        return error_prefix(err, "activations of %d tokens", f->shape.seq_length);
    layout = (struct buffer_layout){.base = f->memory};
    host = (struct buffer_layout){.base = f->staging};
    place_forward(f, &layout, &host);
    block_scratch_fill(&f->scratch, &f->context);
    return 0;
}

/* ---- the checkpoint ---- */

/* A unit's parameters as fp32, at `to`; the padding between them is 0. */
static int read_unit(const struct forward_pass *f, struct ckpt *ckpt, int unit, float *to, struct error *err)
{
    static const char *const kinds[] = {"param"};
    const struct units *units = f->units;
    struct ckpt_piece pieces[UNIT_MAX_TENSORS];
    void *targets[UNIT_MAX_TENSORS];
    size_t offsets[UNIT_MAX_TENSORS], count = units->units[unit].count;
    size_t n = units_pieces(units, unit, 0, count, false, pieces, offsets);

    memset(to, 0, count * sizeof *to);
    for (size_t i = 0; i < n; i++)
        targets[i] = to + offsets[i];
    return ckpt_read(ckpt, units->tensors, units->ntensors, kinds, 1, pieces, n, targets, err);
}

/* `wide` is device memory for the same numbers; on a device that is not discrete it is `host`. */
static int read_converted(struct forward_pass *f, struct ckpt *ckpt, float *host, float *wide, struct error *err)
{
    const struct context *c = &f->context;

    for (int i = 0; i < f->units->nunits; i++) {
        size_t count = f->units->units[i].count;

        if (read_unit(f, ckpt, i, host, err) < 0)
            return -1;
        if (c->sizes.discrete)
            c->k->copy(c->dev, wide, host, count * sizeof *wide);
        c->k->cast(c->dev, c->dtype, f->params[i], DTYPE_F32, wide, count);
        device_wait(c->dev);
    }
    return device_status(c->dev, err);
}

static int read_parameters(struct forward_pass *f, struct ckpt *ckpt, struct error *err)
{
    struct device *dev = f->context.dev;
    size_t most = 0;
    float *host, *wide;
    int result;

    for (int i = 0; i < f->units->nunits; i++)
        most = f->units->units[i].count > most ? f->units->units[i].count : most;
    host = device_alloc(dev, MEMORY_HOST, most * sizeof *host, err);
    wide = host && f->context.sizes.discrete ? device_alloc(dev, MEMORY_DEVICE, most * sizeof *wide, err) : host;
    result = wide ? read_converted(f, ckpt, host, wide, err) : -1;
    if (wide != host)
        device_free(dev, MEMORY_DEVICE, wide);
    device_free(dev, MEMORY_HOST, host);
    return result;
}

/* ---- creating ---- */

static void describe_context(struct forward_pass *f, struct device *dev, const struct job *job, int room)
{
    struct device_traits traits = device_traits(dev, job->precision.compute);

    f->shape = job->model;
    f->shape.seq_length = room;
    f->context = (struct context){
        .dev = dev,
        .k = device_kernels(dev),
        .job = job,
        .shape = &f->shape,
        .tp = &f->tp,
        .dtype = job->precision.compute,
    };
    f->context.sizes = (struct pass_sizes){
        .shape = &f->shape,
        .tp = 1,
        .samples = 1,
        .vocab_padded = vocabulary_padded(&f->shape, 1),
        .dtype = job->precision.compute,
        .logits_rows = traits.logits_rows ? traits.logits_rows : LOGITS_ROWS_CPU,
        .dropout = job->dropout.hidden > 0,
        .discrete = !traits.is_host,
    };
}

struct forward_pass *forward_create(struct device *dev, const struct job *job, int room, struct ckpt *ckpt,
                                    struct error *err)
{
    struct forward_pass *f = error_calloc(1, sizeof *f, err);

    if (!f)
        return NULL;
    describe_context(f, dev, job, room);
    f->units = units_create_whole(&job->model, err);
    f->alone = f->units ? comm_alone_create(err) : NULL;
    if (f->alone && tp_create(&f->tp, dev, f->alone, f->context.dtype, 0, err) == 0 && allocate_all(f, err) == 0 &&
        read_parameters(f, ckpt, err) == 0)
        return f;
    forward_destroy(f);
    return NULL;
}

void forward_destroy(struct forward_pass *f)
{
    if (!f)
        return;
    for (int i = 0; f->params && i < f->units->nunits; i++)
        device_free(f->context.dev, MEMORY_DEVICE, f->params[i]);
    free(f->params);
    device_free(f->context.dev, MEMORY_DEVICE, f->memory);
    device_free(f->context.dev, MEMORY_HOST, f->staging);
    tp_destroy(&f->tp);
    comm_destroy(f->alone);
    units_destroy(f->units);
    free(f);
}

/* ---- running ---- */

static struct weights weights_of(const struct forward_pass *f, int unit)
{
    return (struct weights){.c = &f->context, .unit = &f->units->units[unit], .param = f->params[unit]};
}

int forward_logits(struct forward_pass *f, const int32_t *tokens, int count, float *logits, struct error *err)
{
    const struct micro_batch mb = {.samples = 1, .tokens = f->tokens};
    struct weights positions = weights_of(f, UNIT_POSITION);
    size_t bytes = (size_t)f->shape.seq_length * sizeof *tokens;
    int layer;

    /* A GPT's rows do not see those after them, so what follows the text may be anything: it is token 0. */
    memset(f->tokens_host, 0, bytes);
    memcpy(f->tokens_host, tokens, (size_t)count * sizeof *tokens);
    if (f->context.sizes.discrete)
        f->context.k->copy(f->context.dev, f->tokens, f->tokens_host, bytes);
    embed_forward(&positions, f->units, f->params[UNIT_WTE], &mb, f->scratch.part, f->x[0]);
    for (layer = 0; layer < f->shape.layers; layer++) {
        struct block_pass block = {
            .w = weights_of(f, UNIT_BLOCK0 + layer), .layer = layer, .a = &f->activations, .s = &f->scratch, .mb = &mb};

        f->activations.x = f->x[layer % 2];
        block_forward(&block, f->x[(layer + 1) % 2]);
    }
    head_logits(&f->head, f->params[units_head(f->units)], f->params[UNIT_WTE], f->x[layer % 2], &mb, count - 1,
                logits);
    return device_status(f->context.dev, err);
}

/* ---- the choice of the next token ---- */

/* The likeliest first; of equal ones the lower id. */
static int compare_ids(const void *left, const void *right, void *logits)
{
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    const float *p = logits;

    return p[a] != p[b] ? (p[a] < p[b]) - (p[a] > p[b]) : (a > b) - (a < b);
}

int32_t sample_next(const struct sampling *s, float *logits, const bool *allowed, int count, double uniform,
                    int32_t *order)
{
    double highest, total = 0, sum = 0, at = 0;
    int n = 0, kept = 0;

    for (int32_t id = 0; id < count; id++)
        if (allowed[id] && isfinite(logits[id]))
            order[n++] = id;
    if (n == 0)
        return -1;
    qsort_r(order, (size_t)n, sizeof *order, compare_ids, logits);
    if (s->temperature <= 0)
        return order[0];
    if (s->top_k > 0 && s->top_k < n)
        n = s->top_k;
    highest = logits[order[0]];
    for (int i = 0; i < n; i++)
        total += logits[order[i]] = (float)exp((logits[order[i]] - highest) / s->temperature);
    while (kept < n && (kept == 0 || sum < s->top_p * total))
        sum += logits[order[kept++]];
    for (int i = 0; i < kept; i++) {
        at += logits[order[i]];
        if (uniform * sum < at)
            return order[i];
    }
    return order[kept - 1];
}

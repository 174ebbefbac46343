#include "trainer/model/model.h"

#include <stdlib.h>

#include "trainer/model/block.h"

struct chunk {
    const struct model_chunk *config;
    int first_of_stage;             /* its first layer's place among the layers of the stage */
    struct block_activations *acts; /* [slots][layers] */
    char *inputs, *outputs;         /* [chunk_inputs], [chunk_outputs] of stream_stride each */
};

struct model {
    const struct context *c;
    const struct units *units;
    struct zero *zero;
    struct model_config config;
    struct chunk chunks[MODEL_MAX_CHUNKS];
    struct block_scratch scratch;
    struct model_head head;
    void *gradients[MODEL_GRADIENTS];
    char *kept, *shared, *workspace; /* the memory of all of these */
    char *host;                      /* and what the host reads; NULL unless the device is discrete */
};

/*
 * ---- memory ----
 *
 * Four buffers: `kept` from forward to backward, `shared` for recomputed activations, `workspace` for the current
 * operation, and `host` in host memory.
 */
struct model_layouts {
    struct buffer_layout kept, shared, workspace, host;
};

size_t model_stream_bytes(const struct model *m, int samples)
{
    return stream_bytes(&m->c->sizes, samples);
}

/* The distance between two of a chunk's inputs, or outputs: the bytes of the largest, rounded up. */
static size_t stream_stride(const struct model *m)
{
    return buffer_bytes(model_stream_bytes(m, m->c->sizes.samples));
}

static int create_chunks(struct model *m, struct error *err)
{
    int layers = 0;

    for (int i = 0; i < m->config.chunks; i++) {
        struct chunk *chunk = &m->chunks[i];
        const struct model_chunk *config = &m->config.chunk[i];

        chunk->config = config;
        chunk->first_of_stage = layers;
        chunk->acts = error_calloc((size_t)config->slots * (size_t)config->layers + 1, sizeof *chunk->acts, err);
        if (!chunk->acts)
            return -1;
        layers += config->layers;
    }
    return 0;
}

static enum recompute recompute_of(const struct context *c, const struct chunk *chunk, int layer)
{
    return layer_recompute(c->job, chunk->first_of_stage + layer);
}

/* One micro-batch's activations. Every layer's input is kept, also with recomputation. Every block uses the shared
 * buffer from its beginning; its size is that of the largest block. */
static void place_slot(const struct model *m, const struct chunk *chunk, struct block_activations *acts,
                       struct model_layouts *to)
{
    for (int l = 0; l < chunk->config->layers; l++) {
        struct buffer_layout own = {.base = to->shared.base};

        if (l > 0)
            acts[l].x = place_buffer(&to->kept, stream_stride(m));
        block_activations_place(&acts[l], m->c, recompute_of(m->c, chunk, l), &to->kept, &own);
        if (own.used > to->shared.used)
            to->shared.used = own.used;
    }
}

static void place_model(struct model *m, struct model_layouts *to)
{
    int gradients = m->config.pipelined ? MODEL_GRADIENTS : 1;

    for (int i = 0; i < m->config.chunks; i++) {
        struct chunk *chunk = &m->chunks[i];

        chunk->inputs = place_buffer(&to->kept, (size_t)chunk_inputs(chunk->config) * stream_stride(m));
        chunk->outputs = place_buffer(&to->kept, (size_t)chunk_outputs(chunk->config) * stream_stride(m));
        for (int s = 0; s < chunk->config->slots; s++)
            place_slot(m, chunk, &chunk->acts[s * chunk->config->layers], to);
        if (chunk->config->has_head)
            head_place(&m->head, m->c, m->units, &to->workspace, &to->host);
    }
    block_scratch_place(&m->scratch, m->c, &to->workspace, &to->host);
    for (int i = 0; i < MODEL_GRADIENTS; i++)
        m->gradients[i] = i < gradients ? place_buffer(&to->workspace, stream_stride(m)) : m->gradients[0];
}

/* The sizes are model_bytes'; place_model must fill exactly these. */
static int allocate_buffers(struct model *m, struct error *err)
{
    struct model_bytes bytes = model_bytes(m->c->job, &m->c->sizes, &m->config);
    struct model_layouts layouts;
    struct device *dev = m->c->dev;

    if (create_chunks(m, err) < 0)
        return -1;
    m->kept = device_alloc(dev, MEMORY_DEVICE, bytes.kept, err);
    m->shared = m->kept && bytes.shared ? device_alloc(dev, MEMORY_DEVICE, bytes.shared, err) : m->kept;
    m->workspace = m->shared ? device_alloc(dev, MEMORY_DEVICE, bytes.workspace, err) : NULL;
    if (m->workspace && bytes.host)
        m->host = device_alloc(dev, MEMORY_HOST, bytes.host, err);
    if (!m->workspace || (bytes.host && !m->host))
        return error_prefix(err, "activations of %d layers", m->c->shape->layers);
    layouts = (struct model_layouts){
        .kept.base = m->kept, .shared.base = m->shared, .workspace.base = m->workspace, .host.base = m->host};
    place_model(m, &layouts);
    block_scratch_fill(&m->scratch, m->c);
    if (layouts.kept.used == bytes.kept && layouts.shared.used == bytes.shared &&
        layouts.workspace.used == bytes.workspace && layouts.host.used == bytes.host)
        return 0;
    return error_set(err, CODE_INTERNAL, "the model's memory is not the planned one");
}

struct model *model_create(const struct context *context, const struct units *units, struct zero *zero,
                           const struct model_config *config, struct error *err)
{
    struct model *m = error_calloc(1, sizeof *m, err);

    if (!m)
        return NULL;
    m->c = context;
    m->units = units;
    m->zero = zero;
    m->config = *config;
    if (allocate_buffers(m, err) == 0)
        return m;
    model_destroy(m);
    return NULL;
}

void model_destroy(struct model *m)
{
    if (!m)
        return;
    if (m->shared != m->kept)
        device_free(m->c->dev, MEMORY_DEVICE, m->shared);
    device_free(m->c->dev, MEMORY_DEVICE, m->kept);
    device_free(m->c->dev, MEMORY_DEVICE, m->workspace);
    device_free(m->c->dev, MEMORY_HOST, m->host);
    for (int i = 0; i < m->config.chunks; i++)
        free(m->chunks[i].acts);
    free(m);
}

void *model_input(struct model *m, int chunk, int mb_index)
{
    int slot = mb_index % chunk_inputs(m->chunks[chunk].config);

    return m->chunks[chunk].inputs + (size_t)slot * stream_stride(m);
}

void *model_output(struct model *m, int chunk, int mb_index)
{
    int slot = mb_index % chunk_outputs(m->chunks[chunk].config);

    return m->chunks[chunk].outputs + (size_t)slot * stream_stride(m);
}

void *model_gradient(struct model *m, int index)
{
    return m->gradients[index % MODEL_GRADIENTS];
}

static struct block_activations *slot_of(const struct chunk *chunk, int mb_index)
{
    return &chunk->acts[mb_index % chunk->config->slots * chunk->config->layers];
}

/* ---- forward ---- */

static struct weights weights_of(const struct model *m, int unit)
{
    return (struct weights){.c = m->c, .unit = &m->units->units[unit], .param = zero_param(m->zero, unit)};
}

/* A layer of a chunk, whose parameters are gathered. */
static struct block_pass gather_block(const struct model *m, const struct chunk *chunk, int l,
                                      const struct block_activations *acts, const struct micro_batch *mb)
{
    int layer = chunk->config->first_layer + l;

    zero_gather(m->zero, UNIT_BLOCK0 + layer);
    return (struct block_pass){
        .w = weights_of(m, UNIT_BLOCK0 + layer), .layer = layer, .a = &acts[l], .s = &m->scratch, .mb = mb};
}

static void embed_tokens(struct model *m, const struct micro_batch *mb, void *x)
{
    struct weights positions;

    zero_gather(m->zero, UNIT_WTE);
    zero_gather(m->zero, UNIT_POSITION);
    positions = weights_of(m, UNIT_POSITION);
    embed_forward(&positions, m->units, zero_param(m->zero, UNIT_WTE), mb, m->scratch.part, x);
    zero_release(m->zero, UNIT_POSITION);
    zero_release(m->zero, UNIT_WTE);
}

void model_forward(struct model *m, int index, int mb_index, const struct micro_batch *mb)
{
    const struct chunk *chunk = &m->chunks[index];
    struct block_activations *acts = slot_of(chunk, mb_index);
    void *x = model_input(m, index, mb_index), *out = model_output(m, index, mb_index);
    int layers = chunk->config->layers;

    if (chunk->config->has_embedding)
        embed_tokens(m, mb, x);
    acts[0].x = x;
    for (int l = 0; l < layers; l++) {
        struct block_pass block = gather_block(m, chunk, l, acts, mb);

        block_forward(&block, l + 1 < layers ? acts[l + 1].x : out);
        zero_release(m->zero, UNIT_BLOCK0 + block.layer);
    }
    if (layers == 0) /* a stage that has the embedding or the head only, or nothing */
        m->c->k->copy(m->c->dev, out, x, model_stream_bytes(m, mb->samples));
}

static void gather_head(struct model *m)
{
    if (!m->c->shape->untied)
        zero_gather(m->zero, UNIT_WTE);
    zero_gather(m->zero, units_head(m->units));
}

static void release_head(struct model *m)
{
    zero_release(m->zero, units_head(m->units));
    if (!m->c->shape->untied)
        zero_release(m->zero, UNIT_WTE);
}

/* NULL if the head is untied: the embedding may be on another stage. */
static const void *tied_projection(const struct model *m)
{
    return m->c->shape->untied ? NULL : zero_param(m->zero, UNIT_WTE);
}

static void run_head(struct model *m, int mb_index, const struct micro_batch *mb,
                     const struct head_gradients *gradients)
{
    head_losses(&m->head, zero_param(m->zero, units_head(m->units)), tied_projection(m),
                model_output(m, m->config.chunks - 1, mb_index), mb, gradients);
    release_head(m);
}

void model_losses(struct model *m, int mb_index, const struct micro_batch *mb)
{
    gather_head(m);
    run_head(m, mb_index, mb, NULL);
}

void model_logits(struct model *m, const struct micro_batch *mb, int sample, int position, float *out)
{
    gather_head(m);
    head_logits(&m->head, zero_param(m->zero, units_head(m->units)), tied_projection(m), model_output(m, 0, 0), mb,
                sample * m->c->shape->seq_length + position, out);
    release_head(m);
}

/* ---- backward ---- */

/* A tied embedding's gradient is completed by the embedding's backward pass, if that is on this stage too. */
static void head_backward(struct model *m, int mb_index, const struct micro_batch *mb,
                          const struct loss_factors *scales, void *dx, float **wte_grad)
{
    struct head_gradients gradients = {.scales = scales, .dx = dx};
    int head = units_head(m->units);

    gather_head(m);
    if (!m->c->shape->untied)
        gradients.wte = *wte_grad = zero_grad_begin(m->zero, UNIT_WTE);
    gradients.head = zero_grad_begin(m->zero, head);
    run_head(m, mb_index, mb, &gradients);
    zero_grad_ready(m->zero, head);
    if (m->config.pipelined && *wte_grad)
        zero_grad_ready(m->zero, UNIT_WTE);
}

static void layer_backward(struct model *m, const struct chunk *chunk, int l, const struct block_activations *acts,
                           const struct micro_batch *mb, void *dx)
{
    int unit = UNIT_BLOCK0 + chunk->config->first_layer + l;
    struct block_pass block = gather_block(m, chunk, l, acts, mb);

    block_recompute(&block, recompute_of(m->c, chunk, l));
    block.w.grad = zero_grad_begin(m->zero, unit);
    block_backward(&block, dx);
    zero_release(m->zero, unit);
    zero_grad_ready(m->zero, unit);
}

static void embed_tokens_backward(struct model *m, const struct micro_batch *mb, void *dx, float *wte_grad)
{
    struct weights positions = {.c = m->c, .unit = &m->units->units[UNIT_POSITION]};

    if (!wte_grad) { /* the head is on another stage, or untied */
        wte_grad = zero_grad_begin(m->zero, UNIT_WTE);
        m->c->k->zero(m->c->dev, wte_grad, m->units->units[UNIT_WTE].count * sizeof *wte_grad);
    }
    positions.grad = zero_grad_begin(m->zero, UNIT_POSITION);
    embed_backward(&positions, m->units, mb, dx, m->scratch.part, wte_grad);
    zero_grad_ready(m->zero, UNIT_POSITION);
    zero_grad_ready(m->zero, UNIT_WTE);
}

void model_backward(struct model *m, int index, int mb_index, const struct micro_batch *mb,
                    const struct loss_factors *scales, void *dx)
{
    const struct chunk *chunk = &m->chunks[index];
    const struct block_activations *acts = slot_of(chunk, mb_index);
    float *wte_grad = NULL;

    if (chunk->config->has_head)
        head_backward(m, mb_index, mb, scales, dx, &wte_grad);
    for (int l = chunk->config->layers - 1; l >= 0; l--)
        layer_backward(m, chunk, l, acts, mb, dx);
    if (chunk->config->has_embedding)
        embed_tokens_backward(m, mb, dx, wte_grad);
}

/* ---- the order in which units are gathered ---- */

size_t model_forward_uses(const struct model *m, int index, int *units)
{
    const struct model_chunk *chunk = &m->config.chunk[index];
    size_t n = 0;

    if (chunk->has_embedding) {
        units[n++] = UNIT_WTE;
        units[n++] = UNIT_POSITION;
    }
    for (int l = 0; l < chunk->layers; l++)
        units[n++] = UNIT_BLOCK0 + chunk->first_layer + l;
    return n;
}

size_t model_losses_uses(const struct model *m, int *units)
{
    size_t n = 0;

    if (!m->c->shape->untied)
        units[n++] = UNIT_WTE;
    units[n++] = units_head(m->units);
    return n;
}

size_t model_backward_uses(const struct model *m, int index, int *units)
{
    const struct model_chunk *chunk = &m->config.chunk[index];
    size_t n = chunk->has_head ? model_losses_uses(m, units) : 0;

    for (int l = chunk->layers - 1; l >= 0; l--)
        units[n++] = UNIT_BLOCK0 + chunk->first_layer + l;
    return n;
}

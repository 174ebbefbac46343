#include "trainer/model/model_impl.h"

#include <stdlib.h>

#include "trainer/model/vocabulary.h"

static int allocate_buffers(struct model *m, struct error *err)
{
    struct model_layouts counted = {0}, layouts;
    struct device *dev = m->c->dev;

    if (model_create_lists(m, err) < 0)
        return -1;
    model_place(m, &counted);
    m->kept = device_alloc(dev, MEMORY_DEVICE, counted.kept.used, err);
    m->shared = m->kept && counted.shared.used ? device_alloc(dev, MEMORY_DEVICE, counted.shared.used, err) : m->kept;
    m->workspace = m->shared ? device_alloc(dev, MEMORY_DEVICE, counted.workspace.used, err) : NULL;
    if (m->workspace && counted.host.used)
        m->host = device_alloc(dev, MEMORY_HOST, counted.host.used, err);
    if (!m->workspace || (counted.host.used && !m->host))
        return error_prefix(err, "activations of %d layers", m->c->shape->layers);
    layouts = (struct model_layouts){
        .kept.base = m->kept, .shared.base = m->shared, .workspace.base = m->workspace, .host.base = m->host};
    model_place(m, &layouts);
    return 0;
}

struct model *model_create(const struct context *context, const struct units *units, struct zero *zero,
                           const struct model_config *config, struct error *err)
{
    struct model *m = calloc(1, sizeof *m);

    if (!m) {
        error_set(err, CODE_IO, "out of memory");
        return NULL;
    }
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
    model_destroy_lists(m);
    free(m);
}

void *model_input(struct model *m, int chunk, int mb)
{
    return m->chunks[chunk].inputs[mb % m->chunks[chunk].ninputs];
}

void *model_output(struct model *m, int chunk, int mb)
{
    return m->chunks[chunk].outputs[mb % m->chunks[chunk].noutputs];
}

void *model_gradient(struct model *m, int index)
{
    return m->gradients[index % MODEL_GRADIENTS];
}

static struct block_activations *slot_of(struct model *m, int chunk, int mb)
{
    return m->chunks[chunk].acts[mb % m->chunks[chunk].is.slots];
}

/* ---- forward ---- */

static void embed_tokens(struct model *m, const struct micro_batch *mb, void *x)
{
    zero_gather(m->zero, UNIT_WTE);
    zero_gather(m->zero, UNIT_POSITION);
    embedding_forward(m->c, m->units, zero_param(m->zero, UNIT_WTE), zero_param(m->zero, UNIT_POSITION), mb,
                      m->scratch.part, x);
    zero_release(m->zero, UNIT_POSITION);
    zero_release(m->zero, UNIT_WTE);
}

void model_forward(struct model *m, int index, int mb, const struct micro_batch *micro_batch)
{
    struct chunk *chunk = &m->chunks[index];
    struct block_activations *acts = slot_of(m, index, mb);
    void *x = model_input(m, index, mb), *out = model_output(m, index, mb);
    int layers = chunk->is.layers;

    if (chunk->is.embeds)
        embed_tokens(m, micro_batch, x);
    acts[0].x = x;
    for (int l = 0; l < layers; l++) {
        int unit = UNIT_BLOCK0 + chunk->is.first_layer + l;
        struct transformer_block block = block_of(m->c, m->units, chunk->is.first_layer + l);

        zero_gather(m->zero, unit);
        block_forward(&block, zero_param(m->zero, unit), &acts[l], &m->scratch, micro_batch,
                      l + 1 < layers ? acts[l + 1].x : out);
        zero_release(m->zero, unit);
    }
    if (layers == 0) /* a stage that has the embedding or the head only, or nothing */
        m->c->k->copy(m->c->dev, out, x,
                      (size_t)context_local_rows(m->c, micro_batch->samples) * (size_t)m->c->shape->hidden *
                          dtype_size(m->c->dtype));
}

static void gather_head(struct model *m)
{
    zero_gather(m->zero, UNIT_WTE); /* the tied projection */
    zero_gather(m->zero, units_head(m->units));
}

static void release_head(struct model *m)
{
    zero_release(m->zero, units_head(m->units));
    zero_release(m->zero, UNIT_WTE);
}

struct losses model_loss(struct model *m, int mb, const struct micro_batch *micro_batch)
{
    struct losses losses;

    gather_head(m);
    losses = head_loss(&m->head, zero_param(m->zero, units_head(m->units)), zero_param(m->zero, UNIT_WTE),
                       model_output(m, m->config.chunks - 1, mb), micro_batch);
    release_head(m);
    return losses;
}

void model_logits(struct model *m, const struct micro_batch *micro_batch, int sample, int position, float *out)
{
    gather_head(m);
    head_logits(&m->head, zero_param(m->zero, units_head(m->units)), zero_param(m->zero, UNIT_WTE),
                model_output(m, 0, 0), micro_batch, sample * m->c->shape->seq_length + position, out);
    release_head(m);
}

/* ---- backward ---- */

/* The tied embedding's gradient is completed by the embedding's backward pass, if that is on this stage too. */
static struct losses head_backward(struct model *m, const struct chunk *chunk, int mb,
                                   const struct micro_batch *micro_batch, const struct loss_scales *scales, void *dx,
                                   float **wte_grad)
{
    int head = units_head(m->units);
    struct losses losses;

    gather_head(m);
    *wte_grad = zero_grad_begin(m->zero, UNIT_WTE);
    losses = head_loss_backward(&m->head, zero_param(m->zero, head), zero_param(m->zero, UNIT_WTE),
                                zero_grad_begin(m->zero, head), *wte_grad, chunk->outputs[mb % chunk->noutputs],
                                micro_batch, scales, dx);
    release_head(m);
    zero_grad_ready(m->zero, head);
    if (m->config.pipelined)
        zero_grad_ready(m->zero, UNIT_WTE);
    return losses;
}

static void layer_backward(struct model *m, const struct chunk *chunk, int l, const struct block_activations *acts,
                           const struct micro_batch *micro_batch, void *dx)
{
    int unit = UNIT_BLOCK0 + chunk->is.first_layer + l;
    struct transformer_block block = block_of(m->c, m->units, chunk->is.first_layer + l);
    const void *param;

    zero_gather(m->zero, unit);
    param = zero_param(m->zero, unit);
    block_recompute(&block, chunk->recompute[l], param, &acts[l], &m->scratch, micro_batch);
    block_backward(&block, param, zero_grad_begin(m->zero, unit), &acts[l], &m->scratch, micro_batch, dx);
    zero_release(m->zero, unit);
    zero_grad_ready(m->zero, unit);
}

static void embed_backward(struct model *m, const struct micro_batch *micro_batch, void *dx, float *wte_grad)
{
    if (!wte_grad) { /* the head is on another stage */
        wte_grad = zero_grad_begin(m->zero, UNIT_WTE);
        m->c->k->zero(m->c->dev, wte_grad, m->units->units[UNIT_WTE].count * sizeof *wte_grad);
    }
    embedding_backward(m->c, m->units, micro_batch, dx, m->scratch.part, wte_grad,
                       zero_grad_begin(m->zero, UNIT_POSITION));
    zero_grad_ready(m->zero, UNIT_POSITION);
    zero_grad_ready(m->zero, UNIT_WTE);
}

struct losses model_backward(struct model *m, int index, int mb, const struct micro_batch *micro_batch,
                             const struct loss_scales *scales, void *dx)
{
    const struct chunk *chunk = &m->chunks[index];
    const struct block_activations *acts = slot_of(m, index, mb);
    struct losses losses = {0};
    float *wte_grad = NULL;

    if (chunk->is.heads)
        losses = head_backward(m, chunk, mb, micro_batch, scales, dx, &wte_grad);
    for (int l = chunk->is.layers - 1; l >= 0; l--)
        layer_backward(m, chunk, l, acts, micro_batch, dx);
    if (chunk->is.embeds)
        embed_backward(m, micro_batch, dx, wte_grad);
    return losses;
}

/* ---- the order in which units are gathered ---- */

size_t model_forward_uses(const struct model *m, int index, int *units)
{
    const struct model_chunk *chunk = &m->config.chunk[index];
    size_t n = 0;

    if (chunk->embeds) {
        units[n++] = UNIT_WTE;
        units[n++] = UNIT_POSITION;
    }
    for (int l = 0; l < chunk->layers; l++)
        units[n++] = UNIT_BLOCK0 + chunk->first_layer + l;
    return n;
}

size_t model_loss_uses(const struct model *m, int *units)
{
    units[0] = UNIT_WTE;
    units[1] = units_head(m->units);
    return 2;
}

size_t model_backward_uses(const struct model *m, int index, int *units)
{
    const struct model_chunk *chunk = &m->config.chunk[index];
    size_t n = chunk->heads ? model_loss_uses(m, units) : 0;

    for (int l = chunk->layers - 1; l >= 0; l--)
        units[n++] = UNIT_BLOCK0 + chunk->first_layer + l;
    return n;
}

/* model_buffers.c - the layout of a model's memory: kept and recomputed activations, and workspace. */
#include <stdlib.h>

#include "trainer/model/model_impl.h"

static size_t stream_bytes(const struct model *m)
{
    const struct context *c = m->c;

    return (size_t)context_local_rows(c, m->config.max_samples) * (size_t)c->shape->hidden * dtype_size(c->dtype);
}

/* The first recompute_layers layers of the stage, counted over its chunks. */
static enum recompute recompute_of(const struct context *c, int layer_of_stage)
{
    return c->recompute_layers == 0 || layer_of_stage < c->recompute_layers ? c->recompute : RECOMPUTE_NONE;
}

int model_create_lists(struct model *m, struct error *err)
{
    int layer_of_stage = 0;

    for (int i = 0; i < m->config.chunks; i++) {
        struct chunk *chunk = &m->chunks[i];
        const struct model_chunk *is = &m->config.chunk[i];
        size_t layers = (size_t)is->layers;

        chunk->is = *is;
        chunk->ninputs = is->embeds ? is->slots : is->slots + 1;
        chunk->noutputs = is->heads ? is->slots : 2;
        chunk->recompute = calloc(layers + 1, sizeof *chunk->recompute);
        chunk->acts = calloc((size_t)is->slots + 1, sizeof *chunk->acts);
        chunk->inputs = calloc((size_t)chunk->ninputs, sizeof *chunk->inputs);
        chunk->outputs = calloc((size_t)chunk->noutputs, sizeof *chunk->outputs);
        for (int s = 0; chunk->acts && s < is->slots; s++)
            chunk->acts[s] = calloc(layers + 1, sizeof **chunk->acts);
        if (!chunk->recompute || !chunk->acts || !chunk->inputs || !chunk->outputs ||
            !chunk->acts[is->slots ? is->slots - 1 : 0])
            return error_set(err, CODE_IO, "out of memory for a list of %d layers", is->layers);
        for (int l = 0; l < is->layers; l++)
            chunk->recompute[l] = recompute_of(m->c, layer_of_stage++);
    }
    return 0;
}

void model_destroy_lists(struct model *m)
{
    for (int i = 0; i < m->config.chunks; i++) {
        struct chunk *chunk = &m->chunks[i];

        for (int s = 0; chunk->acts && s < chunk->is.slots; s++)
            free(chunk->acts[s]);
        free(chunk->acts);
        free(chunk->inputs);
        free(chunk->outputs);
        free(chunk->recompute);
    }
}

/* Every block uses the shared buffer from its beginning; its size is that of the largest block. */
static void place_block(const struct model *m, struct block_activations *a, enum recompute recompute,
                        struct buffer_layout *kept, struct buffer_layout *shared)
{
    struct buffer_layout own = {.base = shared->base};

    block_activations_place(a, m->c, recompute, m->config.max_samples, kept, &own);
    if (own.used > shared->used)
        shared->used = own.used;
}

/* One micro-batch's activations. Every layer's input is kept, also with recomputation. */
static void place_slot(const struct model *m, const struct chunk *chunk, struct block_activations *acts,
                       struct buffer_layout *kept, struct buffer_layout *shared)
{
    for (int l = 0; l < chunk->is.layers; l++) {
        if (l > 0)
            acts[l].x = place_buffer(kept, stream_bytes(m));
        place_block(m, &acts[l], chunk->recompute[l], kept, shared);
    }
}

/* Without a backward pass all layers share one block's activations, and inputs alternate. */
static void place_inference(const struct model *m, const struct chunk *chunk, struct block_activations *acts,
                            struct buffer_layout *kept, struct buffer_layout *shared)
{
    void *inputs[] = {place_buffer(kept, stream_bytes(m)), place_buffer(kept, stream_bytes(m))};

    for (int l = 0; l < chunk->is.layers; l++) {
        place_block(m, &acts[l], RECOMPUTE_FULL, kept, shared);
        acts[l].x = inputs[l % 2];
    }
}

static void place_chunk(const struct model *m, struct chunk *chunk, struct buffer_layout *kept,
                        struct buffer_layout *shared)
{
    for (int i = 0; i < chunk->ninputs; i++)
        chunk->inputs[i] = place_buffer(kept, stream_bytes(m));
    for (int i = 0; i < chunk->noutputs; i++)
        chunk->outputs[i] = place_buffer(kept, stream_bytes(m));
    for (int s = 0; s < chunk->is.slots; s++) {
        if (m->config.training)
            place_slot(m, chunk, chunk->acts[s], kept, shared);
        else
            place_inference(m, chunk, chunk->acts[s], kept, shared);
    }
}

void model_place(struct model *m, struct model_layouts *from)
{
    struct buffer_layout *workspace = &from->workspace;
    int gradients = !m->config.training ? 0 : m->config.pipelined ? MODEL_GRADIENTS : 1;

    for (int i = 0; i < m->config.chunks; i++) {
        place_chunk(m, &m->chunks[i], &from->kept, &from->shared);
        if (m->chunks[i].is.heads)
            head_place(&m->head, m->c, m->units, m->config.max_samples, workspace, &from->host);
    }
    block_scratch_place(&m->scratch, m->c, m->config.max_samples, workspace);
    for (int i = 0; i < MODEL_GRADIENTS; i++)
        m->gradients[i] = i < gradients ? place_buffer(workspace, stream_bytes(m)) : m->gradients[0];
}

void model_footprint(const struct context *context, const struct units *units, const struct model_config *config,
                     struct footprint *bytes)
{
    struct model m = {.c = context, .units = units, .config = *config};
    struct model_layouts layouts = {0};
    struct error err;

    if (model_create_lists(&m, &err) == 0)
        model_place(&m, &layouts);
    model_destroy_lists(&m);
    bytes->activations += layouts.kept.used;
    bytes->workspace += layouts.shared.used + layouts.workspace.used;
    bytes->host_staging += layouts.host.used;
}

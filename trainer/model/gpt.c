#include "trainer/model/gpt.h"

#include <stdlib.h>

#include "trainer/model/block.h"
#include "trainer/model/head.h"

struct gpt {
    struct device *dev;
    const struct kernels *k;
    const struct model_shape *shape;
    const struct units *units;
    struct zero *zero;
    struct block_activations *acts; /* [layers]; without training, all share one */
    struct block_scratch scratch;
    struct head head;
    float *buffer, *scratch_buffer; /* what acts and scratch are cut from */
    float *streams;                 /* [layers + 1][R, d]: every block's input, and the last one's output */
    float *dx;                      /* [R, d] */
    float *x_last;
};

static float *alloc_floats(struct gpt *gpt, size_t count, struct error *err)
{
    return device_alloc(gpt->dev, MEMORY_DEVICE, count * sizeof(float), err);
}

/* Training keeps every block's activations; evaluation needs one block's, and two streams to go between. */
static int place_buffers(struct gpt *gpt, int max_samples, bool training, struct error *err)
{
    int layers = gpt->shape->layers, kept = training ? layers : 1;
    size_t stream = (size_t)max_samples * (size_t)gpt->shape->seq_length * (size_t)gpt->shape->hidden;
    size_t per_block = block_activation_count(gpt->shape, max_samples);

    gpt->buffer = alloc_floats(gpt, per_block * (size_t)kept, err);
    gpt->streams = gpt->buffer ? alloc_floats(gpt, stream * (size_t)(kept + 1), err) : NULL;
    if (!gpt->streams)
        return error_prefix(err, "activations of %d layers", layers);
    for (int l = 0; l < layers; l++) {
        block_activations_place(&gpt->acts[l], gpt->shape, max_samples,
                                gpt->buffer + per_block * (size_t)(training ? l : 0));
        gpt->acts[l].x = gpt->streams + stream * (size_t)(training ? l : l % 2);
    }
    gpt->x_last = gpt->streams + stream * (size_t)(training ? layers : layers % 2);
    if (!training)
        return 0;
    gpt->scratch_buffer = alloc_floats(gpt, block_scratch_count(gpt->shape, max_samples), err);
    gpt->dx = gpt->scratch_buffer ? alloc_floats(gpt, stream, err) : NULL;
    if (!gpt->dx)
        return error_prefix(err, "buffers of the backward pass");
    block_scratch_place(&gpt->scratch, gpt->shape, max_samples, gpt->scratch_buffer);
    return 0;
}

struct gpt *gpt_create(struct device *dev, const struct model_shape *shape, const struct units *units,
                       struct zero *zero, int max_samples, bool training, struct error *err)
{
    struct gpt *gpt = calloc(1, sizeof *gpt);

    if (!gpt) {
        error_set(err, CODE_IO, "out of memory");
        return NULL;
    }
    *gpt = (struct gpt){.dev = dev, .k = device_kernels(dev), .shape = shape, .units = units, .zero = zero};
    gpt->acts = calloc((size_t)shape->layers, sizeof *gpt->acts);
    if (!gpt->acts) {
        error_set(err, CODE_IO, "out of memory for %d layers", shape->layers);
        goto fail;
    }
    if (place_buffers(gpt, max_samples, training, err) < 0 ||
        head_create(&gpt->head, dev, shape, units, max_samples, err) < 0)
        goto fail;
    return gpt;
fail:
    gpt_destroy(gpt);
    return NULL;
}

void gpt_destroy(struct gpt *gpt)
{
    if (!gpt)
        return;
    head_destroy(&gpt->head);
    device_free(gpt->dev, MEMORY_DEVICE, gpt->buffer);
    device_free(gpt->dev, MEMORY_DEVICE, gpt->streams);
    device_free(gpt->dev, MEMORY_DEVICE, gpt->scratch_buffer);
    device_free(gpt->dev, MEMORY_DEVICE, gpt->dx);
    free(gpt->acts);
    free(gpt);
}

static struct block block_of(const struct gpt *gpt, int layer)
{
    return (struct block){
        .dev = gpt->dev, .k = gpt->k, .shape = gpt->shape, .unit = &gpt->units->units[UNIT_BLOCK0 + layer]};
}

static int head_unit(const struct gpt *gpt)
{
    return UNIT_BLOCK0 + gpt->shape->layers;
}

static void embed(struct gpt *gpt, const struct micro_batch *mb, float *x)
{
    const struct unit_tensor *t = gpt->units->units[UNIT_EMBEDDING].tensors;
    const float *param = zero_param(gpt->zero, UNIT_EMBEDDING);

    gpt->k->embedding_forward(gpt->dev, &(struct embedding){.rows = mb->samples * gpt->shape->seq_length,
                                                            .cols = gpt->shape->hidden,
                                                            .vocab = gpt->shape->vocab,
                                                            .tokens = mb->tokens,
                                                            .wte = param + t[EMBEDDING_WTE].offset,
                                                            .x = x});
    gpt->k->positions_forward(gpt->dev, &(struct positions){.rows = mb->samples * gpt->shape->seq_length,
                                                            .cols = gpt->shape->hidden,
                                                            .seq = gpt->shape->seq_length,
                                                            .wpe = param + t[EMBEDDING_WPE].offset,
                                                            .x = x});
}

/* The head has put its share into dwte already; dwpe is all ours. */
static void embed_backward(struct gpt *gpt, const struct micro_batch *mb, float *grad)
{
    const struct unit_tensor *t = gpt->units->units[UNIT_EMBEDDING].tensors;

    gpt->k->positions_backward(gpt->dev, &(struct positions){.rows = mb->samples * gpt->shape->seq_length,
                                                             .cols = gpt->shape->hidden,
                                                             .seq = gpt->shape->seq_length,
                                                             .x = gpt->dx,
                                                             .dwpe = grad + t[EMBEDDING_WPE].offset});
    gpt->k->embedding_backward(gpt->dev, &(struct embedding){.rows = mb->samples * gpt->shape->seq_length,
                                                             .cols = gpt->shape->hidden,
                                                             .vocab = gpt->shape->vocab,
                                                             .tokens = mb->tokens,
                                                             .x = gpt->dx,
                                                             .dwte = grad + t[EMBEDDING_WTE].offset});
}

void gpt_forward(struct gpt *gpt, const struct micro_batch *mb)
{
    int layers = gpt->shape->layers;

    zero_gather(gpt->zero, UNIT_EMBEDDING);
    embed(gpt, mb, layers ? gpt->acts[0].x : gpt->x_last);
    zero_release(gpt->zero, UNIT_EMBEDDING);
    for (int l = 0; l < layers; l++) {
        struct block block = block_of(gpt, l);

        zero_gather(gpt->zero, UNIT_BLOCK0 + l);
        block_forward(&block, zero_param(gpt->zero, UNIT_BLOCK0 + l), &gpt->acts[l], mb->samples,
                      l + 1 < layers ? gpt->acts[l + 1].x : gpt->x_last);
        zero_release(gpt->zero, UNIT_BLOCK0 + l);
    }
}

static void gather_head(struct gpt *gpt)
{
    zero_gather(gpt->zero, UNIT_EMBEDDING); /* the tied projection */
    zero_gather(gpt->zero, head_unit(gpt));
}

static void release_head(struct gpt *gpt)
{
    zero_release(gpt->zero, head_unit(gpt));
    zero_release(gpt->zero, UNIT_EMBEDDING);
}

double gpt_backward(struct gpt *gpt, const struct micro_batch *mb, float scale)
{
    int head = head_unit(gpt);
    float *embedding_grad, *head_grad;
    double loss;

    gather_head(gpt);
    embedding_grad = zero_grad_begin(gpt->zero, UNIT_EMBEDDING);
    head_grad = zero_grad_begin(gpt->zero, head);
    loss = head_loss_backward(&gpt->head, zero_param(gpt->zero, head), zero_param(gpt->zero, UNIT_EMBEDDING), head_grad,
                              embedding_grad, gpt->x_last, mb->targets, mb->samples, scale, gpt->dx);
    release_head(gpt);
    zero_grad_ready(gpt->zero, head);

    for (int l = gpt->shape->layers - 1; l >= 0; l--) {
        struct block block = block_of(gpt, l);
        int unit = UNIT_BLOCK0 + l;

        zero_gather(gpt->zero, unit);
        block_backward(&block, zero_param(gpt->zero, unit), zero_grad_begin(gpt->zero, unit), &gpt->acts[l],
                       &gpt->scratch, mb->samples, gpt->dx);
        zero_release(gpt->zero, unit);
        zero_grad_ready(gpt->zero, unit);
    }

    embed_backward(gpt, mb, embedding_grad);
    zero_grad_ready(gpt->zero, UNIT_EMBEDDING);
    return loss;
}

double gpt_loss(struct gpt *gpt, const struct micro_batch *mb)
{
    double loss;

    gather_head(gpt);
    loss = head_loss(&gpt->head, zero_param(gpt->zero, head_unit(gpt)), zero_param(gpt->zero, UNIT_EMBEDDING),
                     gpt->x_last, mb->targets, mb->samples);
    release_head(gpt);
    return loss;
}

void gpt_logits(struct gpt *gpt, const struct micro_batch *mb, int sample, int position, float *out)
{
    gather_head(gpt);
    head_logits(&gpt->head, zero_param(gpt->zero, head_unit(gpt)), zero_param(gpt->zero, UNIT_EMBEDDING), gpt->x_last,
                mb->samples, sample * gpt->shape->seq_length + position, out);
    release_head(gpt);
}

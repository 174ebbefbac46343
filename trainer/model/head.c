#include "trainer/model/head.h"

#include <string.h>

static int rows_of(const struct head *h, int samples)
{
    return samples * h->shape->seq_length;
}

int head_create(struct head *h, struct device *dev, const struct model_shape *shape, const struct units *units,
                int samples, struct error *err)
{
    size_t rows = (size_t)samples * (size_t)shape->seq_length;
    size_t chunk = rows < HEAD_CHUNK ? rows : HEAD_CHUNK;
    float *stats;

    *h = (struct head){
        .dev = dev,
        .k = device_kernels(dev),
        .shape = shape,
        .unit = &units->units[units->nunits - 1],
        .embedding = &units->units[UNIT_EMBEDDING],
    };
    h->y = device_alloc(dev, MEMORY_DEVICE, rows * (size_t)shape->hidden * sizeof(float), err);
    h->logits =
        h->y ? device_alloc(dev, MEMORY_DEVICE, chunk * (size_t)units_padded_vocab(shape) * sizeof(float), err) : NULL;
    stats = h->logits ? device_alloc(dev, MEMORY_DEVICE, 6 * rows * sizeof(float), err) : NULL;
    if (!stats) {
        head_destroy(h);
        return error_prefix(err, "head");
    }
    h->mean = stats;
    h->rstd = stats + rows;
    h->max = stats + 2 * rows;
    h->sum = stats + 3 * rows;
    h->target = stats + 4 * rows;
    h->loss = stats + 5 * rows;
    return 0;
}

void head_destroy(struct head *h)
{
    if (!h->dev)
        return;
    device_free(h->dev, MEMORY_DEVICE, h->y);
    device_free(h->dev, MEMORY_DEVICE, h->logits);
    device_free(h->dev, MEMORY_DEVICE, h->mean); /* the other statistics lie behind it */
    *h = (struct head){0};
}

static void final_norm(struct head *h, const float *param, const float *x, int samples)
{
    h->k->layernorm_forward(h->dev, &(struct layernorm){.rows = rows_of(h, samples),
                                                        .cols = h->shape->hidden,
                                                        .x = x,
                                                        .y = h->y,
                                                        .mean = h->mean,
                                                        .rstd = h->rstd,
                                                        .gamma = param + h->unit->tensors[HEAD_LN_F_WEIGHT].offset,
                                                        .beta = param + h->unit->tensors[HEAD_LN_F_BIAS].offset});
}

static void chunk_logits(struct head *h, const float *wte, int first, int rows)
{
    int d = h->shape->hidden;

    h->k->matmul(h->dev, &(struct matmul){.m = rows,
                                          .n = units_padded_vocab(h->shape),
                                          .k = d,
                                          .transpose_b = true,
                                          .a = h->y + (size_t)first * (size_t)d,
                                          .b = wte,
                                          .c = h->logits});
}

static void chunk_loss(struct head *h, const int32_t *targets, int first, int rows, float scale)
{
    struct cross_entropy ce = {
        .rows = rows,
        .vocab = h->shape->vocab,
        .stride = units_padded_vocab(h->shape),
        .targets = targets + first,
        .logits = h->logits,
        .scale = scale,
        .max = h->max + first,
        .sum = h->sum + first,
        .target = h->target + first,
        .loss = h->loss + first,
    };

    h->k->cross_entropy_stats(h->dev, &ce);
    h->k->cross_entropy_finish(h->dev, &ce);
}

/* dwte += dlogits^T y (the first chunk overwrites), then y's rows become their own gradient, dlogits wte. */
static void chunk_backward(struct head *h, const float *wte, float *dwte, int first, int rows)
{
    int d = h->shape->hidden, vocab = units_padded_vocab(h->shape);
    float *y = h->y + (size_t)first * (size_t)d;

    h->k->matmul(h->dev, &(struct matmul){.m = vocab,
                                          .n = d,
                                          .k = rows,
                                          .transpose_a = true,
                                          .accumulate = first > 0,
                                          .a = h->logits,
                                          .b = y,
                                          .c = dwte});
    h->k->matmul(h->dev, &(struct matmul){.m = rows, .n = d, .k = vocab, .a = h->logits, .b = wte, .c = y});
}

static double total_loss(struct head *h, int rows)
{
    double total = 0;

    device_wait(h->dev);
    for (int i = 0; i < rows; i++)
        total += h->loss[i];
    return total;
}

double head_loss(struct head *h, const float *param, const float *embedding_param, const float *x,
                 const int32_t *targets, int samples)
{
    const float *wte = embedding_param + h->embedding->tensors[EMBEDDING_WTE].offset;
    int all = rows_of(h, samples);

    final_norm(h, param, x, samples);
    for (int first = 0; first < all; first += HEAD_CHUNK) {
        int rows = all - first < HEAD_CHUNK ? all - first : HEAD_CHUNK;

        chunk_logits(h, wte, first, rows);
        chunk_loss(h, targets, first, rows, 0.0f);
    }
    return total_loss(h, all);
}

double head_loss_backward(struct head *h, const float *param, const float *embedding_param, float *grad,
                          float *embedding_grad, const float *x, const int32_t *targets, int samples, float scale,
                          float *dx)
{
    const float *wte = embedding_param + h->embedding->tensors[EMBEDDING_WTE].offset;
    float *dwte = embedding_grad + h->embedding->tensors[EMBEDDING_WTE].offset;
    int all = rows_of(h, samples);

    final_norm(h, param, x, samples);
    for (int first = 0; first < all; first += HEAD_CHUNK) {
        int rows = all - first < HEAD_CHUNK ? all - first : HEAD_CHUNK;

        chunk_logits(h, wte, first, rows);
        chunk_loss(h, targets, first, rows, scale);
        chunk_backward(h, wte, dwte, first, rows);
    }
    h->k->layernorm_backward(h->dev,
                             &(struct layernorm_backward){.rows = all,
                                                          .cols = h->shape->hidden,
                                                          .dy = h->y,
                                                          .sum = x,
                                                          .mean = h->mean,
                                                          .rstd = h->rstd,
                                                          .dx = dx,
                                                          .gamma = param + h->unit->tensors[HEAD_LN_F_WEIGHT].offset,
                                                          .dgamma = grad + h->unit->tensors[HEAD_LN_F_WEIGHT].offset,
                                                          .dbeta = grad + h->unit->tensors[HEAD_LN_F_BIAS].offset});
    return total_loss(h, all);
}

void head_logits(struct head *h, const float *param, const float *embedding_param, const float *x, int samples, int row,
                 float *out)
{
    final_norm(h, param, x, samples);
    chunk_logits(h, embedding_param + h->embedding->tensors[EMBEDDING_WTE].offset, row, 1);
    device_wait(h->dev);
    memcpy(out, h->logits, (size_t)h->shape->vocab * sizeof *out);
}

#include "kernels/cuda/cuda_attention.h"

#include <math.h>

#include "kernels/cuda/cuda.h"

_Static_assert(sizeof(struct attention_call) <= 128, "cuda_attention.h says why");

static struct attention_call call_of(const struct attention *op)
{
    struct attention_call call = {
        .seq = op->seq,
        .head_size = op->head_size,
        .window = op->window > 0 && op->window < op->seq ? op->window : op->seq,
        .hidden = (int)attention_width(op->heads, op->head_size),
        .row = (int)attention_row(op->heads, op->kv_heads, op->head_size),
        .batch = (uint16_t)op->batch,
        .heads = (uint16_t)op->heads,
        .causal = op->causal,
        .drops = op->dropout.p > 0,
        .dtype = (uint8_t)op->dtype,
        .qkv = op->qkv,
        .dout = op->dout,
        .out = op->out,
        .dqkv = op->dqkv,
        .lse = op->lse,
        .stream = op->dropout.stream,
        .element = op->dropout.first,
        .stride = op->dropout_stride,
        .kept = 1,
    };

    call.bounded = op->document_start || call.window < call.seq;
    if (call.bounded)
        call.document_start = op->document_start;
    else
        call.lengths = op->lengths;
    call.scale_two = (float)(M_LOG2E / sqrt((double)op->head_size));
    if (call.drops) {
        call.threshold = dropout_threshold(op->dropout.p);
        call.kept = dropout_scale(op->dropout.p);
    }
    return call;
}

static bool is_aligned(const void *pointer)
{
    return (uintptr_t)pointer % 16 == 0;
}

bool attention_aligned(const struct attention_call *call)
{
    return is_aligned(call->qkv) && is_aligned(call->out) && is_aligned(call->dout) && is_aligned(call->dqkv);
}

/* Whether the tiled kernels can do it: a 16-bit type, an even head size, 16-byte aligned operands, and dropout in whole
 * blocks of 8. */
static bool fits_tiles(const struct attention_call *call)
{
    bool blocks = !call->drops || (call->seq % 8 == 0 && call->element % 8 == 0 && call->stride % 8 == 0);

    return call->head_size % 2 == 0 && blocks && call->dtype != DTYPE_F32 && attention_aligned(call);
}

static void run_attention(struct device *dev, const struct attention *op, bool backward)
{
    const char *name = backward ? "attention_backward" : "attention_forward";
    struct attention_call call;

    if (!device_ready(dev, op->dtype, name) || !attention_valid(dev, op))
        return;
    if (op->head_size > ATTENTION_MAX_HEAD_SIZE) {
        device_fail(dev, CODE_CONFIG, "%s: a head size of %d; on a GPU it can be at most %d", name, op->head_size,
                    ATTENTION_MAX_HEAD_SIZE);
        return;
    }
    call = call_of(op);
    if (op->batch == 0 || op->heads == 0 || op->seq == 0)
        return;
    if (dev->attention != ATTENTION_OWN && attention_by_cudnn(dev, &call, backward))
        return;
    if (backward)
        call.delta =
            cuda_workspace(dev, workspace_attention_backward((size_t)op->batch * (size_t)call.seq, (size_t)call.heads));
    if (backward && !call.delta)
        return;
    if (fits_tiles(&call))
        (backward ? attention_tiled_backward : attention_tiled_forward)(dev, &call);
    else
        (backward ? attention_plain_backward : attention_plain_forward)(dev, &call);
}

void cuda_attention_forward(struct device *dev, const struct attention *op)
{
    run_attention(dev, op, false);
}

void cuda_attention_backward(struct device *dev, const struct attention *op)
{
    run_attention(dev, op, true);
}

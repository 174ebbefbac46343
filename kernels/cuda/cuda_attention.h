/*
 * cuda_attention.h - what the attention kernels are given, and which of them takes which operation.
 *
 * Three kinds of kernel compute kernels.h's struct attention:
 *   - tiled (attention_forward.cu, attention_backward.cu): FlashAttention-2 (arXiv 2307.08691) on the tensor cores, for
 *     16-bit types and every even head size up to 256; attention_tile.h says how;
 *   - plain (attention_plain.cu): all else up to a head size of 256; fp32 arithmetic, right rather than fast;
 *   - cuDNN's, where device_choose_attention selected them: attention_cudnn.c.
 *
 * No kernel adds floats atomically: each element of a gradient is summed by one thread, in the order of the rows. For
 * this the backward pass is two kernels, one that owns queries (dq) and one that owns keys (dk, dv), which both compute
 * the scores: seven products where five would do, if blocks added to a common dq.
 */
#ifndef MUSTER_KERNELS_CUDA_CUDA_ATTENTION_H
#define MUSTER_KERNELS_CUDA_CUDA_ATTENTION_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ATTENTION_MAX_HEAD_SIZE 256

/* An operation, forward or backward, as its kernels take it: by value. Beyond 128 bytes nvcc would no longer keep its
 * fields in registers, and some kernels would spill. */
struct attention_call {
    int seq, head_size;
    int window;      /* seq where there is none: every key before the query is in it then */
    int hidden, row; /* elements of a row of out, and of qkv */
    uint16_t batch, heads;
    bool causal, drops;
    bool bounded;    /* a query sees only the keys of its document, if there is document_start, and of its window */
    uint8_t dtype;   /* enum dtype */
    float scale_two; /* log2(e) / sqrt(head_size): exp(x / sqrt(head_size)) = 2^(scale_two * x) */
    const void *qkv, *dout;
    void *out; /* backward: only read */
    void *dqkv;
    float *lse;
    float *delta; /* [batch * heads, seq] workspace of the backward pass: rowsum(dout * out) */
    union {
        const int32_t *lengths;        /* may be NULL */
        const int32_t *document_start; /* with `bounded`; may be NULL */
    };
    struct philox_stream stream;
    uint64_t element, stride; /* struct dropout's first, and dropout_stride */
    uint32_t threshold;       /* an element is kept when its 16 bits are at least this, and multiplied by: */
    float kept;
};

static inline int attention_kv_heads(const struct attention_call *call)
{
    return (call->row - call->hidden) / 2 / call->head_size;
}

/* Whether qkv, out and their gradients begin at 16 bytes, as every fused kernel wants. */
bool attention_aligned(const struct attention_call *call);

/* Each enqueues its kernels on the device's stream; a failed launch fails the device. */
void attention_tiled_forward(struct device *dev, const struct attention_call *call);
void attention_tiled_backward(struct device *dev, const struct attention_call *call);
void attention_plain_forward(struct device *dev, const struct attention_call *call);
void attention_plain_backward(struct device *dev, const struct attention_call *call);

/*
 * cuDNN's deterministic fused kernels, for the shapes of attention_suits_cudnn (cuda.h). false: nothing was computed,
 * and the other kernels are to do it. The reasons are another shape, operands that are not aligned, and that cuDNN has
 * no deterministic plan or only one that needs more workspace than workspace_cudnn_plan. Then all samples go to the
 * other kernels. The two passes of a call may be of different kinds, since lse means the same to all.
 */
bool attention_by_cudnn(struct device *dev, const struct attention_call *call, bool backward);

/* Loads the library. The first shape for cuDNN creates its handle. -1 with CODE_CONFIG if there is no library. */
int attention_cudnn_load(struct device *dev, struct error *err);

/* Gives back the plans that are kept with the device. */
void attention_cudnn_close(struct device *dev);

#ifdef __cplusplus
}
#endif

#endif

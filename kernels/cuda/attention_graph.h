/*
 * attention_graph.h - attention as a graph for cuDNN, in the shape that its fused kernels are recognised by: the one of
 * NVIDIA's cudnn-frontend (scaled dot-product attention, without dropout and padding). Internal to kernels/cuda.
 */
#ifndef MUSTER_KERNELS_CUDA_ATTENTION_GRAPH_H
#define MUSTER_KERNELS_CUDA_ATTENTION_GRAPH_H

#include "kernels/cuda/cuda_attention.h"
#include "kernels/cuda/cudnn_graph.h"

/* What a plan of attention is given the addresses of. The last three are numbers in host memory: 1 / sqrt(head_size),
 * minus infinity, and 1. */
enum attention_tensor {
    ATTENTION_Q = 1,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_OUT,
    ATTENTION_LSE, /* [batch, heads, seq], natural logarithms, as kernels.h has it */
    ATTENTION_DOUT,
    ATTENTION_DQ,
    ATTENTION_DK,
    ATTENTION_DV,
    ATTENTION_DELTA,  /* fp32 [batch, heads, seq]: scratch */
    ATTENTION_DQ_SUM, /* fp32 [batch, heads, seq, head_size]: scratch, unless ordered */
    ATTENTION_SCALE,
    ATTENTION_MINUS_INFINITY,
    ATTENTION_ONE,
};

/* From a call's shape; its addresses, lengths and dropout are not looked at. Destroyed by the caller, after the plan.
 */
struct cudnn_graph *attention_graph_forward(const struct cudnn *cudnn, const struct attention_call *call);

/*
 * ordered: the same bits each time; cuDNN then keeps the gradients of the scores, batch x heads x seq x seq 16-bit
 * numbers, in its workspace. Otherwise its blocks add to a common fp32 dq in whatever order they come.
 */
struct cudnn_graph *attention_graph_backward(const struct cudnn *cudnn, const struct attention_call *call,
                                             bool ordered);

#endif

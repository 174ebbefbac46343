/*
 * cudnn_graph.h - cuDNN's C backend in the words that attention needs: tensors and operations become a graph, and a
 * graph a plan for one kind of GPU. Internal to kernels/cuda.
 *
 * The functions that build a graph report no failure: the first one sticks to the graph, later calls do nothing and
 * return NULL, and cudnn_graph_plan's error names it. A graph owns all descriptors that its functions return.
 *
 * Plans are made from a description of the GPU (cuDNN's "device properties", since 9.8), which is either read off a GPU
 * or given as text: so a plan can also be made where there is no GPU, and tests do.
 */
#ifndef MUSTER_KERNELS_CUDA_CUDNN_GRAPH_H
#define MUSTER_KERNELS_CUDA_CUDNN_GRAPH_H

#include <cudnn.h>

#include "common/library.h"
#include "kernels/cuda/cuda_attention.h"

#define CUDNN_FUNCTIONS(f)                                                                                             \
    f(cudnnGetVersion) f(cudnnGetErrorString) f(cudnnGetLastErrorString) f(cudnnCreate) f(cudnnDestroy)                \
        f(cudnnSetStream) f(cudnnBackendCreateDescriptor) f(cudnnBackendDestroyDescriptor) f(cudnnBackendSetAttribute) \
            f(cudnnBackendGetAttribute) f(cudnnBackendFinalize) f(cudnnBackendExecute)

struct cudnn {
    CUDNN_FUNCTIONS(LIBRARY_MEMBER)
};

/* CODE_CONFIG where it cannot be opened or is older than 9.8; the environment's MUSTER_CUDNN names another file. */
int cudnn_load(struct cudnn *cudnn, struct error *err);

typedef cudnnBackendDescriptor_t cudnn_descriptor;

/* ---- a graph ----------------------------------------------------------------------------------------------------- */

struct cudnn_graph;

struct cudnn_graph *cudnn_graph_create(const struct cudnn *cudnn);
/* Gives everything back, whatever cuDNN says; -1 with the first that it says is wrong. */
int cudnn_graph_destroy(struct cudnn_graph *graph, struct error *err);

/*
 * A tensor of four dimensions; strides in elements. id: by which plans are given its address when they run, positive;
 * 0 for one that only passes from an operation to the next and is never stored. scalar: one number, whose address is
 * in host memory.
 */
struct cudnn_tensor {
    int64_t id;
    cudnnDataType_t type;
    int64_t size[4], stride[4];
    bool scalar;
};

cudnn_descriptor cudnn_tensor(struct cudnn_graph *graph, const struct cudnn_tensor *tensor);

/* c = a b, with fp32 sums. */
void cudnn_matmul(struct cudnn_graph *graph, cudnn_descriptor a, cudnn_descriptor b, cudnn_descriptor c);

/* y = mode(x), mode(x, b) or mode(x, b, t), computed in `type`; axis is for CUDNN_POINTWISE_GEN_INDEX. */
struct cudnn_pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t type;
    int64_t axis;
    cudnn_descriptor x, b, t, y;
};

void cudnn_pointwise(struct cudnn_graph *graph, const struct cudnn_pointwise *op);

/* y = x summed (or its maximum) over the dimensions that y has less of, in groups; in fp32. */
void cudnn_reduction(struct cudnn_graph *graph, cudnnReduceTensorOp_t op, cudnn_descriptor x, cudnn_descriptor y);

/* y is x under other dimensions and strides. */
void cudnn_reshape(struct cudnn_graph *graph, cudnn_descriptor x, cudnn_descriptor y);

/* ---- a plan ------------------------------------------------------------------------------------------------------ */

/*
 * Gives the graph its plan: the first that cuDNN's heuristics propose, that gives the same bits each time, and that
 * cuDNN can build. gpu: text as cuDNN writes it (JSON), or NULL for the current GPU. -1, with the graph's first failure
 * or with what cuDNN said of each proposal, where there is none.
 */
int cudnn_graph_plan(struct cudnn_graph *graph, const char *gpu, struct error *err);

/* Of a graph that has a plan: the bytes of workspace that it needs. */
size_t cudnn_graph_workspace(const struct cudnn_graph *graph);

/* Enqueues the plan on the handle's stream, with `count` tensors' addresses by their ids. */
int cudnn_graph_run(const struct cudnn_graph *graph, cudnnHandle_t handle, int count, const int64_t *ids,
                    void *const *addresses, void *workspace, struct error *err);

/* ---- attention (attention_graph.c) ------------------------------------------------------------------------------- */

/* In the shape that its fused kernels are recognised by: the one of NVIDIA's cudnn-frontend (scaled dot-product
 * attention, without dropout and padding). */

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
    ATTENTION_DELTA,         /* fp32 [batch, heads, seq]: scratch */
    ATTENTION_DK_OF_QUERIES, /* as dout: scratch, where several heads of queries read one of keys */
    ATTENTION_DV_OF_QUERIES,
    ATTENTION_SCALE,
    ATTENTION_MINUS_INFINITY,
    ATTENTION_ONE,
};

/* From a call's shape; its addresses, lengths and dropout are not looked at. Destroyed by the caller. */
struct cudnn_graph *attention_graph_forward(const struct cudnn *cudnn, const struct attention_call *call);

/* cuDNN keeps the gradients of the scores, batch x heads x seq x seq 16-bit numbers, in its workspace: so dq has no
 * order of blocks to depend on. */
struct cudnn_graph *attention_graph_backward(const struct cudnn *cudnn, const struct attention_call *call);

#endif

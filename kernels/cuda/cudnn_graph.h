/*
 * cudnn_graph.h - cuDNN's C backend in the words that attention needs: tensors and operations become a graph, and a
 * graph a plan for one kind of GPU. Internal to kernels/cuda.
 *
 * No function but cudnn_graph_plan reports failure: the first one sticks to the graph, later calls do nothing and
 * return NULL, and the plan's error names it. A graph owns all descriptors that its functions return.
 *
 * Plans are made from a description of the GPU (cuDNN's "device properties", since 9.8), which is either read off a GPU
 * or given as text: so a plan can also be made where there is no GPU, and tests do.
 */
#ifndef MUSTER_KERNELS_CUDA_CUDNN_GRAPH_H
#define MUSTER_KERNELS_CUDA_CUDNN_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include <cudnn.h>

#include "common/error.h"
#include "common/library.h"

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

/* y = x summed (or its maximum) over the dimensions that y has only one of; in fp32. */
void cudnn_reduction(struct cudnn_graph *graph, cudnnReduceTensorOp_t op, cudnn_descriptor x, cudnn_descriptor y);

/* y is x under other dimensions and strides. */
void cudnn_reshape(struct cudnn_graph *graph, cudnn_descriptor x, cudnn_descriptor y);

/* ---- a plan ------------------------------------------------------------------------------------------------------ */

struct cudnn_plan;

/*
 * The first that cuDNN's heuristics propose and that it can build. gpu: text as cuDNN writes it (JSON), or NULL for the
 * current GPU. deterministic: only one that gives the same bits each time. NULL, with the graph's first failure or with
 * what cuDNN said of each proposal, where there is none.
 */
struct cudnn_plan *cudnn_graph_plan(struct cudnn_graph *graph, const char *gpu, bool deterministic, struct error *err);
void cudnn_plan_destroy(struct cudnn_plan *plan);
int64_t cudnn_plan_workspace(const struct cudnn_plan *plan);

/* Enqueues it on the handle's stream, with `count` tensors' addresses by their ids. */
int cudnn_plan_run(const struct cudnn_plan *plan, cudnnHandle_t handle, int count, const int64_t *ids,
                   void *const *addresses, void *workspace, struct error *err);

#endif

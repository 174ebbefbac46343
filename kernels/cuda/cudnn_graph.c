#include "kernels/cuda/cudnn_graph.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DESCRIPTORS 160
#define MAX_OPERATIONS  48

struct cudnn_graph {
    const struct cudnn *cudnn;
    cudnn_descriptor descriptors[MAX_DESCRIPTORS], operations[MAX_OPERATIONS];
    int descriptor_count, operation_count;
    int64_t next_id; /* of tensors that are never stored */
    bool failed;
    struct error failure;
    cudnn_descriptor plan;
    int64_t workspace; /* of the plan */
};

static const struct library library = {
    .name = "cuDNN",
    .variable = "MUSTER_CUDNN",
    .soname = "libcudnn.so.9",
    .version = "9.8",
};

/* cudnn-frontend does not use 9.10.0 and 9.10.1 for attention. */
int cudnn_load(struct cudnn *cudnn, struct error *err)
{
    static const char *const names[] = {CUDNN_FUNCTIONS(LIBRARY_NAME)};
    size_t version;

    if (library_load(&library, names, sizeof names / sizeof *names, cudnn, err) < 0)
        return -1;
    version = cudnn->cudnnGetVersion();
    if (version >= 90800 && version != 91000 && version != 91001)
        return 0;
    return error_set(err, CODE_CONFIG, "cuDNN %zu: muster needs 9.8 or later, but not 9.10.0 and 9.10.1", version);
}

struct cudnn_graph *cudnn_graph_create(const struct cudnn *cudnn)
{
    struct cudnn_graph *graph = calloc(1, sizeof *graph);

    if (!graph)
        return NULL;
    graph->cudnn = cudnn;
    graph->next_id = 1000;
    return graph;
}

int cudnn_graph_destroy(struct cudnn_graph *graph, struct error *err)
{
    cudnnStatus_t first = CUDNN_STATUS_SUCCESS;
    const struct cudnn *cudnn;

    if (!graph)
        return 0;
    cudnn = graph->cudnn;
    for (int i = graph->descriptor_count; i-- > 0;) {
        cudnnStatus_t status = cudnn->cudnnBackendDestroyDescriptor(graph->descriptors[i]);

        if (first == CUDNN_STATUS_SUCCESS)
            first = status;
    }
    free(graph);
    if (first != CUDNN_STATUS_SUCCESS)
        return error_set(err, CODE_INTERNAL, "cuDNN: destroy a graph: %s", cudnn->cudnnGetErrorString(first));
    return 0;
}

static bool cudnn_ok(struct cudnn_graph *graph, cudnnStatus_t status, const char *doing)
{
    char text[256] = "";

    if (status == CUDNN_STATUS_SUCCESS || graph->failed)
        return !graph->failed;
    graph->cudnn->cudnnGetLastErrorString(text, sizeof text);
    error_set(&graph->failure, CODE_INTERNAL, "cuDNN: %s: %s: %s", doing, graph->cudnn->cudnnGetErrorString(status),
              text);
    graph->failed = true;
    return false;
}

/* Owned by the graph; NULL when it has failed. */
static cudnn_descriptor create_descriptor(struct cudnn_graph *graph, cudnnBackendDescriptorType_t type)
{
    cudnn_descriptor x = NULL;

    if (graph->failed || graph->descriptor_count == MAX_DESCRIPTORS) {
        cudnn_ok(graph, CUDNN_STATUS_NOT_SUPPORTED, "too large a graph");
        return NULL;
    }
    if (!cudnn_ok(graph, graph->cudnn->cudnnBackendCreateDescriptor(type, &x), "create a descriptor"))
        return NULL;
    graph->descriptors[graph->descriptor_count++] = x;
    return x;
}

static void set_attribute(struct cudnn_graph *graph, cudnn_descriptor x, cudnnBackendAttributeName_t name,
                          cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
    if (!graph->failed)
        cudnn_ok(graph, graph->cudnn->cudnnBackendSetAttribute(x, name, type, count, value), "set an attribute");
}

static bool get_attribute(struct cudnn_graph *graph, cudnn_descriptor x, cudnnBackendAttributeName_t name,
                          cudnnBackendAttributeType_t type, int64_t most, int64_t *count, void *value)
{
    return !graph->failed && cudnn_ok(graph, graph->cudnn->cudnnBackendGetAttribute(x, name, type, most, count, value),
                                      "get an attribute");
}

static void set_descriptor(struct cudnn_graph *graph, cudnn_descriptor x, cudnnBackendAttributeName_t name,
                           cudnn_descriptor value)
{
    set_attribute(graph, x, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static cudnn_descriptor finalize_descriptor(struct cudnn_graph *graph, cudnn_descriptor x, const char *doing)
{
    if (graph->failed || !cudnn_ok(graph, graph->cudnn->cudnnBackendFinalize(x), doing))
        return NULL;
    return x;
}

static void add_operation(struct cudnn_graph *graph, cudnn_descriptor x, const char *doing)
{
    if (!finalize_descriptor(graph, x, doing))
        return;
    if (graph->operation_count == MAX_OPERATIONS)
        cudnn_ok(graph, CUDNN_STATUS_NOT_SUPPORTED, "too many operations");
    else
        graph->operations[graph->operation_count++] = x;
}

cudnn_descriptor cudnn_tensor(struct cudnn_graph *graph, const struct cudnn_tensor *tensor)
{
    cudnn_descriptor x = create_descriptor(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t alignment = 16, id = tensor->id ? tensor->id : graph->next_id++;
    bool is_virtual = tensor->id == 0;

    set_attribute(graph, x, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &tensor->type);
    set_attribute(graph, x, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, tensor->size);
    set_attribute(graph, x, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, tensor->stride);
    set_attribute(graph, x, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set_attribute(graph, x, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set_attribute(graph, x, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    set_attribute(graph, x, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &tensor->scalar);
    return finalize_descriptor(graph, x, "a tensor");
}

void cudnn_matmul(struct cudnn_graph *graph, cudnn_descriptor a, cudnn_descriptor b, cudnn_descriptor c)
{
    cudnn_descriptor how = create_descriptor(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR), x;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;

    set_attribute(graph, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finalize_descriptor(graph, how, "a matrix product's kind");
    x = create_descriptor(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(graph, x, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(graph, x, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_descriptor(graph, x, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_descriptor(graph, x, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add_operation(graph, x, "a matrix product");
}

void cudnn_pointwise(struct cudnn_graph *graph, const struct cudnn_pointwise *op)
{
    cudnn_descriptor how = create_descriptor(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), x;

    set_attribute(graph, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &op->mode);
    set_attribute(graph, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &op->type);
    if (op->mode == CUDNN_POINTWISE_GEN_INDEX)
        set_attribute(graph, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &op->axis);
    finalize_descriptor(graph, how, "a pointwise operation's kind");
    x = create_descriptor(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(graph, x, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_descriptor(graph, x, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, op->x);
    if (op->b)
        set_descriptor(graph, x, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, op->b);
    if (op->t)
        set_descriptor(graph, x, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, op->t);
    set_descriptor(graph, x, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, op->y);
    add_operation(graph, x, "a pointwise operation");
}

void cudnn_reduction(struct cudnn_graph *graph, cudnnReduceTensorOp_t op, cudnn_descriptor x, cudnn_descriptor y)
{
    cudnn_descriptor how = create_descriptor(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), operation;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;

    set_attribute(graph, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
    set_attribute(graph, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finalize_descriptor(graph, how, "a reduction's kind");
    operation = create_descriptor(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    add_operation(graph, operation, "a reduction");
}

void cudnn_reshape(struct cudnn_graph *graph, cudnn_descriptor x, cudnn_descriptor y)
{
    cudnn_descriptor operation = create_descriptor(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(graph, operation, "a reshape");
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

static cudnn_descriptor describe_gpu(struct cudnn_graph *graph, const char *gpu)
{
    cudnn_descriptor x = create_descriptor(graph, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    int32_t current = 0;

    if (gpu)
        set_attribute(graph, x, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(gpu), gpu);
    else if (cudaGetDevice(&current) != cudaSuccess)
        cudnn_ok(graph, CUDNN_STATUS_NOT_INITIALIZED, "the current GPU");
    else
        set_attribute(graph, x, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &current);
    return finalize_descriptor(graph, x, "the GPU's description");
}

static bool is_deterministic(struct cudnn_graph *graph, cudnn_descriptor config)
{
    cudnn_descriptor engine = create_descriptor(graph, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;

    if (!get_attribute(graph, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine) ||
        !get_attribute(graph, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                       CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes))
        return false;
    for (int64_t i = 0; i < count; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return false;
    return true;
}

/* A proposal that cuDNN cannot build is no failure of the graph; `why` is filled. */
static bool build_plan(struct cudnn_graph *graph, cudnn_descriptor gpu, cudnn_descriptor config, struct error *why)
{
    const struct cudnn *cudnn = graph->cudnn;
    cudnn_descriptor x = create_descriptor(graph, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    cudnnStatus_t status;
    char text[256] = "";
    int64_t count;

    set_descriptor(graph, x, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    set_descriptor(graph, x, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, gpu);
    if (graph->failed)
        return false;
    status = cudnn->cudnnBackendFinalize(x);
    if (status != CUDNN_STATUS_SUCCESS) {
        cudnn->cudnnGetLastErrorString(text, sizeof text);
        error_set(why, CODE_CONFIG, "cuDNN cannot build its plan: %s: %s", cudnn->cudnnGetErrorString(status), text);
        return false;
    }
    graph->plan = x;
    return get_attribute(graph, x, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                         &graph->workspace);
}

#define MAX_PROPOSALS 8

static bool try_proposals(struct cudnn_graph *graph, cudnn_descriptor operations, cudnn_descriptor gpu,
                          struct error *why)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnn_descriptor heuristics = create_descriptor(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR), configs[MAX_PROPOSALS];
    int64_t count = 0;

    set_descriptor(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations);
    set_attribute(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set_descriptor(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, gpu);
    finalize_descriptor(graph, heuristics, "the heuristics");
    for (int i = 0; i < MAX_PROPOSALS; i++)
        configs[i] = create_descriptor(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!get_attribute(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_PROPOSALS,
                       &count, configs))
        return false;
    for (int64_t i = 0; i < count && i < MAX_PROPOSALS; i++)
        if (is_deterministic(graph, configs[i]) && build_plan(graph, gpu, configs[i], why))
            return true;
    return false;
}

int cudnn_graph_plan(struct cudnn_graph *graph, const char *gpu_text, struct error *err)
{
    cudnn_descriptor gpu = describe_gpu(graph, gpu_text);
    cudnn_descriptor operations = create_descriptor(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    struct error why = {0};

    set_attribute(graph, operations, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                  graph->operation_count, graph->operations);
    finalize_descriptor(graph, operations, "a graph");
    if (try_proposals(graph, operations, gpu, &why))
        return 0;
    if (graph->failed)
        why = graph->failure;
    else if (!why.code)
        error_set(&why, CODE_CONFIG, "cuDNN proposes no deterministic plan");
    return error_set(err, why.code, "%s", why.text);
}

size_t cudnn_graph_workspace(const struct cudnn_graph *graph)
{
    return (size_t)graph->workspace;
}

int cudnn_graph_run(const struct cudnn_graph *graph, cudnnHandle_t handle, int count, const int64_t *ids,
                    void *const *addresses, void *workspace, struct error *err)
{
    const struct cudnn *cudnn = graph->cudnn;
    cudnn_descriptor pack;
    cudnnStatus_t status = cudnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    cudnnStatus_t given_back;

    if (status != CUDNN_STATUS_SUCCESS)
        return error_set(err, CODE_INTERNAL, "cuDNN: a pack of addresses: %s", cudnn->cudnnGetErrorString(status));
    status = cudnn->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                                 count, addresses);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                                 &workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->cudnnBackendFinalize(pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->cudnnBackendExecute(handle, graph->plan, pack);
    given_back = cudnn->cudnnBackendDestroyDescriptor(pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = given_back;
    if (status != CUDNN_STATUS_SUCCESS)
        return error_set(err, CODE_INTERNAL, "cuDNN: attention: %s", cudnn->cudnnGetErrorString(status));
    return 0;
}

#include "config.h"

#include "kernels/cuda/cuda_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/cache.h"
#include "kernels/cuda/cuda.h"

/* How attention is asked for, as far as a plan depends on it. Compared as bytes: no padding. */
struct shape {
    int batch, heads, seq, head_size;
    int causal, backward; /* bool */
    enum dtype dtype;
};

struct attention_cudnn {
    struct cudnn cudnn;
    bool usable; /* it is there, and wanted */
    bool ordered;
    cudnnHandle_t handle;
    struct cache *graphs; /* of struct cudnn_graph * by struct shape; NULL: cuDNN has no plan, the device has failed */
};

static void destroy_graph(void *value, void *arg)
{
    struct cudnn_graph **graph = value;
    struct device *dev = arg;
    struct error err = {0};

    if (cudnn_graph_destroy(*graph, &err) < 0)
        device_fail(dev, err.code, "%s", err.text);
}

void attention_cudnn_close(struct device *dev)
{
    struct attention_cudnn *attention = device_cuda(dev)->attention;
    cudnnStatus_t status;

    if (!attention)
        return;
    cache_destroy(attention->graphs, destroy_graph, dev);
    if (attention->handle) {
        status = attention->cudnn.cudnnDestroy(attention->handle);
        if (status != CUDNN_STATUS_SUCCESS)
            device_fail(dev, CODE_INTERNAL, "cudnnDestroy: %s", attention->cudnn.cudnnGetErrorString(status));
    }
    free(attention);
    device_cuda(dev)->attention = NULL;
}

static bool is_wanted(struct device *dev, bool *ordered)
{
    const char *how = getenv("MUSTER_ATTENTION");

    *ordered = true;
    if (!how || strcmp(how, "own") == 0)
        return false;
    if (strcmp(how, "cudnn") == 0)
        return true;
    *ordered = false;
    if (strcmp(how, "cudnn-unordered") == 0)
        return true;
    device_fail(dev, CODE_CONFIG, "MUSTER_ATTENTION=%s: it can be own, cudnn or cudnn-unordered", how);
    return false;
}

/* Who asks for cuDNN by name is told when it is not there; nothing else would say why a run is slow. */
static void open_library(struct device *dev, struct attention_cudnn *attention)
{
    cudnnStatus_t status;
    struct error err = {0};

    if (cudnn_load(&attention->cudnn, &err) < 0) {
        device_fail(dev, err.code, "MUSTER_ATTENTION asks for cuDNN: %s", err.text);
        return;
    }
    status = attention->cudnn.cudnnCreate(&attention->handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status = attention->cudnn.cudnnSetStream(attention->handle, device_cuda(dev)->stream);
    if (status != CUDNN_STATUS_SUCCESS)
        device_fail(dev, CODE_CONFIG, "MUSTER_ATTENTION asks for cuDNN: %s",
                    attention->cudnn.cudnnGetErrorString(status));
    attention->usable = status == CUDNN_STATUS_SUCCESS;
}

static bool is_usable(struct device *dev)
{
    struct cuda *cuda = device_cuda(dev);

    if (!cuda->attention) {
        cuda->attention = calloc(1, sizeof *cuda->attention);
        if (cuda->attention)
            cuda->attention->graphs = cache_create(sizeof(struct shape), sizeof(struct cudnn_graph *), NULL);
        if (!cuda->attention || !cuda->attention->graphs)
            device_fail(dev, CODE_IO, "attention: no memory");
        else if (is_wanted(dev, &cuda->attention->ordered))
            open_library(dev, cuda->attention);
    }
    return cuda->attention && cuda->attention->usable;
}

/* What NVIDIA's own cudnn-frontend does not ask of a release, or only with a mask of padding; NULL: nothing known. */
static const char *not_trusted(size_t version, const struct shape *shape)
{
    if (version == 91000 || version == 91001)
        return "versions 9.10.0 and 9.10.1 have known bugs there";
    if (!shape->backward)
        return NULL;
    if (shape->seq == 1)
        return "it is not for a sequence of 1";
    return version <= 91500 && shape->seq % 128 != 0 ? "up to version 9.15.0 only for multiples of 128" : NULL;
}

static struct cudnn_graph *make_graph(struct device *dev, const struct shape *shape, const struct attention_call *call)
{
    struct attention_cudnn *attention = device_cuda(dev)->attention;
    bool backward = shape->backward;
    const char *reason = not_trusted(attention->cudnn.cudnnGetVersion(), shape);
    struct cudnn_graph *graph;
    struct error err = {0};

    if (reason) {
        device_fail(dev, CODE_CONFIG, "MUSTER_ATTENTION asks for cuDNN %zu, and for a sequence of %d: %s",
                    attention->cudnn.cudnnGetVersion(), call->seq, reason);
        return NULL;
    }
    graph = backward ? attention_graph_backward(&attention->cudnn, call, attention->ordered)
                     : attention_graph_forward(&attention->cudnn, call);
    if (!graph)
        error_set(&err, CODE_IO, "no memory");
    else if (cudnn_graph_plan(graph, NULL, attention->ordered, &err) == 0)
        return graph;
    device_fail(dev, err.code,
                "MUSTER_ATTENTION asks for cuDNN, which has no %s plan for batch %d, %d heads of %d, sequence %d: "
                "%s; MUSTER_ATTENTION=own does it without",
                backward ? "backward" : "forward", shape->batch, call->heads, call->head_size, call->seq, err.text);
    cudnn_graph_destroy(graph, NULL);
    return NULL;
}

/* The graph of a shape with its plan, made when it is first seen: the one moment at which a step allocates. */
static const struct cudnn_graph *graph_of(struct device *dev, const struct attention_call *call, bool backward)
{
    struct attention_cudnn *attention = device_cuda(dev)->attention;
    struct shape shape = {
        call->pairs / call->heads, call->heads, call->seq, call->head_size, call->causal, backward, call->dtype};
    struct cudnn_graph **graph = cache_find(attention->graphs, &shape);
    struct error err = {0};

    if (graph)
        return *graph;
    graph = cache_add(attention->graphs, &shape, &err);
    if (!graph) {
        device_fail(dev, err.code, "attention: %s", err.text);
        return NULL;
    }
    *graph = make_graph(dev, &shape, call);
    return *graph;
}

static const struct cudnn_graph *graph_for(struct device *dev, const struct attention_call *call, bool backward)
{
    /* A head that begins off 16 bytes is not what the graph's tensors promise. */
    bool fits = !call->drops && !call->documents && !call->lengths && call->dtype != DTYPE_F32 &&
                call->head_size % 8 == 0 && attention_aligned(call);

    return is_usable(dev) && fits ? graph_of(dev, call, backward) : NULL;
}

/* Element `i` of a tensor of a 16-bit type; NULL of one that is not there. */
static void *address_of(const void *tensor, size_t i)
{
    return tensor ? (char *)tensor + 2 * i : NULL;
}

/* cuDNN's workspace; behind it in a backward pass delta and, unless ordered, the sum of dq. */
static size_t workspace_parts(const struct cudnn_graph *graph, const struct attention_call *call, bool ordered,
                              size_t begins[2])
{
    size_t rows = (size_t)call->pairs * (size_t)call->seq;

    begins[0] = (cudnn_graph_workspace(graph) + 255) / 256 * 256;
    begins[1] = begins[0] + (rows * sizeof(float) + 255) / 256 * 256;
    return ordered ? begins[1] : begins[1] + rows * (size_t)call->head_size * sizeof(float);
}

bool attention_by_cudnn(struct device *dev, const struct attention_call *call, bool backward)
{
    const struct cudnn_graph *graph = graph_for(dev, call, backward);
    size_t hidden = (size_t)call->heads * (size_t)call->head_size, begins[2], bytes;
    float scale = call->scale, minus_infinity = -INFINITY, one = 1;
    struct error err = {0};
    bool ordered;
    char *workspace;
    int count = 0;
    int64_t ids[ATTENTION_ONE];
    void *addresses[ATTENTION_ONE];

    if (!graph)
        return dev->failed;
    ordered = device_cuda(dev)->attention->ordered;
    bytes = workspace_parts(graph, call, ordered, begins);
    workspace = cuda_workspace(dev, backward ? bytes : begins[0]);
    if (!workspace)
        return true;
    const struct {
        int64_t id;
        void *address;
        bool used;
    } tensors[] = {
        {ATTENTION_Q, address_of(call->qkv, 0), true},
        {ATTENTION_K, address_of(call->qkv, hidden), true},
        {ATTENTION_V, address_of(call->qkv, 2 * hidden), true},
        {ATTENTION_OUT, call->out, true},
        {ATTENTION_LSE, call->lse, true},
        {ATTENTION_SCALE, &scale, true},
        {ATTENTION_MINUS_INFINITY, &minus_infinity, call->causal},
        {ATTENTION_DOUT, address_of(call->dout, 0), backward},
        {ATTENTION_DQ, address_of(call->dqkv, 0), backward},
        {ATTENTION_DK, address_of(call->dqkv, hidden), backward},
        {ATTENTION_DV, address_of(call->dqkv, 2 * hidden), backward},
        {ATTENTION_DELTA, workspace + begins[0], backward},
        {ATTENTION_DQ_SUM, workspace + begins[1], backward && !ordered},
        {ATTENTION_ONE, &one, backward},
    };

    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i].used) {
            ids[count] = tensors[i].id;
            addresses[count++] = tensors[i].address;
        }
    if (cudnn_graph_run(graph, device_cuda(dev)->attention->handle, count, ids, addresses, workspace, &err) < 0)
        device_fail(dev, err.code, "attention_%s: %s", backward ? "backward" : "forward", err.text);
    return true;
}

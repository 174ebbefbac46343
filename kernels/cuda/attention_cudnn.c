#include "config.h"

#include "kernels/cuda/cuda_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention_graph.h"
#include "kernels/cuda/cuda.h"

/* How attention is asked for, as far as a plan depends on it. */
struct shape {
    int batch, heads, seq, head_size;
    bool causal, backward;
    enum dtype dtype;
};

/* plan is NULL where cuDNN has none: the device has failed then. */
struct entry {
    struct entry *next;
    struct shape shape;
    struct cudnn_graph *graph;
    struct cudnn_plan *plan;
};

struct attention_cudnn {
    struct cudnn cudnn;
    bool usable; /* it is there, and wanted */
    bool ordered;
    cudnnHandle_t handle;
    struct entry *entries;
};

void attention_cudnn_close(struct device *dev)
{
    struct attention_cudnn *attention = device_cuda(dev)->attention;
    struct error err = {0};
    cudnnStatus_t status;

    if (!attention)
        return;
    for (struct entry *entry = attention->entries, *next; entry; entry = next) {
        next = entry->next;
        cudnn_plan_destroy(entry->plan);
        if (cudnn_graph_destroy(entry->graph, &err) < 0)
            device_fail(dev, err.code, "%s", err.text);
        free(entry);
    }
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
        if (!cuda->attention)
            device_fail(dev, CODE_IO, "attention: no memory");
        else if (is_wanted(dev, &cuda->attention->ordered))
            open_library(dev, cuda->attention);
    }
    return cuda->attention && cuda->attention->usable;
}

static bool same_shape(const struct shape *a, const struct shape *b)
{
    return a->batch == b->batch && a->heads == b->heads && a->seq == b->seq && a->head_size == b->head_size &&
           a->causal == b->causal && a->backward == b->backward && a->dtype == b->dtype;
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

static void make_plan(struct device *dev, struct entry *entry, const struct attention_call *call)
{
    struct attention_cudnn *attention = device_cuda(dev)->attention;
    bool backward = entry->shape.backward;
    const char *reason = not_trusted(attention->cudnn.cudnnGetVersion(), &entry->shape);
    struct error err = {0};

    if (reason) {
        device_fail(dev, CODE_CONFIG, "MUSTER_ATTENTION asks for cuDNN %zu, and for a sequence of %d: %s",
                    attention->cudnn.cudnnGetVersion(), call->seq, reason);
        return;
    }
    entry->graph = backward ? attention_graph_backward(&attention->cudnn, call, attention->ordered)
                            : attention_graph_forward(&attention->cudnn, call);
    if (entry->graph)
        entry->plan = cudnn_graph_plan(entry->graph, NULL, attention->ordered, &err);
    else
        error_set(&err, CODE_IO, "no memory");
    if (!entry->plan)
        device_fail(dev, err.code,
                    "MUSTER_ATTENTION asks for cuDNN, which has no %s plan for batch %d, %d heads of %d, sequence %d: "
                    "%s; MUSTER_ATTENTION=own does it without",
                    backward ? "backward" : "forward", entry->shape.batch, call->heads, call->head_size, call->seq,
                    err.text);
}

/* The plan for a shape, made when it is first seen: the one moment at which a step allocates. */
static const struct cudnn_plan *plan_of(struct device *dev, const struct attention_call *call, bool backward)
{
    struct attention_cudnn *attention = device_cuda(dev)->attention;
    struct shape shape = {
        call->pairs / call->heads, call->heads, call->seq, call->head_size, call->causal, backward, call->dtype};
    struct entry *entry;

    for (entry = attention->entries; entry; entry = entry->next)
        if (same_shape(&entry->shape, &shape))
            return entry->plan;
    entry = calloc(1, sizeof *entry);
    if (!entry) {
        device_fail(dev, CODE_IO, "attention: no memory");
        return NULL;
    }
    entry->shape = shape;
    entry->next = attention->entries;
    attention->entries = entry;
    make_plan(dev, entry, call);
    return entry->plan;
}

static const struct cudnn_plan *plan_for(struct device *dev, const struct attention_call *call, bool backward)
{
    /* A head that begins off 16 bytes is not what the graph's tensors promise. */
    bool fits = !call->drops && !call->lengths && call->dtype != DTYPE_F32 && call->head_size % 8 == 0 &&
                attention_aligned(call);

    return is_usable(dev) && fits ? plan_of(dev, call, backward) : NULL;
}

/* Element `i` of a tensor of a 16-bit type. */
static void *address_of(const void *tensor, size_t i)
{
    return (char *)tensor + 2 * i;
}

bool attention_cudnn_forward(struct device *dev, const struct attention_call *call)
{
    const struct cudnn_plan *plan = plan_for(dev, call, false);
    size_t hidden = (size_t)call->heads * (size_t)call->head_size;
    float scale = call->scale, minus_infinity = -INFINITY;
    struct error err = {0};
    void *workspace;

    if (!plan)
        return dev->failed;
    workspace = cuda_workspace(dev, (size_t)cudnn_plan_workspace(plan));
    if (dev->failed)
        return true;
    int64_t ids[] = {
        ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_OUT, ATTENTION_LSE, ATTENTION_SCALE, ATTENTION_MINUS_INFINITY};
    void *addresses[] = {address_of(call->qkv, 0),
                         address_of(call->qkv, hidden),
                         address_of(call->qkv, 2 * hidden),
                         call->out,
                         call->lse,
                         &scale,
                         &minus_infinity};

    if (cudnn_plan_run(plan, device_cuda(dev)->attention->handle, call->causal ? 7 : 6, ids, addresses, workspace,
                       &err) < 0)
        device_fail(dev, err.code, "attention_forward: %s", err.text);
    return true;
}

/* cuDNN's workspace, and after it delta and, unless ordered, the sum of dq. */
static size_t workspace_parts(const struct cudnn_plan *plan, const struct attention_call *call, size_t begins[2])
{
    size_t rows = (size_t)call->pairs * (size_t)call->seq;

    begins[0] = ((size_t)cudnn_plan_workspace(plan) + 255) / 256 * 256;
    begins[1] = begins[0] + (rows * sizeof(float) + 255) / 256 * 256;
    return begins[1] + rows * (size_t)call->head_size * sizeof(float);
}

bool attention_cudnn_backward(struct device *dev, const struct attention_call *call)
{
    const struct cudnn_plan *plan = plan_for(dev, call, true);
    size_t hidden = (size_t)call->heads * (size_t)call->head_size, begins[2], bytes;
    float scale = call->scale, minus_infinity = -INFINITY, one = 1;
    struct error err = {0};
    bool ordered;
    char *workspace;
    int count = 0;
    int64_t ids[ATTENTION_ONE];
    void *addresses[ATTENTION_ONE];

    if (!plan)
        return dev->failed;
    ordered = device_cuda(dev)->attention->ordered;
    bytes = workspace_parts(plan, call, begins);
    workspace = cuda_workspace(dev, ordered ? begins[1] : bytes);
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
        {ATTENTION_DOUT, address_of(call->dout, 0), true},
        {ATTENTION_DQ, address_of(call->dqkv, 0), true},
        {ATTENTION_DK, address_of(call->dqkv, hidden), true},
        {ATTENTION_DV, address_of(call->dqkv, 2 * hidden), true},
        {ATTENTION_DELTA, workspace + begins[0], true},
        {ATTENTION_DQ_SUM, workspace + begins[1], !ordered},
        {ATTENTION_SCALE, &scale, true},
        {ATTENTION_MINUS_INFINITY, &minus_infinity, call->causal},
        {ATTENTION_ONE, &one, true},
    };

    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i].used) {
            ids[count] = tensors[i].id;
            addresses[count++] = tensors[i].address;
        }
    if (cudnn_plan_run(plan, device_cuda(dev)->attention->handle, count, ids, addresses, workspace, &err) < 0)
        device_fail(dev, err.code, "attention_backward: %s", err.text);
    return true;
}

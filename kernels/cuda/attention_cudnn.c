#include "kernels/cuda/cuda_attention.h"

#include <math.h>

#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/cuda.h"

/* What a plan depends on. Compared as bytes: no padding. */
struct shape {
    int batch, heads, kv_heads, seq, head_size;
    int causal, backward; /* bool */
    enum dtype dtype;
};

/* A run has some dozens of shapes: none is ever dropped. */
struct attention_plan {
    struct attention_plan *older;
    struct shape shape;
    struct cudnn_graph *graph; /* NULL: cuDNN does not compute that shape */
};

struct attention_cudnn {
    struct cudnn cudnn;
    cudnnHandle_t handle;         /* NULL until a shape needs it */
    struct attention_plan *plans; /* the newest */
};

void attention_cudnn_close(struct device *dev)
{
    struct attention_cudnn *attention = device_cuda(dev)->attention;
    struct attention_plan *plan;
    struct error err = {0};
    cudnnStatus_t status;

    if (!attention)
        return;
    while ((plan = attention->plans)) {
        attention->plans = plan->older;
        if (cudnn_graph_destroy(plan->graph, &err) < 0)
            device_fail(dev, err.code, "%s", err.text);
        free(plan);
    }
    if (attention->handle) {
        status = attention->cudnn.cudnnDestroy(attention->handle);
        if (status != CUDNN_STATUS_SUCCESS)
            device_fail(dev, CODE_INTERNAL, "cudnnDestroy: %s", attention->cudnn.cudnnGetErrorString(status));
    }
    free(attention);
    device_cuda(dev)->attention = NULL;
}

int attention_cudnn_load(struct device *dev, struct error *err)
{
    struct attention_cudnn *attention;

    if (device_cuda(dev)->attention)
        return 0;
    attention = device_cuda(dev)->attention = error_calloc(1, sizeof *attention, err);
    if (!attention)
        return -1;
    if (cudnn_load(&attention->cudnn, err) == 0)
        return 0;
    attention_cudnn_close(dev);
    return -1;
}

static bool open_handle(struct device *dev)
{
    struct attention_cudnn *attention = device_cuda(dev)->attention;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

    if (attention->handle)
        return true;
    status = attention->cudnn.cudnnCreate(&attention->handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status = attention->cudnn.cudnnSetStream(attention->handle, device_cuda(dev)->stream);
    if (status != CUDNN_STATUS_SUCCESS)
        device_fail(dev, CODE_CONFIG, "cuDNN does not start: %s; attention = \"own\" does without it",
                    attention->cudnn.cudnnGetErrorString(status));
    return status == CUDNN_STATUS_SUCCESS;
}

/* NULL: it has no plan for the shape that the workspace suffices for. */
static struct cudnn_graph *make_graph(const struct attention_cudnn *attention, const struct shape *shape,
                                      const struct attention_call *call)
{
    size_t most = workspace_cudnn_plan((size_t)shape->batch, (size_t)shape->heads, (size_t)shape->seq);
    struct cudnn_graph *graph;

    graph = shape->backward ? attention_graph_backward(&attention->cudnn, call)
                            : attention_graph_forward(&attention->cudnn, call);
    if (graph && cudnn_graph_plan(graph, NULL, NULL) == 0 && cudnn_graph_workspace(graph) <= most)
        return graph;
    cudnn_graph_destroy(graph, NULL);
    return NULL;
}

/* The graph of a shape with its plan, made when it is first seen: the one moment at which a step allocates. */
static const struct cudnn_graph *graph_of(struct device *dev, const struct attention_call *call, bool backward)
{
    struct attention_cudnn *attention = device_cuda(dev)->attention;
    struct shape shape = {call->batch, call->heads, attention_kv_heads(call), call->seq, call->head_size, call->causal,
                          backward,    call->dtype};
    struct attention_plan *plan = attention->plans;

    while (plan && memcmp(&plan->shape, &shape, sizeof shape) != 0)
        plan = plan->older;
    if (plan)
        return plan->graph;
    plan = calloc(1, sizeof *plan);
    if (!plan) {
        device_fail(dev, CODE_IO, "attention: no memory");
        return NULL;
    }
    *plan = (struct attention_plan){attention->plans, shape, make_graph(attention, &shape, call)};
    attention->plans = plan;
    return plan->graph;
}

static bool is_suited(const struct device *dev, const struct attention_call *call)
{
    bool masked = call->drops || call->bounded || call->lengths;

    return attention_suits_cudnn(dev->attention, call->dtype, masked, call->seq, call->head_size) &&
           attention_aligned(call);
}

/* Element `i` of a tensor of a 16-bit type; NULL of one that is not there. */
static void *address_of(const void *tensor, size_t i)
{
    return tensor ? (char *)tensor + 2 * i : NULL;
}

/* hidden where several heads of queries read one of keys, else 0: workspace_cudnn_scratch. */
static size_t grouped_width(const struct attention_call *call)
{
    return attention_kv_heads(call) < call->heads ? (size_t)call->hidden : 0;
}

static bool run_graph(struct device *dev, const struct attention_call *call, bool backward)
{
    const struct cudnn_graph *graph = is_suited(dev, call) && open_handle(dev) ? graph_of(dev, call, backward) : NULL;
    size_t width = (size_t)call->hidden, to_v = ((size_t)call->row - width) / 2;
    size_t samples = call->batch, heads = call->heads, seq = (size_t)call->seq;
    size_t delta, each = samples * seq * width; /* elements of the gradients that a grouped call adds up */
    float scale = 1.0f / sqrtf((float)call->head_size), minus_infinity = -INFINITY, one = 1;
    struct error err = {0};
    char *workspace;
    int count = 0;
    int64_t ids[ATTENTION_ONE];
    void *addresses[ATTENTION_ONE];

    if (!graph)
        return dev->failed;
    delta = (cudnn_graph_workspace(graph) + 255) / 256 * 256;
    workspace =
        cuda_workspace(dev, delta + (backward ? workspace_cudnn_scratch(samples, heads, seq, grouped_width(call)) : 0));
    if (!workspace)
        return true;
    const struct {
        int64_t id;
        void *address;
        bool used;
    } tensors[] = {
        {ATTENTION_Q, address_of(call->qkv, 0), true},
        {ATTENTION_K, address_of(call->qkv, width), true},
        {ATTENTION_V, address_of(call->qkv, width + to_v), true},
        {ATTENTION_OUT, call->out, true},
        {ATTENTION_LSE, call->lse, true},
        {ATTENTION_SCALE, &scale, true},
        {ATTENTION_MINUS_INFINITY, &minus_infinity, call->causal},
        {ATTENTION_DOUT, address_of(call->dout, 0), backward},
        {ATTENTION_DQ, address_of(call->dqkv, 0), backward},
        {ATTENTION_DK, address_of(call->dqkv, width), backward},
        {ATTENTION_DV, address_of(call->dqkv, width + to_v), backward},
        {ATTENTION_DK_OF_QUERIES, address_of(workspace + delta, 0), backward && grouped_width(call) > 0},
        {ATTENTION_DV_OF_QUERIES, address_of(workspace + delta, each), backward && grouped_width(call) > 0},
        {ATTENTION_DELTA, workspace + delta + 4 * samples * seq * grouped_width(call), backward},
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

/* `count` samples of a call, from sample `first` on. */
static struct attention_call samples_of(const struct attention_call *call, size_t first, size_t count)
{
    size_t row = first * (size_t)call->seq;
    struct attention_call part = *call;

    part.batch = (uint16_t)count;
    part.qkv = address_of(call->qkv, row * (size_t)call->row);
    part.dqkv = address_of(call->dqkv, row * (size_t)call->row);
    part.out = address_of(call->out, row * (size_t)call->hidden);
    part.dout = address_of(call->dout, row * (size_t)call->hidden);
    part.lse = call->lse + row * (size_t)call->heads;
    return part;
}

bool attention_by_cudnn(struct device *dev, const struct attention_call *call, bool backward)
{
    size_t batch = call->batch;
    size_t count = backward ? cudnn_backward_samples(batch, (size_t)call->heads, (size_t)call->seq) : batch;

    for (size_t first = 0; first < batch; first += count) {
        struct attention_call part = samples_of(call, first, batch - first < count ? batch - first : count);

        if (!run_graph(dev, &part, backward))
            return false;
    }
    return true;
}

/* cudnn.cc - the part of cuDNN's graph interface that muster calls: it computes a graph operation by operation, as
 * written, where cuDNN recognises it as attention. So it shows that the graph says what kernels.h says. */
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <math.h>
#include <string.h>

#include <map>
#include <memory>
#include <vector>

#include "common/dtype.h"
#include "tests/cuda/standin/standin.h"

struct cudnnContext {
    cudaStream_t stream;
};

/* A descriptor is what was set of it. Of an engine's configuration also the number of the heuristics' proposal. */
struct descriptor {
    cudnnBackendDescriptorType_t type;
    std::map<int, std::vector<unsigned char>> attributes;
    bool finalized;
    int proposal;
};

static size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
        return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default:
        return 4;
    }
}

/* Element `i` of an attribute; zeros if it was not set. */
template <class T> static T attribute(const descriptor *d, int name, size_t i = 0)
{
    auto found = d->attributes.find(name);
    T value = {};

    if (found != d->attributes.end() && (i + 1) * sizeof value <= found->second.size())
        memcpy(&value, &found->second[i * sizeof value], sizeof value);
    return value;
}

static size_t attribute_count(const descriptor *d, int name, size_t size)
{
    auto found = d->attributes.find(name);

    return found == d->attributes.end() ? 0 : found->second.size() / size;
}

static const descriptor *child(const descriptor *d, int name, size_t i = 0)
{
    return static_cast<const descriptor *>(attribute<void *>(d, name, i));
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* What passes from an operation to another is packed. cuDNN's own strides of it count for a reshape alone: those of
 * NVIDIA's graph may let elements overlap. */
struct tensor {
    int64_t id, size[4], stride[4], reshaped[4];
    cudnnDataType_t type;
    bool stored, scalar;

    int64_t count() const
    {
        return size[0] * size[1] * size[2] * size[3];
    }

    /* Of an element; where a dimension has one element, all of it are that one. */
    size_t offset(const int64_t at[4], const int64_t by[4]) const
    {
        int64_t sum = 0;

        for (int k = 0; k < 4; k++)
            sum += size[k] == 1 ? 0 : at[k] * by[k];
        return static_cast<size_t>(sum);
    }

    size_t offset(const int64_t at[4]) const
    {
        return offset(at, stride);
    }

    size_t extent(const int64_t by[4]) const
    {
        const int64_t last[4] = {size[0] - 1, size[1] - 1, size[2] - 1, size[3] - 1};

        return offset(last, by) + 1;
    }
};

static tensor tensor_of(const descriptor *d)
{
    tensor t = {};

    if (!d)
        return t;
    t.id = attribute<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    t.type = attribute<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE);
    t.stored = !attribute<bool>(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    t.scalar = attribute<bool>(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    for (size_t k = 0; k < 4; k++) {
        t.size[k] = attribute<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS, k);
        t.stride[k] = t.reshaped[k] = attribute<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES, k);
    }
    for (int k = 3; k >= 0 && !t.stored; k--)
        t.stride[k] = k == 3 ? 1 : t.stride[k + 1] * t.size[k + 1];
    return t;
}

static size_t element_size(cudnnDataType_t type)
{
    return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_INT32 ? 4 : type == CUDNN_DATA_BOOLEAN ? 1 : 2;
}

static float rounded(cudnnDataType_t type, float x)
{
    return type == CUDNN_DATA_BFLOAT16 ? bf16_to_float(bf16_of_float(x))
           : type == CUDNN_DATA_HALF   ? f16_to_float(f16_of_float(x))
                                       : x;
}

/* ---- a graph that runs ------------------------------------------------------------------------------------------- */

struct operation {
    cudnnBackendDescriptorType_t type;
    int mode; /* of a pointwise operation, or of a reduction */
    int64_t axis;
    tensor x, b, t, y;
};

/* Elements of a tensor as they lie in memory: element [i, j, k, l] is at offset(). */
typedef std::vector<float> numbers;

struct program {
    std::vector<operation> operations;
    std::map<int64_t, void *> addresses;
    std::map<int64_t, float> scalars;
    std::map<int64_t, numbers> passed; /* from an operation to another */
    void *workspace;
    size_t workspace_bytes;

    numbers load(const tensor &t) const;
    bool store(const tensor &t, const numbers &x);
    bool run_one(const operation &op);
    bool run();
};

numbers program::load(const tensor &t) const
{
    numbers x(t.extent(t.stride));
    const void *from = NULL;

    if (t.scalar)
        return numbers(1, scalars.at(t.id));
    if (!t.stored)
        return passed.at(t.id);
    from = addresses.at(t.id);
    if (!standin_reachable(from, x.size() * element_size(t.type), "a tensor of cuDNN"))
        return numbers();
    for (size_t i = 0; i < x.size(); i++) {
        uint16_t bits = t.type == CUDNN_DATA_FLOAT ? 0 : static_cast<const uint16_t *>(from)[i];

        x[i] = t.type == CUDNN_DATA_FLOAT  ? static_cast<const float *>(from)[i]
               : t.type == CUDNN_DATA_HALF ? f16_to_float(bits)
                                           : bf16_to_float(bits);
    }
    return x;
}

template <class Body> static void for_each(const int64_t size[4], Body body)
{
    int64_t at[4];

    for (at[0] = 0; at[0] < size[0]; at[0]++)
        for (at[1] = 0; at[1] < size[1]; at[1]++)
            for (at[2] = 0; at[2] < size[2]; at[2]++)
                for (at[3] = 0; at[3] < size[3]; at[3]++)
                    body(static_cast<const int64_t *>(at));
}

bool program::store(const tensor &t, const numbers &x)
{
    void *to = t.stored ? addresses.at(t.id) : NULL;

    if (!t.stored) {
        numbers &y = passed[t.id] = x;

        for (float &v : y)
            v = rounded(t.type, v);
        return true;
    }
    if (!standin_reachable(to, x.size() * element_size(t.type), "a tensor of cuDNN"))
        return false;
    for_each(t.size, [&](const int64_t at[4]) {
        size_t i = t.offset(at);

        if (t.type == CUDNN_DATA_FLOAT)
            static_cast<float *>(to)[i] = x[i];
        else
            static_cast<uint16_t *>(to)[i] = t.type == CUDNN_DATA_HALF ? f16_of_float(x[i]) : bf16_of_float(x[i]);
    });
    return true;
}

static float pointwise(int mode, float x, float b, float t, int64_t index)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_EXP:
        return expf(x);
    case CUDNN_POINTWISE_LOG:
        return logf(x);
    case CUDNN_POINTWISE_GEN_INDEX:
        return static_cast<float>(index);
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return t != 0 ? x : b;
    default:
        standin_fail(cudaErrorNotSupported, "cuDNN: a pointwise operation of mode %d", mode);
        return 0;
    }
}

static void multiply(const operation &op, const numbers &a, const numbers &b, numbers &c)
{
    for_each(op.y.size, [&](const int64_t at[4]) {
        /* several heads of the left factor may have one of the right */
        const int64_t left[4] = {at[0], at[1], at[2], 0};
        const int64_t right[4] = {at[0], at[1] * op.b.size[1] / op.y.size[1], 0, at[3]};
        const float *row = &a[op.x.offset(left)], *column = &b[op.b.offset(right)];
        float sum = 0;

        for (int64_t k = 0; k < op.x.size[3]; k++)
            sum += row[k * op.x.stride[3]] * column[k * op.b.stride[2]];
        c[op.y.offset(at)] = sum;
    });
}

/* The same memory under other strides. */
static void reshape(const operation &op, const numbers &x, numbers &y)
{
    numbers memory(op.x.extent(op.x.reshaped));

    for_each(op.x.size, [&](const int64_t at[4]) { memory[op.x.offset(at, op.x.reshaped)] = x[op.x.offset(at)]; });
    for_each(op.y.size, [&](const int64_t at[4]) { y[op.y.offset(at)] = memory[op.y.offset(at, op.y.reshaped)]; });
}

static void reduce(const operation &op, const numbers &x, numbers &y)
{
    bool sums = op.mode == CUDNN_REDUCE_TENSOR_ADD;

    for (float &v : y)
        v = sums ? 0 : -INFINITY;
    for_each(op.x.size, [&](const int64_t at[4]) {
        const int64_t group[4] = {at[0], at[1] * op.y.size[1] / op.x.size[1], at[2], at[3]};
        float v = x[op.x.offset(at)], &into = y[op.y.offset(group)];

        into = sums ? into + v : fmaxf(into, v);
    });
}

bool program::run_one(const operation &op)
{
    numbers x = load(op.x), b, t, y(op.y.extent(op.y.stride));

    if (op.b.id)
        b = load(op.b);
    if (op.t.id)
        t = load(op.t);
    if (standin_error())
        return false;
    if (op.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
        multiply(op, x, b, y);
    else if (op.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
        reduce(op, x, y);
    else if (op.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
        reshape(op, x, y);
    else
        for_each(op.y.size, [&](const int64_t at[4]) {
            y[op.y.offset(at)] = pointwise(op.mode, x[op.x.offset(at)], b.empty() ? 0 : b[op.b.offset(at)],
                                           t.empty() ? 0 : t[op.t.offset(at)], at[op.axis]);
        });
    return store(op.y, y);
}

bool program::run()
{
    if (workspace_bytes > 0) {
        if (!standin_reachable(workspace, workspace_bytes, "cuDNN's workspace"))
            return true;
        memset(workspace, 0xff, workspace_bytes);
    }
    for (const operation &op : operations)
        if (!run_one(op))
            break;
    return true;
}

static operation operation_of(const descriptor *d)
{
    operation op = {};

    op.type = d->type;
    if (d->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
        op.x = tensor_of(child(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC));
        op.b = tensor_of(child(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
        op.y = tensor_of(child(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    } else if (d->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
        op.mode = attribute<int>(child(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC), CUDNN_ATTR_REDUCTION_OPERATOR);
        op.x = tensor_of(child(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
        op.y = tensor_of(child(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    } else if (d->type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
        op.x = tensor_of(child(d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
        op.y = tensor_of(child(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
    } else {
        const descriptor *how = child(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);

        op.mode = attribute<int>(how, CUDNN_ATTR_POINTWISE_MODE);
        op.axis = attribute<int64_t>(how, CUDNN_ATTR_POINTWISE_AXIS);
        op.x = tensor_of(child(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
        op.b = tensor_of(child(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
        op.t = tensor_of(child(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC));
        op.y = tensor_of(child(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    }
    return op;
}

/* The operation graph of a plan. */
static const descriptor *graph_of(const descriptor *plan)
{
    const descriptor *config = child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);

    return child(config, CUDNN_ATTR_ENGINECFG_ENGINE);
}

static std::vector<operation> operations_of(const descriptor *graph)
{
    std::vector<operation> operations;
    size_t count = attribute_count(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, sizeof(void *));

    for (size_t i = 0; i < count; i++)
        operations.push_back(operation_of(child(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, i)));
    return operations;
}

/* As on an H200: the backward pass, of five products, keeps the gradients of the scores. */
static int64_t workspace_of(const descriptor *plan)
{
    int64_t products = 0, scores = 0;

    for (const operation &op : operations_of(graph_of(plan)))
        if (op.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR && ++products == 1)
            scores = op.y.count();
    return products == 5 ? 2 * scores : 0;
}

/* ---- what muster calls ------------------------------------------------------------------------------------------- */

extern "C" {
size_t cudnnGetVersion(void)
{
    return 91900;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "an error of the stand-in for cuDNN";
}

void cudnnGetLastErrorString(char *text, size_t size)
{
    if (size > 0)
        text[0] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    *handle = new cudnnContext();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d)
{
    descriptor *made = new descriptor();

    made->type = type;
    *d = made;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    delete static_cast<descriptor *>(d);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *elements)
{
    descriptor *d = static_cast<descriptor *>(to);
    const unsigned char *bytes = static_cast<const unsigned char *>(elements);

    if (d->finalized)
        return CUDNN_STATUS_BAD_PARAM;
    d->attributes[name].assign(bytes, bytes + static_cast<size_t>(count) * size_of(type));
    return CUDNN_STATUS_SUCCESS;
}

/* The heuristics propose two engines: the first gives other bits each time. MUSTER_STANDIN_PLANS=0: none. */
static int64_t propose(const descriptor *heuristics, int64_t most, void *elements)
{
    void *graph = attribute<void *>(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    int64_t count = most < 2 ? most : 2;

    if (!standin_number("MUSTER_STANDIN_PLANS", 1))
        return 0;
    for (int64_t i = 0; i < count; i++) {
        descriptor *config = static_cast<descriptor *>(static_cast<void **>(elements)[i]);
        const unsigned char *bytes = reinterpret_cast<const unsigned char *>(&graph);

        config->attributes[CUDNN_ATTR_ENGINECFG_ENGINE].assign(bytes, bytes + sizeof graph);
        config->proposal = static_cast<int>(i);
    }
    return count;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const of, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t most, int64_t *count, void *elements)
{
    const descriptor *d = static_cast<const descriptor *>(of);
    const cudnnBackendNumericalNote_t note = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;

    *count = 1;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS)
        *count = propose(d, most, elements);
    else if (name == CUDNN_ATTR_ENGINECFG_ENGINE)
        static_cast<descriptor *>(*static_cast<void **>(elements))->proposal = d->proposal;
    else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && d->proposal == 0)
        memcpy(elements, &note, sizeof note);
    else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE)
        *count = 0;
    else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
        *static_cast<int64_t *>(elements) = workspace_of(d);
    else
        return CUDNN_STATUS_NOT_SUPPORTED;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d)
{
    static_cast<descriptor *>(d)->finalized = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    const descriptor *d = static_cast<const descriptor *>(plan), *p = static_cast<const descriptor *>(pack);
    std::shared_ptr<program> running = std::make_shared<program>();
    std::map<int64_t, void *> addresses;

    for (size_t i = 0; i < attribute_count(p, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, sizeof(int64_t)); i++)
        addresses[attribute<int64_t>(p, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i)] =
            attribute<void *>(p, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
    if (child(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->proposal == 0)
        standin_fail(cudaErrorUnknown, "cuDNN: a plan that gives other bits each time");
    running->operations = operations_of(graph_of(d));
    running->workspace = attribute<void *>(p, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    running->workspace_bytes = static_cast<size_t>(workspace_of(d));
    for (const operation &op : running->operations)
        for (const tensor *t : {&op.x, &op.b, &op.t, &op.y})
            if (t->stored && t->id && !addresses.count(t->id))
                return CUDNN_STATUS_BAD_PARAM;
            else if (t->scalar) /* read now: the caller's numbers are gone when the stream comes to it */
                running->scalars[t->id] = *static_cast<const float *>(addresses[t->id]);
            else if (t->stored && t->id)
                running->addresses[t->id] = addresses[t->id];
    standin_enqueue(handle->stream, [running] { return running->run(); });
    return CUDNN_STATUS_SUCCESS;
}
}

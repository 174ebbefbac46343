#include "trainer/comm/comm_nccl.h"

#include <cuda_runtime_api.h>
#include <sched.h>
#include <stdlib.h>

struct nccl_request {
    struct comm_request base;
    cudaEvent_t done;
    struct nccl_request *next; /* in the list of those that are free */
};

struct comm_nccl {
    struct comm base;
    struct nccl_root *root;
    struct nccl_member member;
    cudaStream_t stream, compute;
    cudaEvent_t computed; /* after what was enqueued to the device before an operation */
    struct nccl_request *free;
};

static int cuda_error(struct error *err, cudaError_t status, const char *what)
{
    if (status == cudaSuccess)
        return 0;
    return error_set(err, CODE_INTERNAL, "NCCL: %s: %s", what, cudaGetErrorString(status));
}

static ncclDataType_t type_of(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? ncclFloat32 : dtype == DTYPE_BF16 ? ncclBfloat16 : ncclFloat16;
}

/* ---- requests ---- */

static struct nccl_request *take_request(struct comm_nccl *c, struct error *err)
{
    struct nccl_request *request = c->free;

    if (request) {
        c->free = request->next;
        return request;
    }
    request = error_calloc(1, sizeof *request, err);
    if (!request)
        return NULL;
    request->base.comm = &c->base;
    if (cuda_error(err, cudaEventCreateWithFlags(&request->done, cudaEventDisableTiming), "an event") == 0)
        return request;
    free(request);
    return NULL;
}

static void return_request(struct comm_nccl *c, struct nccl_request *request)
{
    request->next = c->free;
    c->free = request;
}

/* Before NCCL is called: its stream waits for what was enqueued to the device. */
static struct nccl_request *begin_request(struct comm *comm, struct error *err)
{
    struct comm_nccl *c = (struct comm_nccl *)comm;
    struct nccl_request *request = nccl_root_usable(c->root, err) < 0 ? NULL : take_request(c, err);

    if (!request)
        return NULL;
    if (cuda_error(err, cudaEventRecord(c->computed, c->compute), "cudaEventRecord") == 0 &&
        cuda_error(err, cudaStreamWaitEvent(c->stream, c->computed, 0), "cudaStreamWaitEvent") == 0)
        return request;
    return_request(c, request);
    return NULL;
}

/* After: `status` is what NCCL has returned. */
static struct comm_request *finish_start(struct nccl_request *request, ncclResult_t status, const char *what,
                                         struct error *err)
{
    struct comm_nccl *c = (struct comm_nccl *)request->base.comm;

    if (nccl_settle(c->root, c->member.handle, status, what, err) == 0 &&
        cuda_error(err, cudaEventRecord(request->done, c->stream), "cudaEventRecord") == 0)
        return &request->base;
    return NULL; /* the request is not reused: the stream may still use it */
}

/* Tells the recorder when the GPU has done all that was enqueued before this wait. Returns whether it is still busy. */
static bool follow_computing(struct comm_nccl *c, bool first, bool busy)
{
    if (first) {
        busy = cudaEventRecord(c->computed, c->compute) == cudaSuccess;
        recorder_device_busy(busy);
    }
    if (busy && cudaEventQuery(c->computed) != cudaErrorNotReady) {
        recorder_device_busy(false);
        busy = false;
    }
    return busy;
}

static int nccl_wait(struct comm_request *base, struct error *err)
{
    struct nccl_request *request = (struct nccl_request *)base;
    struct comm_nccl *c = (struct comm_nccl *)base->comm;
    cudaError_t status;
    unsigned polls = 0;
    bool busy = false;

    while ((status = cudaEventQuery(request->done)) == cudaErrorNotReady) {
        busy = follow_computing(c, polls == 0, busy);
        if (++polls % 16 == 0)
            sched_yield();
        if (polls % 256 == 0 && nccl_look(c->root, c->member.handle, err) < 0)
            return -1;
    }
    if (status == cudaSuccess && polls > 0) { /* see cuda_poll */
        status = cudaGetLastError();
        if (status == cudaErrorNotReady)
            status = cudaSuccess;
    }
    if (cuda_error(err, status, "a collective") < 0) {
        nccl_root_abort(c->root, err);
        return -1;
    }
    if (nccl_root_usable(c->root, err) < 0) /* the event may be done only because the kernel was aborted */
        return -1;
    return_request(c, request);
    return 0;
}

/* ---- operations ---- */

/* NCCL needs the parts one after the other. */
static const void *side_by_side(struct comm_nccl *c, const void *send, size_t bytes, size_t stride, void *scratch,
                                struct error *err)
{
    if (bytes == stride)
        return send;
    if (!scratch) {
        error_set(err, CODE_INTERNAL, "NCCL: a reduce-scatter of parts that lie apart has no scratch");
        return NULL;
    }
    return cuda_error(err,
                      cudaMemcpy2DAsync(scratch, bytes, send, stride, bytes, (size_t)c->base.size,
                                        cudaMemcpyDeviceToDevice, c->stream),
                      "cudaMemcpy2DAsync") < 0
               ? NULL
               : scratch;
}

static struct comm_request *nccl_reduce_scatter(struct comm *comm, enum dtype dtype, void *recv, const void *send,
                                                size_t count, size_t stride, void *scratch, struct error *err)
{
    struct comm_nccl *c = (struct comm_nccl *)comm;
    size_t element = dtype_size(dtype);
    struct nccl_request *request = begin_request(comm, err);
    const void *from = request ? side_by_side(c, send, count * element, stride * element, scratch, err) : NULL;

    if (!from)
        return NULL;
    return finish_start(
        request, nccl_api.ncclReduceScatter(from, recv, count, type_of(dtype), ncclSum, c->member.handle, c->stream),
        "reduce-scatter", err);
}

static struct comm_request *nccl_all_gather(struct comm *comm, void *buffer, size_t bytes, struct error *err)
{
    struct comm_nccl *c = (struct comm_nccl *)comm;
    const char *own = (const char *)buffer + (size_t)comm->rank * bytes;
    struct nccl_request *request = begin_request(comm, err);

    if (!request)
        return NULL;
    return finish_start(request, nccl_api.ncclAllGather(own, buffer, bytes, ncclUint8, c->member.handle, c->stream),
                        "all-gather", err);
}

static int nccl_all_reduce(struct comm *comm, enum dtype dtype, void *buffer, size_t count, void *scratch,
                           struct error *err)
{
    struct comm_nccl *c = (struct comm_nccl *)comm;
    struct record_op op = comm_record_enter(comm, RECORD_ALL_REDUCE, -1);
    struct nccl_request *request = begin_request(comm, err);
    struct comm_request *started = NULL;

    (void)scratch;
    if (request)
        started = finish_start(
            request,
            nccl_api.ncclAllReduce(buffer, buffer, count, type_of(dtype), ncclSum, c->member.handle, c->stream),
            "all-reduce", err);
    started = comm_record_started(started, &op);
    return started ? comm_wait(started, err) : -1;
}

/* ---- groups ---- */

/* If a resource of the GPU cannot be freed, no other operation starts on it. */
static void nccl_destroy(struct comm *comm)
{
    struct comm_nccl *c = (struct comm_nccl *)comm;
    struct error err;
    int result = 0;

    nccl_root_leave(c->root, &c->member);
    while (c->free) {
        struct nccl_request *next = c->free->next;

        result |= cuda_error(&err, cudaEventDestroy(c->free->done), "cudaEventDestroy");
        free(c->free);
        c->free = next;
    }
    if (c->computed)
        result |= cuda_error(&err, cudaEventDestroy(c->computed), "cudaEventDestroy");
    if (c->stream)
        result |= cuda_error(&err, cudaStreamDestroy(c->stream), "cudaStreamDestroy");
    if (result < 0)
        nccl_root_abort(c->root, &err);
    comm_destroy(comm->host);
    free(c);
}

static const struct comm_ops nccl_ops = {
    .destroy = nccl_destroy,
    .start_reduce_scatter = nccl_reduce_scatter,
    .start_all_gather = nccl_all_gather,
    .all_reduce = nccl_all_reduce,
    .wait = nccl_wait,
};

/* Of a higher priority than the kernels, which are enqueued far ahead and would occupy the whole GPU. */
static int create_stream(struct comm_nccl *c, struct device *dev, struct error *err)
{
    int least, greatest;

    c->compute = device_stream(dev);
    if (cuda_error(err, cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream priorities") < 0 ||
        cuda_error(err, cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking, greatest), "a stream") < 0)
        return -1;
    return cuda_error(err, cudaEventCreateWithFlags(&c->computed, cudaEventDisableTiming), "an event");
}

struct comm *comm_nccl_create(struct nccl_root *root, struct comm *host, int least, int color, int key,
                              struct error *err)
{
    bool joins = host->size >= least;
    struct comm_nccl *c = comm_device_create(sizeof *c, &nccl_ops, host, err);

    if (!c)
        return NULL;
    c->root = root;
    if (nccl_root_split(root, joins, color, key, &c->member, err) < 0 ||
        (joins && create_stream(c, root->dev, err) < 0)) {
        comm_destroy(&c->base); /* and host with it */
        return NULL;
    }
    if (joins)
        return &c->base;
    nccl_root_leave(root, &c->member);
    free(c);
    return host;
}

/*
 * comm_staged.c - comm.h for buffers in the memory of a device, by way of host memory: several ranks on one GPU, or
 * GPUs that NCCL does not connect. Not fast; every mesh is right with it.
 *
 * A start copies what is sent to a host buffer and waits for the device; the wait copies what arrived back, in the
 * device's queue. A buffer goes back to the pool while that copy may still be enqueued: whoever takes it next waits for
 * the device before the network writes to it.
 *
 * With MUSTER_TEST_COLLECTIVES=late in the environment, for tests, a collective that is started only spoils what it is
 * to write, and all of it is done by the wait: as late as NCCL may do it, after everything that was enqueued in
 * between. Whoever touches an operation's buffers before its wait then gets other numbers.
 */
#include <stdlib.h>
#include <string.h>

#include "trainer/comm/comm_device.h"

struct buffer {
    struct buffer *next;
    char *at;
    size_t bytes;
};

struct staged {
    struct comm base;
    struct device *dev;
    const struct kernels *k;
    struct buffer *free; /* those that no operation has */
    bool late;           /* MUSTER_TEST_COLLECTIVES */
};

struct staged_request {
    struct comm_request base;
    struct comm_request *inner;
    struct buffer *buffer;
    void *to; /* where on the device the result goes; NULL for a send */
    size_t offset, bytes;

    /* of a collective, until it has begun */
    int (*begin)(struct staged_request *, struct error *err);
    enum dtype dtype;
    const char *send;
    size_t count, stride;
};

static struct staged *as_staged(struct comm *comm)
{
    return (struct staged *)comm;
}

/* ---- host buffers ---- */

static struct buffer *buffer_create(struct staged *s, size_t bytes, struct error *err)
{
    struct buffer *buffer = calloc(1, sizeof *buffer);

    if (!buffer) {
        error_set(err, CODE_IO, "out of memory");
        return NULL;
    }
    buffer->at = device_alloc(s->dev, MEMORY_HOST, bytes + 1, err); /* of nothing, there is no address */
    buffer->bytes = bytes;
    if (buffer->at)
        return buffer;
    free(buffer);
    return NULL;
}

static void buffer_destroy(struct staged *s, struct buffer *buffer)
{
    device_free(s->dev, MEMORY_HOST, buffer->at);
    free(buffer);
}

/* The first that is large enough; else a new one, in the place of one that is too small. */
static struct buffer *take(struct staged *s, size_t bytes, struct error *err)
{
    struct buffer *small = s->free;

    for (struct buffer **at = &s->free; *at; at = &(*at)->next)
        if ((*at)->bytes >= bytes) {
            struct buffer *found = *at;

            *at = found->next;
            return found;
        }
    if (small) {
        s->free = small->next;
        device_wait(s->dev); /* for the copy that may still read it */
        buffer_destroy(s, small);
    }
    return buffer_create(s, bytes, err);
}

static void give_back(struct staged *s, struct buffer *buffer)
{
    buffer->next = s->free;
    s->free = buffer;
}

/* ---- requests ---- */

static struct staged_request *request_create(struct comm *comm, size_t bytes, struct error *err)
{
    struct staged_request *request = calloc(1, sizeof *request);

    if (!request) {
        error_set(err, CODE_IO, "out of memory for a collective of %d ranks", comm->size);
        return NULL;
    }
    request->base.comm = comm;
    request->buffer = take(as_staged(comm), bytes, err);
    if (request->buffer)
        return request;
    free(request);
    return NULL;
}

static struct comm_request *begun(struct staged_request *request, struct comm_request *inner)
{
    request->inner = inner;
    if (inner)
        return &request->base;
    give_back(as_staged(request->base.comm), request->buffer);
    free(request);
    return NULL;
}

/* A collective begins now, or, when it is to be late, with its wait. */
static struct comm_request *begin_collective(struct staged_request *request, struct error *err)
{
    if (as_staged(request->base.comm)->late || request->begin(request, err) == 0)
        return &request->base;
    give_back(as_staged(request->base.comm), request->buffer);
    free(request);
    return NULL;
}

static int staged_wait(struct comm_request *base, struct error *err)
{
    struct staged_request *request = (struct staged_request *)base;
    struct staged *s = as_staged(base->comm);

    if (!request->inner && request->begin(request, err) < 0)
        return -1;
    /* Left as it is when that fails: the network may still write to the buffer. */
    if (request->inner != &comm_done && request->inner->comm->ops->wait(request->inner, err) < 0)
        return -1;
    if (request->to)
        s->k->copy(s->dev, request->to, request->buffer->at + request->offset, request->bytes);
    give_back(s, request->buffer);
    free(request);
    return 0;
}

/* ---- operations ---- */

static int begin_reduce_scatter(struct staged_request *request, struct error *err)
{
    struct comm *comm = request->base.comm;
    struct staged *s = as_staged(comm);
    char *parts = request->buffer->at, *sum = parts + request->offset;

    for (int rank = 0; rank < comm->size; rank++)
        s->k->copy(s->dev, parts + (size_t)rank * request->bytes,
                   request->send + (size_t)rank * request->stride * dtype_size(request->dtype), request->bytes);
    device_wait(s->dev);
    request->inner = comm->host->ops->start_reduce_scatter(comm->host, request->dtype, sum, parts, request->count,
                                                           request->count, NULL, err);
    return request->inner ? 0 : -1;
}

static struct comm_request *staged_reduce_scatter(struct comm *comm, enum dtype dtype, void *recv, const void *send,
                                                  size_t count, size_t stride, void *scratch, struct error *err)
{
    struct staged *s = as_staged(comm);
    size_t bytes = count * dtype_size(dtype), all = bytes * (size_t)comm->size;
    const char *own = (const char *)send + (size_t)comm->rank * stride * dtype_size(dtype);
    struct staged_request *request = request_create(comm, all + bytes, err);

    (void)scratch; /* it is the device's */
    if (!request)
        return NULL;
    request->begin = begin_reduce_scatter;
    request->to = recv;
    request->offset = all;
    request->bytes = bytes;
    request->dtype = dtype;
    request->send = send;
    request->count = count;
    request->stride = stride;
    if (s->late && recv != own)
        s->k->zero(s->dev, recv, bytes);
    return begin_collective(request, err);
}

static int begin_all_gather(struct staged_request *request, struct error *err)
{
    struct comm *comm = request->base.comm;
    struct staged *s = as_staged(comm);
    size_t own = request->count * (size_t)comm->rank;

    s->k->copy(s->dev, request->buffer->at + own, (const char *)request->to + own, request->count);
    device_wait(s->dev);
    request->inner = comm->host->ops->start_all_gather(comm->host, request->buffer->at, request->count, err);
    return request->inner ? 0 : -1;
}

static struct comm_request *staged_all_gather(struct comm *comm, void *buffer, size_t bytes, struct error *err)
{
    struct staged *s = as_staged(comm);
    size_t all = bytes * (size_t)comm->size, own = bytes * (size_t)comm->rank;
    struct staged_request *request = request_create(comm, all, err);

    if (!request)
        return NULL;
    request->begin = begin_all_gather;
    request->to = buffer;
    request->bytes = all;
    request->count = bytes;
    if (s->late) {
        s->k->zero(s->dev, buffer, own);
        s->k->zero(s->dev, (char *)buffer + own + bytes, all - own - bytes);
    }
    return begin_collective(request, err);
}

static struct comm_request *staged_send(struct comm *comm, const void *buffer, size_t bytes, int peer,
                                        struct error *err)
{
    struct staged *s = as_staged(comm);
    struct staged_request *request = request_create(comm, bytes, err);

    if (!request)
        return NULL;
    s->k->copy(s->dev, request->buffer->at, buffer, bytes);
    device_wait(s->dev);
    return begun(request, comm->host->ops->start_send(comm->host, request->buffer->at, bytes, peer, err));
}

static struct comm_request *staged_recv(struct comm *comm, void *buffer, size_t bytes, int peer, struct error *err)
{
    struct staged_request *request = request_create(comm, bytes, err);

    if (!request)
        return NULL;
    device_wait(as_staged(comm)->dev);
    request->to = buffer;
    request->bytes = bytes;
    return begun(request, comm->host->ops->start_recv(comm->host, request->buffer->at, bytes, peer, err));
}

static int staged_all_reduce(struct comm *comm, enum dtype dtype, void *buffer, size_t count, void *scratch,
                             struct error *err)
{
    struct staged *s = as_staged(comm);
    size_t bytes = count * dtype_size(dtype);
    struct buffer *host = take(s, bytes, err);

    (void)scratch;
    if (!host)
        return -1;
    s->k->copy(s->dev, host->at, buffer, bytes);
    device_wait(s->dev);
    if (comm_all_reduce_on_host(comm, dtype, host->at, count, NULL, err) < 0)
        return -1; /* the buffer is lost: see wait_started in comm.c */
    s->k->copy(s->dev, buffer, host->at, bytes);
    give_back(s, host);
    return 0;
}

static void staged_destroy(struct comm *comm)
{
    struct staged *s = as_staged(comm);

    device_wait(s->dev);
    while (s->free) {
        struct buffer *next = s->free->next;

        buffer_destroy(s, s->free);
        s->free = next;
    }
    comm_destroy(comm->host);
    free(s);
}

static const struct comm_ops staged_ops = {
    .split = comm_device_split,
    .destroy = staged_destroy,
    .start_reduce_scatter = staged_reduce_scatter,
    .start_all_gather = staged_all_gather,
    .start_broadcast = comm_device_broadcast,
    .start_send = staged_send,
    .start_recv = staged_recv,
    .all_reduce = staged_all_reduce,
    .wait = staged_wait,
};

struct comm *comm_staged_create(struct comm *host, struct device *dev, struct error *err)
{
    const char *late = getenv("MUSTER_TEST_COLLECTIVES");
    struct staged *s = calloc(1, sizeof *s);

    if (!s || comm_device_init(&s->base, &staged_ops, host, err) < 0) {
        error_set(err, CODE_IO, "out of memory for a group of %d ranks", host->size);
        comm_destroy(host);
        free(s);
        return NULL;
    }
    s->dev = dev;
    s->k = device_kernels(dev);
    s->late = late && strcmp(late, "late") == 0;
    return &s->base;
}

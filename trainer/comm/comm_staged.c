/*
 * comm_staged.c - comm.h for buffers in device memory, by way of host memory: for several ranks on one GPU, and for GPUs
 * without NCCL. Slow, but correct for every mesh.
 *
 * A start copies the data to a host buffer and waits for the device. The wait enqueues the copy of the result back to
 * the device. The buffer returns to the pool while that copy may still be in the queue, so the next user of the buffer
 * waits for the device before the network writes to it.
 */
#include <stdlib.h>

#include "trainer/comm/comm_impl.h"

struct buffer {
    struct buffer *next;
    char *at;
    size_t bytes;
};

struct staged_comm {
    struct comm base;
    struct device *dev;
    const struct kernels *k;
    struct buffer *free; /* the pool */
};

struct staged_request {
    struct comm_request base;
    struct comm_request *inner;
    struct buffer *buffer;
    void *to; /* device address of the result; NULL for a send */
    size_t offset, bytes;
};

static struct staged_comm *as_staged(struct comm *comm)
{
    return (struct staged_comm *)comm;
}

/* ---- host buffers ---- */

static struct buffer *buffer_create(struct staged_comm *s, size_t bytes, struct error *err)
{
    struct buffer *buffer = calloc(1, sizeof *buffer);

    if (!buffer) {
        error_set(err, CODE_IO, "out of memory");
        return NULL;
    }
    buffer->at = device_alloc(s->dev, MEMORY_HOST, bytes + 1, err); /* an allocation of 0 bytes has no address */
    buffer->bytes = bytes;
    if (buffer->at)
        return buffer;
    free(buffer);
    return NULL;
}

static void buffer_destroy(struct staged_comm *s, struct buffer *buffer)
{
    device_free(s->dev, MEMORY_HOST, buffer->at);
    free(buffer);
}

/* The first buffer that is large enough; else a new one, in place of the first. */
static struct buffer *take_buffer(struct staged_comm *s, size_t bytes, struct error *err)
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
        device_wait(s->dev); /* its last copy may still be in the queue */
        buffer_destroy(s, small);
    }
    return buffer_create(s, bytes, err);
}

static void return_buffer(struct staged_comm *s, struct buffer *buffer)
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
    request->buffer = take_buffer(as_staged(comm), bytes, err);
    if (request->buffer)
        return request;
    free(request);
    return NULL;
}

/* `inner` is what the host communicator's start returned. */
static struct comm_request *finish_start(struct staged_request *request, struct comm_request *inner)
{
    request->inner = inner;
    if (inner)
        return &request->base;
    return_buffer(as_staged(request->base.comm), request->buffer);
    free(request);
    return NULL;
}

static int staged_wait(struct comm_request *base, struct error *err)
{
    struct staged_request *request = (struct staged_request *)base;
    struct staged_comm *s = as_staged(base->comm);

    /* After a failure the request stays as it is: the network may still write to the buffer. */
    if (request->inner != &comm_done && request->inner->comm->ops->wait(request->inner, err) < 0)
        return -1;
    if (request->to)
        s->k->copy(s->dev, request->to, request->buffer->at + request->offset, request->bytes);
    return_buffer(s, request->buffer);
    free(request);
    return 0;
}

/* ---- operations ---- */

static struct comm_request *staged_reduce_scatter(struct comm *comm, enum dtype dtype, void *recv, const void *send,
                                                  size_t count, size_t stride, void *scratch, struct error *err)
{
    struct staged_comm *s = as_staged(comm);
    size_t bytes = count * dtype_size(dtype), all = bytes * (size_t)comm->size;
    struct staged_request *request = request_create(comm, all + bytes, err);
    char *parts;

    (void)scratch; /* it is device memory */
    if (!request)
        return NULL;
    request->to = recv;
    request->offset = all;
    request->bytes = bytes;
    parts = request->buffer->at;
    for (int rank = 0; rank < comm->size; rank++)
        s->k->copy(s->dev, parts + (size_t)rank * bytes, (const char *)send + (size_t)rank * stride * dtype_size(dtype),
                   bytes);
    device_wait(s->dev);
    return finish_start(
        request, comm->host->ops->start_reduce_scatter(comm->host, dtype, parts + all, parts, count, count, NULL, err));
}

static struct comm_request *staged_all_gather(struct comm *comm, void *buffer, size_t bytes, struct error *err)
{
    struct staged_comm *s = as_staged(comm);
    size_t own = bytes * (size_t)comm->rank;
    struct staged_request *request = request_create(comm, bytes * (size_t)comm->size, err);

    if (!request)
        return NULL;
    request->to = buffer;
    request->bytes = bytes * (size_t)comm->size;
    s->k->copy(s->dev, request->buffer->at + own, (const char *)buffer + own, bytes);
    device_wait(s->dev);
    return finish_start(request, comm->host->ops->start_all_gather(comm->host, request->buffer->at, bytes, err));
}

static struct comm_request *staged_send(struct comm *comm, const void *buffer, size_t bytes, int peer,
                                        struct error *err)
{
    struct staged_comm *s = as_staged(comm);
    struct staged_request *request = request_create(comm, bytes, err);

    if (!request)
        return NULL;
    s->k->copy(s->dev, request->buffer->at, buffer, bytes);
    device_wait(s->dev);
    return finish_start(request, comm->host->ops->start_send(comm->host, request->buffer->at, bytes, peer, err));
}

static struct comm_request *staged_recv(struct comm *comm, void *buffer, size_t bytes, int peer, struct error *err)
{
    struct staged_request *request = request_create(comm, bytes, err);

    if (!request)
        return NULL;
    device_wait(as_staged(comm)->dev);
    request->to = buffer;
    request->bytes = bytes;
    return finish_start(request, comm->host->ops->start_recv(comm->host, request->buffer->at, bytes, peer, err));
}

static int staged_all_reduce(struct comm *comm, enum dtype dtype, void *buffer, size_t count, void *scratch,
                             struct error *err)
{
    struct staged_comm *s = as_staged(comm);
    size_t bytes = count * dtype_size(dtype);
    struct buffer *host = take_buffer(s, bytes, err);

    (void)scratch;
    if (!host)
        return -1;
    s->k->copy(s->dev, host->at, buffer, bytes);
    device_wait(s->dev);
    if (comm_all_reduce_on_host(comm, dtype, host->at, count, NULL, err) < 0)
        return -1; /* the buffer is not used again: see wait_started in comm.c */
    s->k->copy(s->dev, buffer, host->at, bytes);
    return_buffer(s, host);
    return 0;
}

static void staged_destroy(struct comm *comm)
{
    struct staged_comm *s = as_staged(comm);

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
    struct staged_comm *s = calloc(1, sizeof *s);

    if (!s || comm_device_init(&s->base, &staged_ops, host, err) < 0) {
        error_set(err, CODE_IO, "out of memory for a group of %d ranks", host->size);
        comm_destroy(host);
        free(s);
        return NULL;
    }
    s->dev = dev;
    s->k = device_kernels(dev);
    return &s->base;
}

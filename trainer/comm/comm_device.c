/*
 * comm_device.c - how devices reach each other (comm_fabric), and comm.h for buffers in device memory by way of host
 * memory: for several ranks on one GPU, for GPUs without NCCL, and for what pipeline stages send each other. Slow, but
 * correct for every mesh.
 *
 * A start copies the data to a host buffer and waits for the device. The wait enqueues the copy of the result back to
 * the device. The request returns to the pool while that copy may still be in the queue, so the next user of its buffer
 * waits for the device before the network writes to it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "trainer/comm/comm_impl.h"

#ifdef HAVE_NCCL
#include "trainer/comm/comm_nccl.h"
#endif

void *comm_device_create(size_t bytes, const struct comm_ops *ops, struct comm *host, struct error *err)
{
    struct comm *comm = error_calloc(1, bytes, err);

    if (!comm) {
        comm_destroy(host);
        return NULL;
    }
    comm->ops = ops;
    comm->host = host;
    comm->rank = host->rank;
    comm->size = host->size;
    memcpy(comm->text, host->text, sizeof comm->text);
    memcpy(comm->label, host->label, sizeof comm->label);
    return comm;
}

/* ---- by way of the host ---- */

struct staged_request {
    struct comm_request base;
    struct staged_request *next; /* in the pool */
    char *buffer;
    size_t room;
    struct comm_request *inner;
    void *to; /* device address of the result; NULL for a send */
    size_t offset, bytes;
};

struct staged_comm {
    struct comm base;
    struct device *dev;
    const struct kernels *k;
    struct staged_request *pool;
};

/* ---- requests ---- */

static void request_destroy(struct staged_comm *s, struct staged_request *request)
{
    device_free(s->dev, MEMORY_HOST, request->buffer);
    free(request);
}

static struct staged_request *request_create(struct staged_comm *s, size_t bytes, struct error *err)
{
    struct staged_request *request = error_calloc(1, sizeof *request, err);

    if (!request)
        return NULL;
    request->base.comm = &s->base;
    request->room = bytes;
    request->buffer = device_alloc(s->dev, MEMORY_HOST, bytes + 1, err); /* an allocation of 0 bytes has no address */
    if (request->buffer)
        return request;
    free(request);
    return NULL;
}

/* The first request of the pool whose buffer is large enough; else a new one, in place of the first. */
static struct staged_request *take_request(struct comm *comm, size_t bytes, struct error *err)
{
    struct staged_comm *s = (struct staged_comm *)comm;
    struct staged_request *small = s->pool;

    for (struct staged_request **at = &s->pool; *at; at = &(*at)->next)
        if ((*at)->room >= bytes) {
            struct staged_request *found = *at;

            *at = found->next;
            found->to = NULL;
            found->offset = 0;
            return found;
        }
    if (small) {
        s->pool = small->next;
        device_wait(s->dev); /* its last copy may still be in the queue */
        request_destroy(s, small);
    }
    return request_create(s, bytes, err);
}

static void return_request(struct staged_request *request)
{
    struct staged_comm *s = (struct staged_comm *)request->base.comm;

    request->next = s->pool;
    s->pool = request;
}

/* `inner` is what the host communicator's start returned. */
static struct comm_request *finish_start(struct staged_request *request, struct comm_request *inner)
{
    request->inner = inner;
    if (inner)
        return &request->base;
    return_request(request);
    return NULL;
}

static int staged_wait(struct comm_request *base, struct error *err)
{
    struct staged_request *request = (struct staged_request *)base;
    struct staged_comm *s = (struct staged_comm *)base->comm;

    /* After a failure the request stays as it is: the network may still write to the buffer. */
    if (request->inner->comm->ops->wait(request->inner, err) < 0)
        return -1;
    if (request->to)
        s->k->copy(s->dev, request->to, request->buffer + request->offset, request->bytes);
    return_request(request);
    return 0;
}

/* ---- operations ---- */

static struct comm_request *staged_reduce_scatter(struct comm *comm, enum dtype dtype, void *recv, const void *send,
                                                  size_t count, size_t stride, void *scratch, struct error *err)
{
    struct staged_comm *s = (struct staged_comm *)comm;
    size_t bytes = count * dtype_size(dtype), all = bytes * (size_t)comm->size;
    struct staged_request *request = take_request(comm, all + bytes, err);
    char *parts;

    (void)scratch; /* it is device memory */
    if (!request)
        return NULL;
    request->to = recv;
    request->offset = all;
    request->bytes = bytes;
    parts = request->buffer;
    for (int rank = 0; rank < comm->size; rank++)
        s->k->copy(s->dev, parts + (size_t)rank * bytes, (const char *)send + (size_t)rank * stride * dtype_size(dtype),
                   bytes);
    device_wait(s->dev);
    return finish_start(
        request, comm->host->ops->start_reduce_scatter(comm->host, dtype, parts + all, parts, count, count, NULL, err));
}

static struct comm_request *staged_all_gather(struct comm *comm, void *buffer, size_t bytes, struct error *err)
{
    struct staged_comm *s = (struct staged_comm *)comm;
    size_t own = bytes * (size_t)comm->rank;
    struct staged_request *request = take_request(comm, bytes * (size_t)comm->size, err);

    if (!request)
        return NULL;
    request->to = buffer;
    request->bytes = bytes * (size_t)comm->size;
    s->k->copy(s->dev, request->buffer + own, (const char *)buffer + own, bytes);
    device_wait(s->dev);
    return finish_start(request, comm->host->ops->start_all_gather(comm->host, request->buffer, bytes, err));
}

static struct comm_request *staged_message(struct comm *comm, bool sending, void *buffer, size_t bytes, int peer,
                                           struct error *err)
{
    struct staged_comm *s = (struct staged_comm *)comm;
    struct staged_request *request = take_request(comm, bytes, err);

    if (!request)
        return NULL;
    if (sending)
        s->k->copy(s->dev, request->buffer, buffer, bytes);
    else
        request->to = buffer;
    request->bytes = bytes;
    device_wait(s->dev);
    return finish_start(request,
                        comm->host->ops->start_message(comm->host, sending, request->buffer, bytes, peer, err));
}

static int staged_all_reduce(struct comm *comm, enum dtype dtype, void *buffer, size_t count, void *scratch,
                             struct error *err)
{
    struct staged_comm *s = (struct staged_comm *)comm;
    size_t bytes = count * dtype_size(dtype);
    struct staged_request *request = take_request(comm, bytes, err);

    (void)scratch;
    if (!request)
        return -1;
    s->k->copy(s->dev, request->buffer, buffer, bytes);
    device_wait(s->dev);
    if (comm_all_reduce_on_host(comm, dtype, request->buffer, count, NULL, err) < 0)
        return -1; /* the buffer is not used again: see wait_started in comm.c */
    s->k->copy(s->dev, buffer, request->buffer, bytes);
    return_request(request);
    return 0;
}

static void staged_destroy(struct comm *comm)
{
    struct staged_comm *s = (struct staged_comm *)comm;

    device_wait(s->dev);
    while (s->pool) {
        struct staged_request *next = s->pool->next;

        request_destroy(s, s->pool);
        s->pool = next;
    }
    comm_destroy(comm->host);
    free(s);
}

static const struct comm_ops staged_ops = {
    .destroy = staged_destroy,
    .start_reduce_scatter = staged_reduce_scatter,
    .start_all_gather = staged_all_gather,
    .start_message = staged_message,
    .all_reduce = staged_all_reduce,
    .wait = staged_wait,
};

/* ---- the fabric ---- */

struct comm_fabric {
    struct comm *world;
    struct device *dev;
    struct nccl_root *nccl; /* NULL: by way of the host */
    char text[160];
};

bool comm_names_differ(const unsigned char *names, size_t bytes, int count)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            if (memcmp(names + (size_t)i * bytes, names + (size_t)j * bytes, bytes) == 0)
                return false;
    return true;
}

#ifdef HAVE_NCCL
/* 1: every rank has a GPU of its own; 0: some share one; -1. */
static int gpus_are_apart(struct comm_fabric *f, struct error *err)
{
    size_t ranks = (size_t)f->world->size;
    unsigned char *names = error_calloc(ranks, GPU_NAME, err);
    int result = names ? device_gpu_name(f->dev, names + (size_t)f->world->rank * GPU_NAME, err) : -1;

    if (comm_agree(f->world, result, err) < 0 ||
        comm_all_gather(f->world, DTYPE_F32, names, GPU_NAME / sizeof(float), err) < 0)
        return -1; /* names may still be written to */
    result = comm_names_differ(names, GPU_NAME, f->world->size);
    free(names);
    return result;
}

/* NCCL where it can be; where it cannot, says why. */
static int connect_devices(struct comm_fabric *f, struct error *err)
{
    struct error why;
    int apart;

    if (!device_stream(f->dev))
        return 0;
    apart = gpus_are_apart(f, err);
    if (apart < 0)
        return -1;
    if (!apart) {
        snprintf(f->text, sizeof f->text, "host memory, because ranks share a GPU");
        return 0;
    }
    if (comm_agree(f->world, comm_nccl_load(&why), &why) < 0) {
        if (why.code != CODE_CONFIG) {
            *err = why;
            return -1;
        }
        snprintf(f->text, sizeof f->text, "host memory: %.140s", why.text);
        return 0;
    }
    comm_nccl_version(f->text, sizeof f->text);
    f->nccl = comm_nccl_root_create(f->world, f->dev, err);
    return f->nccl ? 0 : -1;
}
#else
static int connect_devices(struct comm_fabric *f, struct error *err)
{
    (void)f, (void)err;
    return 0;
}
#endif

struct comm_fabric *comm_fabric_create(struct comm *world, struct device *dev, struct error *err)
{
    struct comm_fabric *f = error_calloc(1, sizeof *f, err);

    if (!f)
        return NULL;
    f->world = world;
    f->dev = dev;
    if (device_is_host(dev) || world->size == 1)
        return f;
    snprintf(f->text, sizeof f->text, "host memory");
    if (connect_devices(f, err) == 0)
        return f;
    free(f);
    return NULL;
}

void comm_fabric_destroy(struct comm_fabric *f)
{
    if (!f)
        return;
#ifdef HAVE_NCCL
    comm_nccl_root_destroy(f->nccl);
#endif
    free(f);
}

void comm_fabric_abandon(struct comm_fabric *f, const struct error *err)
{
    (void)f, (void)err;
#ifdef HAVE_NCCL
    if (f)
        nccl_root_abort(f->nccl, err);
#endif
}

const char *comm_fabric_describe(const struct comm_fabric *f)
{
    return f->text;
}

struct comm *comm_host(struct comm *comm)
{
    return comm->host ? comm->host : comm;
}

struct comm *comm_on_device(struct comm_fabric *f, struct comm *comm, enum comm_use use, int color, int key,
                            struct error *err)
{
    struct staged_comm *s;

    (void)use, (void)color, (void)key;
#ifdef HAVE_NCCL
    if (f->nccl && use == COMM_COLLECTIVES)
        return comm_nccl_create(f->nccl, comm, 2, color, key, err);
#endif
    if (device_is_host(f->dev) || comm->size == 1)
        return comm;
    s = comm_device_create(sizeof *s, &staged_ops, comm, err);
    if (!s)
        return NULL;
    s->dev = f->dev;
    s->k = device_kernels(f->dev);
    return &s->base;
}

/* comm_self.c - a group of one: every collective is a copy or nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/comm/comm_impl.h"

static struct comm *self_split(struct comm *parent, int color, int key, struct error *err)
{
    (void)parent, (void)color, (void)key;
    return comm_alone_create(err);
}

static void self_destroy(struct comm *comm)
{
    free(comm);
}

static struct comm_request *self_reduce_scatter(struct comm *comm, enum dtype dtype, void *recv, const void *send,
                                                size_t count, size_t stride, void *scratch, struct error *err)
{
    (void)comm, (void)stride, (void)scratch, (void)err;
    if (recv != send)
        memmove(recv, send, count * dtype_size(dtype));
    return &comm_done;
}

static struct comm_request *self_all_gather(struct comm *comm, void *buffer, size_t bytes, struct error *err)
{
    (void)comm, (void)buffer, (void)bytes, (void)err;
    return &comm_done;
}

static struct comm_request *self_broadcast(struct comm *comm, void *buffer, size_t bytes, int root, struct error *err)
{
    (void)root;
    return self_all_gather(comm, buffer, bytes, err);
}

static struct comm_request *self_send(struct comm *comm, const void *buffer, size_t bytes, int peer, struct error *err)
{
    (void)comm, (void)buffer, (void)bytes;
    error_set(err, CODE_INTERNAL, "a group of one rank cannot send to or receive from rank %d", peer);
    return NULL;
}

static struct comm_request *self_recv(struct comm *comm, void *buffer, size_t bytes, int peer, struct error *err)
{
    return self_send(comm, buffer, bytes, peer, err);
}

static int self_wait(struct comm_request *request, struct error *err)
{
    (void)request, (void)err;
    return 0;
}

static const struct comm_ops self_ops = {
    .split = self_split,
    .destroy = self_destroy,
    .start_reduce_scatter = self_reduce_scatter,
    .start_all_gather = self_all_gather,
    .start_broadcast = self_broadcast,
    .start_send = self_send,
    .start_recv = self_recv,
    .wait = self_wait,
    .finish = self_destroy,
};

struct comm *comm_alone_create(struct error *err)
{
    struct comm *comm = calloc(1, sizeof *comm);

    if (!comm) {
        error_set(err, CODE_IO, "out of memory");
        return NULL;
    }
    comm->ops = &self_ops;
    comm->size = 1;
    snprintf(comm->text, sizeof comm->text, "one process");
    return comm;
}

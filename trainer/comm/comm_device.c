#include "trainer/comm/comm_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int comm_device_init(struct comm *comm, const struct comm_ops *ops, struct comm *host, struct error *err)
{
    size_t bytes = (size_t)host->size * sizeof *host->members;
    int *members = host->members ? malloc(bytes) : NULL;

    if (host->members && !members)
        return error_set(err, CODE_IO, "out of memory for a group of %d ranks", host->size);
    if (members)
        memcpy(members, host->members, bytes);
    comm->ops = ops;
    comm->host = host;
    comm->rank = host->rank;
    comm->size = host->size;
    comm->members = members;
    memcpy(comm->text, host->text, sizeof comm->text);
    memcpy(comm->label, host->label, sizeof comm->label);
    return 0;
}

struct comm *comm_device_split(struct comm *comm, int color, int key, struct error *err)
{
    return comm->host->ops->split(comm->host, color, key, err);
}

struct comm_request *comm_device_broadcast(struct comm *comm, void *buffer, size_t bytes, int root, struct error *err)
{
    return comm->host->ops->start_broadcast(comm->host, buffer, bytes, root, err);
}

struct comm *comm_host(struct comm *comm)
{
    return comm->host ? comm->host : comm;
}

struct comm *comm_on_device(struct comm *comm, struct device *dev, struct error *err)
{
    if (device_is_host(dev) || comm->size == 1 || comm->host)
        return comm;
    return comm_staged_create(comm, dev, err);
}

#include "trainer/comm/comm_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#ifdef HAVE_NCCL
#include "trainer/comm/comm_nccl.h"
#endif

struct comm_fabric {
    struct comm *world;
    struct device *dev;
    struct nccl_root *nccl; /* NULL: by way of the host */
    char text[160];
};

/* ---- what communicators for a device share ---- */

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

/* ---- the fabric ---- */

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
    unsigned char *names = calloc(ranks, GPU_NAME);
    int result = names ? device_gpu_name(f->dev, names + (size_t)f->world->rank * GPU_NAME, err)
                       : error_set(err, CODE_IO, "out of memory for the names of %zu GPUs", ranks);

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
    struct comm_fabric *f = calloc(1, sizeof *f);

    if (!f) {
        error_set(err, CODE_IO, "out of memory");
        return NULL;
    }
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
    (void)err;
#ifdef HAVE_NCCL
    if (f)
        comm_nccl_root_abandon(f->nccl, err);
#else
    (void)f;
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
    (void)use, (void)color, (void)key;
#ifdef HAVE_NCCL
    if (f->nccl && use == COMM_COLLECTIVES)
        return comm_nccl_create(f->nccl, comm, 2, color, key, err);
#endif
    if (device_is_host(f->dev) || comm->size == 1)
        return comm;
    return comm_staged_create(comm, f->dev, err);
}

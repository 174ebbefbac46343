/*
 * programs.c - what makes a program of tests/discrete differ from the product's. -Wl,--wrap redirects the calls of
 * choose_device and comm_on_device.
 *
 * With MUSTER_TEST_COLLECTIVES=late in the environment, a collective that is started only overwrites its result with
 * zeros, and runs in comm_wait: as late as NCCL may run it, after everything that was enqueued in between. A caller
 * that uses the operation's buffers before the wait then computes different numbers.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/discrete/discrete.h"
#include "plan/rank_config.h"
#include "trainer/choose.h"
#include "trainer/comm/comm_impl.h"

struct comm *__real_comm_on_device(struct comm_fabric *fabric, struct comm *comm, enum comm_use use, int color, int key,
                                   struct error *err);
struct comm *__wrap_comm_on_device(struct comm_fabric *fabric, struct comm *comm, enum comm_use use, int color, int key,
                                   struct error *err);

struct device *__wrap_choose_device(enum device_choice choice, struct error *err);

static struct device *device; /* the one that the program created last */

struct device *__wrap_choose_device(enum device_choice choice, struct error *err)
{
    (void)choice;
    device = device_open(&backend_discrete, 0, 0, err);
    return device;
}

/* ---- late collectives -------------------------------------------------------------------------------------------- */

struct late {
    struct comm base;
    struct comm *inner; /* the communicator of the product */
};

struct late_request {
    struct comm_request base;
    struct comm_request *inner; /* NULL: a collective that has not begun */
    enum dtype dtype;
    void *to;
    const void *send; /* NULL: an all-gather */
    size_t count, stride;
};

static struct comm *late_inner(struct comm *comm)
{
    return ((struct late *)comm)->inner;
}

static struct late_request *request_create(struct comm *comm, void *to, size_t count)
{
    struct late_request *request = calloc(1, sizeof *request);

    if (!request)
        abort();
    request->base.comm = comm;
    request->to = to;
    request->count = count;
    return request;
}

static struct comm_request *late_reduce_scatter(struct comm *comm, enum dtype dtype, void *recv, const void *send,
                                                size_t count, size_t stride, void *scratch, struct error *err)
{
    struct late_request *request = request_create(comm, recv, count);
    size_t element = dtype_size(dtype);

    (void)scratch, (void)err;
    request->dtype = dtype;
    request->send = send;
    request->stride = stride;
    if (recv != (const char *)send + (size_t)comm->rank * stride * element)
        device_kernels(device)->zero(device, recv, count * element);
    return &request->base;
}

static struct comm_request *late_all_gather(struct comm *comm, void *buffer, size_t bytes, struct error *err)
{
    size_t all = bytes * (size_t)comm->size, own = bytes * (size_t)comm->rank;

    (void)err;
    device_kernels(device)->zero(device, buffer, own);
    device_kernels(device)->zero(device, (char *)buffer + own + bytes, all - own - bytes);
    return &request_create(comm, buffer, bytes)->base;
}

static struct comm_request *late_begun(struct comm *comm, struct comm_request *inner)
{
    struct late_request *request;

    if (!inner)
        return NULL;
    request = request_create(comm, NULL, 0);
    request->inner = inner;
    return &request->base;
}

static struct comm_request *late_message(struct comm *comm, bool sending, void *buffer, size_t bytes, int peer,
                                         struct error *err)
{
    struct comm *inner = late_inner(comm);

    return late_begun(comm, inner->ops->start_message(inner, sending, buffer, bytes, peer, err));
}

static int late_all_reduce(struct comm *comm, enum dtype dtype, void *buffer, size_t count, void *scratch,
                           struct error *err)
{
    return comm_all_reduce(late_inner(comm), dtype, buffer, count, scratch, err);
}

static int late_wait(struct comm_request *base, struct error *err)
{
    struct late_request *r = (struct late_request *)base;
    struct comm *inner = late_inner(base->comm);
    int result;

    if (!r->inner && r->send)
        r->inner = inner->ops->start_reduce_scatter(inner, r->dtype, r->to, r->send, r->count, r->stride, NULL, err);
    else if (!r->inner)
        r->inner = inner->ops->start_all_gather(inner, r->to, r->count, err);
    if (!r->inner)
        return -1;
    result = r->inner->comm->ops->wait(r->inner, err);
    free(r);
    return result;
}

static void late_destroy(struct comm *comm)
{
    comm_destroy(late_inner(comm)); /* and its host communicator with it */
    free(comm);
}

static const struct comm_ops late_ops = {
    .destroy = late_destroy,
    .start_reduce_scatter = late_reduce_scatter,
    .start_all_gather = late_all_gather,
    .start_message = late_message,
    .all_reduce = late_all_reduce,
    .wait = late_wait,
};

struct comm *__wrap_comm_on_device(struct comm_fabric *fabric, struct comm *comm, enum comm_use use, int color, int key,
                                   struct error *err)
{
    struct comm *inner = __real_comm_on_device(fabric, comm, use, color, key, err);
    const char *when = getenv("MUSTER_TEST_COLLECTIVES");
    struct late *late;

    if (!inner || inner == comm || !when || strcmp(when, "late") != 0)
        return inner;
    late = comm_device_create(sizeof *late, &late_ops, inner->host, err);
    if (!late)
        abort();
    late->inner = inner;
    return &late->base;
}

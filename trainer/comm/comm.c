#include "trainer/comm/comm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "trainer/comm/comm_impl.h"

struct comm_request comm_done;

/* ---- a group of one: every collective is a copy or nothing ------------------------------------------------------- */

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

/* ---- the world --------------------------------------------------------------------------------------------------- */

static int env_number(const char *name)
{
    const char *value = getenv(name);

    return value ? atoi(value) : 0;
}

struct comm *comm_world_create(struct error *err)
{
    int pmi_size = env_number("PMI_SIZE");
    bool slurm_step = getenv("SLURM_STEP_ID") && getenv("SLURM_PROCID");

    if (slurm_step && env_number("SLURM_STEP_NUM_TASKS") > 1 && !getenv("PMI_FD") && pmi_size == 0) {
        error_set(err, CODE_USAGE,
                  "Slurm started %d tasks without PMI2, so they cannot find each other: use srun --mpi=pmi2",
                  env_number("SLURM_STEP_NUM_TASKS"));
        return NULL;
    }
    if (pmi_size <= 1 && env_number("SLURM_STEP_NUM_TASKS") <= 1)
        return comm_alone_create(err);
#ifdef HAVE_MPI
    return comm_mpi_create(err);
#else
    error_set(err, CODE_USAGE, "several ranks were started, but muster was built without MPI: configure --with-mpi");
    return NULL;
#endif
}

void comm_world_finish(struct comm *world)
{
    if (world)
        world->ops->finish(world);
}

bool comm_world_fail(struct comm *world, struct error *err)
{
    return !world->ops->fail || world->ops->fail(world, err);
}

static int reduce_sum(struct comm *comm, enum record_kind kind, double *values, size_t count, struct error *err);
static int reduce_maximum(struct comm *comm, enum record_kind kind, double *values, size_t count, struct error *err);

int comm_agree(struct comm *comm, int result, struct error *err)
{
    double culprit = result < 0 ? comm->size - comm->rank : 0; /* the maximum is that of the lowest rank */
    struct error shared = {0};
    int lowest;

    if (reduce_maximum(comm, RECORD_AGREEMENT, &culprit, 1, &shared) < 0) {
        *err = shared;
        return -1;
    }
    if (culprit == 0)
        return 0;
    lowest = comm->size - (int)culprit;
    if (comm->rank == lowest)
        shared = *err;
    if (comm_broadcast(comm, &shared, sizeof shared, lowest, err) == 0)
        *err = shared;
    return -1;
}

/* ---- groups ---- */

/* Gathers every member's rank in the world, in the group's order. */
static int learn_members(struct comm *comm, int rank_in_world, struct error *err)
{
    struct comm_request *request;

    comm->members = calloc((size_t)comm->size, sizeof *comm->members);
    if (!comm->members)
        return error_set(err, CODE_IO, "out of memory for a group of %d ranks", comm->size);
    comm->members[comm->rank] = rank_in_world;
    request = comm->ops->start_all_gather(comm, comm->members, sizeof *comm->members, err);
    return request ? comm_wait(request, err) : -1;
}

struct comm *comm_split(struct comm *parent, int color, int key, struct error *err)
{
    struct record_op op = comm_enter(parent, RECORD_SPLIT, -1);
    struct comm *comm;

    recorder_wait(&op);
    comm = parent->ops->split(parent, color, key, err);
    recorder_leave(&op);
    if (comm && comm->size > 1 && learn_members(comm, comm_world_rank(parent, parent->rank), err) < 0)
        return NULL; /* not destroyed: see wait_started */
    return comm;
}

void comm_destroy(struct comm *comm)
{
    if (!comm)
        return;
    recorder_remove_comm(&comm->recorded);
    free(comm->members);
    comm->ops->destroy(comm);
}

int comm_rank(const struct comm *comm)
{
    return comm->rank;
}

int comm_size(const struct comm *comm)
{
    return comm->size;
}

const char *comm_describe(const struct comm *comm)
{
    return comm->text;
}

/* ---- operations ---- */

struct comm_request *comm_start_reduce_scatter(struct comm *comm, enum dtype dtype, void *recv, const void *send,
                                               size_t count, size_t stride, void *scratch, struct error *err)
{
    struct record_op op = comm_enter(comm, RECORD_REDUCE_SCATTER, -1);

    return comm_entered(comm->ops->start_reduce_scatter(comm, dtype, recv, send, count, stride, scratch, err), &op);
}

struct comm_request *comm_start_all_gather(struct comm *comm, enum dtype dtype, void *buffer, size_t count,
                                           struct error *err)
{
    struct record_op op = comm_enter(comm, RECORD_ALL_GATHER, -1);

    return comm_entered(comm->ops->start_all_gather(comm, buffer, count * dtype_size(dtype), err), &op);
}

struct comm_request *comm_start_send(struct comm *comm, const void *buffer, size_t bytes, int peer, struct error *err)
{
    struct record_op op = comm_enter(comm, RECORD_SEND, peer);

    return comm_entered(comm->ops->start_send(comm, buffer, bytes, peer, err), &op);
}

struct comm_request *comm_start_recv(struct comm *comm, void *buffer, size_t bytes, int peer, struct error *err)
{
    struct record_op op = comm_enter(comm, RECORD_RECEIVE, peer);

    return comm_entered(comm->ops->start_recv(comm, buffer, bytes, peer, err), &op);
}

/* An all-gather of host memory, also when comm is for device memory. */
static struct comm_request *start_host_gather(struct comm *comm, enum record_kind kind, void *buffer, size_t bytes,
                                              struct error *err)
{
    struct comm *host = comm_host(comm);
    struct record_op op = comm_enter(comm, kind, -1);

    return comm_entered(host->ops->start_all_gather(host, buffer, bytes, err), &op);
}

int comm_wait(struct comm_request *request, struct error *err)
{
    struct record_op op;
    int result;

    if (!request || request == &comm_done)
        return 0;
    op = request->op;
    recorder_wait(&op);
    /* A peer that was interrupted too may have exited, and a library that notices may abort. */
    result = comm_interrupted(err) ? -1 : request->comm->ops->wait(request, err);
    if (result < 0 && err && err->code == CODE_PEER)
        comm_explain(err); /* while the record still shows the operation that this rank waits in */
    recorder_leave(&op);
    return result;
}

/*
 * A start that failed returned NULL and filled err. After a wait that failed the operation is still pending, and the
 * library may move its data in any later call. So the buffers of such an operation are never freed, and are never on a
 * caller's stack.
 */
static int wait_started(struct comm_request *request, struct error *err)
{
    return request ? comm_wait(request, err) : -1;
}

int comm_all_reduce_on_host(struct comm *comm, enum dtype dtype, void *buffer, size_t count, void *scratch,
                            struct error *err)
{
    size_t bytes = count * dtype_size(dtype);
    char *all = scratch ? scratch : malloc((size_t)comm->size * bytes + 1);
    const void **parts = malloc((size_t)comm->size * sizeof *parts);
    int result = -1;

    if (!all || !parts) {
        error_set(err, CODE_IO, "out of memory summing %zu bytes of %d ranks", bytes, comm->size);
        goto out;
    }
    for (int rank = 0; rank < comm->size; rank++)
        parts[rank] = all + (size_t)rank * bytes;
    memcpy(all + (size_t)comm->rank * bytes, buffer, bytes);
    result = comm->size == 1 ? 0 : wait_started(start_host_gather(comm, RECORD_ALL_REDUCE, all, bytes, err), err);
    if (result == 0)
        comm_tree_sum(dtype, buffer, parts, comm->size, count);
out:
    free(parts);
    if (!scratch && result == 0)
        free(all);
    return result;
}

int comm_all_reduce(struct comm *comm, enum dtype dtype, void *buffer, size_t count, void *scratch, struct error *err)
{
    if (comm->ops->all_reduce)
        return comm->ops->all_reduce(comm, dtype, buffer, count, scratch, err);
    return comm_all_reduce_on_host(comm, dtype, buffer, count, scratch, err);
}

int comm_all_gather(struct comm *comm, enum dtype dtype, void *buffer, size_t count, struct error *err)
{
    return wait_started(comm_start_all_gather(comm, dtype, buffer, count, err), err);
}

int comm_broadcast(struct comm *comm, void *buffer, size_t bytes, int root, struct error *err)
{
    struct record_op op;
    char *copy;
    int result;

    if (comm->size == 1)
        return 0;
    copy = malloc(bytes + 1);
    if (!copy)
        return error_set(err, CODE_IO, "out of memory for a broadcast of %zu bytes", bytes);
    memcpy(copy, buffer, bytes);
    op = comm_enter(comm, RECORD_BROADCAST, -1);
    result = wait_started(comm_entered(comm->ops->start_broadcast(comm, copy, bytes, root, err), &op), err);
    if (result == 0) {
        memcpy(buffer, copy, bytes);
        free(copy);
    }
    return result;
}

int comm_barrier(struct comm *comm, struct error *err)
{
    double nothing = 0;

    return reduce_sum(comm, RECORD_BARRIER, &nothing, 1, err);
}

/* Returns every rank's values in rank order; the caller frees them. */
static double *gather_f64(struct comm *comm, enum record_kind kind, const double *values, size_t count,
                          struct error *err)
{
    double *all = malloc((size_t)comm->size * count * sizeof *all);

    if (!all) {
        error_set(err, CODE_IO, "out of memory gathering %zu numbers from %d ranks", count, comm->size);
        return NULL;
    }
    memcpy(all + (size_t)comm->rank * count, values, count * sizeof *all);
    return wait_started(start_host_gather(comm, kind, all, count * sizeof *all, err), err) < 0 ? NULL : all;
}

static int reduce_sum(struct comm *comm, enum record_kind kind, double *values, size_t count, struct error *err)
{
    double *all = gather_f64(comm, kind, values, count, err);

    if (!all)
        return -1;
    for (size_t i = 0; i < count; i++)
        values[i] = comm_tree_sum_f64(all + i, comm->size, count);
    free(all);
    return 0;
}

static int reduce_maximum(struct comm *comm, enum record_kind kind, double *values, size_t count, struct error *err)
{
    double *all = gather_f64(comm, kind, values, count, err);

    if (!all)
        return -1;
    for (size_t i = 0; i < count; i++)
        for (int rank = 0; rank < comm->size; rank++) {
            double value = all[(size_t)rank * count + i];

            if (isnan(value) || value > values[i])
                values[i] = value;
        }
    free(all);
    return 0;
}

int comm_sum_f64(struct comm *comm, double *values, size_t count, struct error *err)
{
    return reduce_sum(comm, RECORD_SUM, values, count, err);
}

int comm_max_f64(struct comm *comm, double *values, size_t count, struct error *err)
{
    return reduce_maximum(comm, RECORD_MAXIMUM, values, count, err);
}

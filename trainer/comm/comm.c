#include "config.h"

#include "trainer/comm/comm.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/mesh.h"
#include "trainer/comm/comm_impl.h"

struct comm_request comm_done;

/* ---- a group of one: every collective is a copy or nothing ------------------------------------------------------- */

static void destroy_alone(struct comm *comm)
{
    free(comm);
}

static const struct comm_ops alone_ops = {.destroy = destroy_alone};

static bool is_alone(const struct comm *comm)
{
    return comm->ops == &alone_ops;
}

struct comm *comm_alone_create(struct error *err)
{
    struct comm *comm = error_calloc(1, sizeof *comm, err);

    if (!comm)
        return NULL;
    comm->ops = &alone_ops;
    comm->size = 1;
    snprintf(comm->text, sizeof comm->text, "one process");
    return comm;
}

/* ---- the world --------------------------------------------------------------------------------------------------- */

int comm_read_rank_map(int size, int *map, struct error *err)
{
    const char *text = getenv("MUSTER_RANK_MAP");
    struct error why;

    if (!text || !text[0])
        return 0;
    if (rank_map_parse(text, size, map, &why) < 0)
        return error_set(err, CODE_USAGE, "MUSTER_RANK_MAP: %s; unset it, or let srun --muster set it", why.text);
    return 1;
}

struct comm *comm_world_create(struct error *err)
{
    struct launch launch = launch_read();
    int alone;

    if (launch.size == 1)
        return comm_read_rank_map(1, &alone, err) < 0 ? NULL : comm_alone_create(err);
#ifdef HAVE_MPI
    return comm_mpi_create(&launch, err);
#else
    error_set(err, CODE_USAGE, "%s started several ranks, but muster was built without MPI: configure --with-mpi",
              launch.launcher);
    return NULL;
#endif
}

#ifndef HAVE_MPI
const char *comm_launch_type(void)
{
    return "none";
}
#endif

bool comm_world_fail(struct comm *world, struct error *err)
{
    return !world->ops->fail || world->ops->fail(world, err);
}

/* ---- records for the flight recorder ----------------------------------------------------------------------------- */

static const int *members_of(const struct comm *comm)
{
    return comm->host ? comm->host->members : comm->members;
}

int comm_world_rank(const struct comm *comm, int rank)
{
    return members_of(comm) ? members_of(comm)[rank] : rank;
}

static void add_to_recorder(struct comm *comm)
{
    int *members = malloc((size_t)comm->size * sizeof *members);

    if (!members)
        return;
    for (int rank = 0; rank < comm->size; rank++)
        members[rank] = comm_world_rank(comm, rank);
    recorder_add_comm(&comm->recorded,
                      comm->label[0]     ? comm->label
                      : members_of(comm) ? "group"
                                         : "world",
                      members, comm->size);
    free(members);
}

struct record_op comm_record_enter(struct comm *comm, enum record_kind kind, int peer)
{
    struct record_op op = {0};

    if (comm->size > 1) {
        if (recorder_must_add_comm(comm->recorded))
            add_to_recorder(comm);
        recorder_enter(&op, comm->recorded, kind, peer < 0 ? -1 : comm_world_rank(comm, peer), comm->purpose_unit,
                       comm->purpose_data);
    }
    comm->purpose_unit = comm->purpose_data = NULL;
    return op;
}

struct comm_request *comm_record_started(struct comm_request *request, const struct record_op *op)
{
    if (request && request != &comm_done)
        request->op = *op;
    else
        recorder_leave(op);
    return request;
}

void comm_label(struct comm *comm, const char *label)
{
    snprintf(comm->label, sizeof comm->label, "%s", label);
    recorder_remove_comm(&comm->recorded);
}

void comm_purpose(struct comm *comm, const char *unit, const char *data)
{
    comm->purpose_unit = unit;
    comm->purpose_data = data;
}

/* ---- groups ---- */

/*
 * A start that failed returned NULL and filled err. After a wait that failed the operation is still pending, and the
 * library may move its data in any later call. So the buffers of such an operation are never freed, and are never on a
 * caller's stack.
 */
static int wait_started(struct comm_request *request, struct error *err)
{
    return request ? comm_wait(request, err) : -1;
}

/* Gathers every member's rank in the world, in the group's order. */
static int learn_members(struct comm *comm, int rank_in_world, struct error *err)
{
    comm->members = error_calloc((size_t)comm->size, sizeof *comm->members, err);
    if (!comm->members)
        return -1;
    comm->members[comm->rank] = rank_in_world;
    return wait_started(comm->ops->start_all_gather(comm, comm->members, sizeof *comm->members, err), err);
}

struct comm *comm_split(struct comm *parent, int color, int key, struct error *err)
{
    struct record_op op = comm_record_enter(parent, RECORD_SPLIT, -1);
    struct comm *host = comm_host(parent), *comm;

    recorder_wait_begin(&op);
    comm = is_alone(host) ? comm_alone_create(err) : host->ops->split(host, color, key, err);
    recorder_leave(&op);
    if (comm && comm->size > 1 && learn_members(comm, comm_world_rank(parent, parent->rank), err) < 0)
        return NULL; /* not destroyed: see wait_started */
    return comm;
}

void comm_destroy(struct comm *comm)
{
    if (!comm)
        return;
    if (members_of(comm)) /* the world's record stays: a hang may yet be judged by it */
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

/* ---- an interrupted run ------------------------------------------------------------------------------------------ */

static struct error interruption;
static atomic_int interrupting; /* 1: being written, 2: complete */

void comm_interrupt(const struct error *err)
{
    int none = 0;

    if (!atomic_compare_exchange_strong(&interrupting, &none, 1))
        return;
    interruption = *err;
    atomic_store_explicit(&interrupting, 2, memory_order_release);
}

bool comm_interrupted(struct error *err)
{
    if (atomic_load_explicit(&interrupting, memory_order_acquire) != 2)
        return false;
    *err = interruption;
    return true;
}

static double cause_seconds;

void comm_await_cause(double seconds)
{
    cause_seconds = seconds;
}

/* While the record still shows the operation that this rank waits in. */
static void await_cause(struct error *err)
{
    double deadline = clock_monotonic() + cause_seconds;

    if (cause_seconds > 0)
        recorder_alarm();
    while (!comm_interrupted(err) && clock_monotonic() < deadline)
        clock_sleep(0.02);
}

/* ---- operations ---- */

struct comm_request *comm_start_reduce_scatter(struct comm *comm, enum dtype dtype, void *recv, const void *send,
                                               size_t count, size_t stride, void *scratch, struct error *err)
{
    struct record_op op = comm_record_enter(comm, RECORD_REDUCE_SCATTER, -1);

    if (!is_alone(comm))
        return comm_record_started(
            comm->ops->start_reduce_scatter(comm, dtype, recv, send, count, stride, scratch, err), &op);
    if (recv != send)
        memmove(recv, send, count * dtype_size(dtype));
    return &comm_done;
}

/* In the memory that comm is for, or in host memory. */
static struct comm_request *start_gather(struct comm *comm, bool on_host, enum record_kind kind, void *buffer,
                                         size_t bytes, struct error *err)
{
    struct comm *used = on_host ? comm_host(comm) : comm;
    struct record_op op = comm_record_enter(comm, kind, -1);

    return is_alone(used) ? &comm_done
                          : comm_record_started(used->ops->start_all_gather(used, buffer, bytes, err), &op);
}

struct comm_request *comm_start_all_gather(struct comm *comm, enum dtype dtype, void *buffer, size_t count,
                                           struct error *err)
{
    return start_gather(comm, false, RECORD_ALL_GATHER, buffer, count * dtype_size(dtype), err);
}

static struct comm_request *start_message(struct comm *comm, bool sending, void *buffer, size_t bytes, int peer,
                                          struct error *err)
{
    struct record_op op;

    if (!comm->ops->start_message) {
        error_set(err, CODE_INTERNAL, "no message %s rank %d: the group (%s) is for collectives only",
                  sending ? "to" : "from", peer, comm->text);
        return NULL;
    }
    op = comm_record_enter(comm, sending ? RECORD_SEND : RECORD_RECEIVE, peer);
    return comm_record_started(comm->ops->start_message(comm, sending, buffer, bytes, peer, err), &op);
}

struct comm_request *comm_start_send(struct comm *comm, const void *buffer, size_t bytes, int peer, struct error *err)
{
    return start_message(comm, true, (void *)buffer, bytes, peer, err);
}

struct comm_request *comm_start_recv(struct comm *comm, void *buffer, size_t bytes, int peer, struct error *err)
{
    return start_message(comm, false, buffer, bytes, peer, err);
}

int comm_wait(struct comm_request *request, struct error *err)
{
    struct record_op op;
    int result;

    if (!request || request == &comm_done)
        return 0;
    op = request->op;
    recorder_wait_begin(&op);
    /* After comm_interrupt the library is not called: a peer may have exited, and a library that notices may abort. */
    result = comm_interrupted(err) ? -1 : request->comm->ops->wait(request, err);
    if (result < 0 && err && err->code == CODE_PEER)
        await_cause(err);
    recorder_leave(&op);
    return result;
}

int comm_all_reduce_on_host(struct comm *comm, enum dtype dtype, void *buffer, size_t count, void *scratch,
                            struct error *err)
{
    size_t bytes = count * dtype_size(dtype);
    char *all = scratch ? scratch : error_calloc((size_t)comm->size, bytes, err);
    const void **parts = error_calloc((size_t)comm->size, sizeof *parts, err);
    int result = -1;

    if (!all || !parts)
        goto out;
    for (int rank = 0; rank < comm->size; rank++)
        parts[rank] = all + (size_t)rank * bytes;
    memcpy(all + (size_t)comm->rank * bytes, buffer, bytes);
    result = wait_started(start_gather(comm, true, RECORD_ALL_REDUCE, all, bytes, err), err);
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
    struct comm *host = comm_host(comm);
    struct record_op op;
    char *copy;
    int result;

    if (is_alone(host))
        return 0;
    copy = error_calloc(bytes, 1, err);
    if (!copy)
        return -1;
    memcpy(copy, buffer, bytes);
    op = comm_record_enter(comm, RECORD_BROADCAST, -1);
    result = wait_started(comm_record_started(host->ops->start_broadcast(host, copy, bytes, root, err), &op), err);
    if (result == 0) {
        memcpy(buffer, copy, bytes);
        free(copy);
    }
    return result;
}

/* ---- scalars ---- */

/* Replaces each value by `combine` of all ranks' values, which are `stride` apart. */
static int reduce_f64(struct comm *comm, enum record_kind kind,
                      double (*combine)(const double *values, int ranks, size_t stride), double *values, size_t count,
                      struct error *err)
{
    double *all = error_calloc((size_t)comm->size * count, sizeof *all, err);

    if (!all)
        return -1;
    memcpy(all + (size_t)comm->rank * count, values, count * sizeof *all);
    if (wait_started(start_gather(comm, true, kind, all, count * sizeof *all, err), err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        values[i] = combine(all + i, comm->size, count);
    free(all);
    return 0;
}

static double find_greatest(const double *values, int ranks, size_t stride)
{
    double greatest = values[0];

    for (int rank = 1; rank < ranks; rank++) {
        double value = values[(size_t)rank * stride];

        if (isnan(value) || value > greatest)
            greatest = value;
    }
    return greatest;
}

int comm_sum_f64(struct comm *comm, double *values, size_t count, struct error *err)
{
    return reduce_f64(comm, RECORD_SUM, comm_tree_sum_f64, values, count, err);
}

int comm_max_f64(struct comm *comm, double *values, size_t count, struct error *err)
{
    return reduce_f64(comm, RECORD_MAXIMUM, find_greatest, values, count, err);
}

int comm_barrier(struct comm *comm, struct error *err)
{
    double nothing = 0;

    return reduce_f64(comm, RECORD_BARRIER, comm_tree_sum_f64, &nothing, 1, err);
}

int comm_agree(struct comm *comm, int result, struct error *err)
{
    double culprit = result < 0 ? comm->size - comm->rank : 0; /* the maximum is that of the lowest rank */
    struct error shared = {0};
    int lowest;

    if (reduce_f64(comm, RECORD_AGREEMENT, find_greatest, &culprit, 1, &shared) < 0) {
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

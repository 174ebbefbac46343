#include "trainer/comm/comm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "trainer/comm/comm_impl.h"

struct comm_request comm_done;

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

static int sum(struct comm *comm, enum record_kind kind, double *values, size_t count, struct error *err);
static int maximum(struct comm *comm, enum record_kind kind, double *values, size_t count, struct error *err);

int comm_agree(struct comm *comm, int result, struct error *err)
{
    double culprit = result < 0 ? comm->size - comm->rank : 0; /* the greatest is the lowest rank */
    struct error shared = {0};
    int lowest;

    if (maximum(comm, RECORD_AGREEMENT, &culprit, 1, &shared) < 0) {
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

/* Every member's rank in the world, in the group's order. */
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
        return NULL; /* and is not destroyed: see wait_started */
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

/* The same of host memory, whatever comm is for. */
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
    /* A peer that was interrupted too may be gone, and a library that finds out may abort. */
    result = comm_interrupted(err) ? -1 : request->comm->ops->wait(request, err);
    if (result < 0 && err && err->code == CODE_PEER)
        comm_explain(err); /* while the record still says what this rank was waiting in */
    recorder_leave(&op);
    return result;
}

/*
 * A start that failed gave NULL and has filled err. After a wait that failed the operation is still under way, and the
 * library may move its data whenever it is called again, to tell the others for one thing: whatever such an operation
 * reads or writes is never freed, and is no caller's stack.
 */
static int wait_started(struct comm_request *request, struct error *err)
{
    return request ? comm_wait(request, err) : -1;
}

int comm_reduce_scatter(struct comm *comm, enum dtype dtype, void *recv, const void *send, size_t count,
                        struct error *err)
{
    return wait_started(comm_start_reduce_scatter(comm, dtype, recv, send, count, count, NULL, err), err);
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

    return sum(comm, RECORD_BARRIER, &nothing, 1, err);
}

/* Every rank's values in rank order; the caller frees. */
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

static int sum(struct comm *comm, enum record_kind kind, double *values, size_t count, struct error *err)
{
    double *all = gather_f64(comm, kind, values, count, err);

    if (!all)
        return -1;
    for (size_t i = 0; i < count; i++)
        values[i] = comm_tree_sum_f64(all + i, comm->size, count);
    free(all);
    return 0;
}

static int maximum(struct comm *comm, enum record_kind kind, double *values, size_t count, struct error *err)
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
    return sum(comm, RECORD_SUM, values, count, err);
}

int comm_max_f64(struct comm *comm, double *values, size_t count, struct error *err)
{
    return maximum(comm, RECORD_MAXIMUM, values, count, err);
}

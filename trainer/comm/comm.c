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

bool comm_world_fail(struct comm *world, const struct error *err)
{
    return !world->ops->fail || world->ops->fail(world, err);
}

int comm_agree(struct comm *comm, int result, struct error *err)
{
    double culprit = result < 0 ? comm->size - comm->rank : 0; /* the greatest is the lowest rank */
    struct error shared = {0};
    int lowest;

    if (comm_max_f64(comm, &culprit, 1, &shared) < 0) {
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

struct comm *comm_split(struct comm *parent, int color, int key, struct error *err)
{
    return parent->ops->split(parent, color, key, err);
}

void comm_destroy(struct comm *comm)
{
    if (comm)
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

struct comm_request *comm_start_reduce_scatter(struct comm *comm, enum dtype dtype, void *recv, const void *send,
                                               size_t count, size_t stride, void *scratch, struct error *err)
{
    return comm->ops->start_reduce_scatter(comm, dtype, recv, send, count, stride, scratch, err);
}

size_t comm_scratch_bytes(const struct comm *comm, enum dtype dtype, size_t count)
{
    return comm->size > 1 ? (size_t)comm->size * count * dtype_size(dtype) : 0;
}

struct comm_request *comm_start_all_gather(struct comm *comm, enum dtype dtype, void *buffer, size_t count,
                                           struct error *err)
{
    return comm->ops->start_all_gather(comm, buffer, count * dtype_size(dtype), err);
}

struct comm_request *comm_start_send(struct comm *comm, const void *buffer, size_t bytes, int peer, struct error *err)
{
    return comm->ops->start_send(comm, buffer, bytes, peer, err);
}

struct comm_request *comm_start_recv(struct comm *comm, void *buffer, size_t bytes, int peer, struct error *err)
{
    return comm->ops->start_recv(comm, buffer, bytes, peer, err);
}

int comm_wait(struct comm_request *request, struct error *err)
{
    if (!request || request == &comm_done)
        return 0;
    return request->comm->ops->wait(request, err);
}

/* A start that failed gave NULL and has filled err. */
static int wait_started(struct comm_request *request, struct error *err)
{
    return request ? comm_wait(request, err) : -1;
}

int comm_reduce_scatter(struct comm *comm, enum dtype dtype, void *recv, const void *send, size_t count,
                        struct error *err)
{
    return wait_started(comm_start_reduce_scatter(comm, dtype, recv, send, count, count, NULL, err), err);
}

int comm_all_reduce(struct comm *comm, enum dtype dtype, void *buffer, size_t count, void *scratch, struct error *err)
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
    result = comm->size == 1 ? 0 : wait_started(comm->ops->start_all_gather(comm, all, bytes, err), err);
    if (result == 0)
        comm_tree_sum(dtype, buffer, parts, comm->size, count);
out:
    free(parts);
    if (!scratch)
        free(all);
    return result;
}

int comm_all_gather(struct comm *comm, enum dtype dtype, void *buffer, size_t count, struct error *err)
{
    return wait_started(comm_start_all_gather(comm, dtype, buffer, count, err), err);
}

int comm_broadcast(struct comm *comm, void *buffer, size_t bytes, int root, struct error *err)
{
    return wait_started(comm->ops->start_broadcast(comm, buffer, bytes, root, err), err);
}

int comm_barrier(struct comm *comm, struct error *err)
{
    double nothing = 0;

    return comm_sum_f64(comm, &nothing, 1, err);
}

/* Every rank's values in rank order; the caller frees. */
static double *gather_f64(struct comm *comm, const double *values, size_t count, struct error *err)
{
    double *all = malloc((size_t)comm->size * count * sizeof *all);

    if (!all) {
        error_set(err, CODE_IO, "out of memory gathering %zu numbers from %d ranks", count, comm->size);
        return NULL;
    }
    memcpy(all + (size_t)comm->rank * count, values, count * sizeof *all);
    if (wait_started(comm->ops->start_all_gather(comm, all, count * sizeof *all, err), err) < 0) {
        free(all);
        return NULL;
    }
    return all;
}

int comm_sum_f64(struct comm *comm, double *values, size_t count, struct error *err)
{
    double *all = gather_f64(comm, values, count, err);

    if (!all)
        return -1;
    for (size_t i = 0; i < count; i++)
        values[i] = comm_tree_sum_f64(all + i, comm->size, count);
    free(all);
    return 0;
}

int comm_max_f64(struct comm *comm, double *values, size_t count, struct error *err)
{
    double *all = gather_f64(comm, values, count, err);

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

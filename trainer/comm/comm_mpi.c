/*
 * comm_mpi.c - comm.h over MPI, for CPU nodes.
 *
 * A reduce-scatter is a pairwise exchange: every rank sends each peer that peer's part, and adds what it receives in
 * the tree's order. That moves (p-1)/p of the buffer in each direction, as a ring does, in one round instead of p-1,
 * and the order of the sum is ours. Everything is non-blocking underneath; MPI makes progress while someone waits.
 */
#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/crc32c.h"
#include "trainer/comm/comm_mpi.h"

enum {
    TAG_REDUCE = 1,
    TAG_POINT = 2,
    MAX_MESSAGE = 1 << 30, /* MPI counts are int */
};

struct mpi_request {
    struct comm_request base;
    /* what a reduce-scatter does when all parts are in */
    enum dtype dtype;
    void *recv;
    const void *own;
    char *scratch; /* [size - 1][count], in rank order without this rank; NULL for other operations */
    bool scratch_ours;
    size_t count;
    int npending;
    MPI_Request pending[];
};

static struct comm_mpi *as_mpi(struct comm *comm)
{
    return (struct comm_mpi *)comm;
}

static struct mpi_request *request_create(struct comm *comm, int npending, struct error *err)
{
    size_t bytes = sizeof(struct mpi_request) + (size_t)npending * sizeof(MPI_Request);
    struct mpi_request *request = error_calloc(1, bytes, err);

    if (!request)
        return NULL;
    request->base.comm = comm;
    return request;
}

static void request_free(struct mpi_request *request)
{
    if (request->scratch_ours)
        free(request->scratch);
    free(request);
}

/* Parts of the request may be under way: it is left as it is. */
static struct comm_request *request_failed(struct mpi_request *request, const char *what, int code, struct error *err)
{
    comm_mpi_error(err, request->base.comm, what, code);
    return NULL;
}

/* A transfer of any size as messages that MPI can count: the number of messages. */
static int count_messages(size_t bytes)
{
    return bytes ? (int)((bytes + MAX_MESSAGE - 1) / MAX_MESSAGE) : 1;
}

static int post_messages(struct mpi_request *request, bool sending, void *buffer, size_t bytes, int peer, int tag)
{
    MPI_Comm handle = as_mpi(request->base.comm)->handle;
    size_t done = 0;
    int code;

    do {
        size_t length = bytes - done < MAX_MESSAGE ? bytes - done : MAX_MESSAGE;
        MPI_Request *slot = &request->pending[request->npending++];
        char *at = (char *)buffer + done;

        code = sending ? MPI_Isend(at, (int)length, MPI_BYTE, peer, tag, handle, slot)
                       : MPI_Irecv(at, (int)length, MPI_BYTE, peer, tag, handle, slot);
        done += length;
    } while (done < bytes && code == MPI_SUCCESS);
    return code;
}

/* Start with the next rank, so that not all send to rank 0 at once. */
static int exchange_parts(struct mpi_request *request, const char *send, size_t bytes, size_t stride_bytes)
{
    const struct comm *comm = request->base.comm;
    int code = MPI_SUCCESS;

    for (int hop = 1; hop < comm->size && code == MPI_SUCCESS; hop++) {
        int from = (comm->rank - hop + comm->size) % comm->size;
        int slot = from < comm->rank ? from : from - 1;

        code = post_messages(request, false, request->scratch + (size_t)slot * bytes, bytes, from, TAG_REDUCE);
    }
    for (int hop = 1; hop < comm->size && code == MPI_SUCCESS; hop++) {
        int to = (comm->rank + hop) % comm->size;

        code = post_messages(request, true, (char *)send + (size_t)to * stride_bytes, bytes, to, TAG_REDUCE);
    }
    return code;
}

static struct comm_request *mpi_reduce_scatter(struct comm *comm, enum dtype dtype, void *recv, const void *send,
                                               size_t count, size_t stride, void *scratch, struct error *err)
{
    size_t bytes = count * dtype_size(dtype), stride_bytes = stride * dtype_size(dtype);
    struct mpi_request *request = request_create(comm, 2 * (comm->size - 1) * count_messages(bytes) + 1, err);
    int code;

    if (!request)
        return NULL;
    request->dtype = dtype;
    request->recv = recv;
    request->own = (const char *)send + (size_t)comm->rank * stride_bytes;
    request->count = count;
    request->scratch_ours = !scratch;
    request->scratch = scratch ? scratch : error_calloc((size_t)(comm->size - 1), bytes, err);
    if (!request->scratch) {
        request_free(request);
        return NULL;
    }
    code = exchange_parts(request, send, bytes, stride_bytes);
    return code == MPI_SUCCESS ? &request->base : request_failed(request, "reduce-scatter", code, err);
}

static struct comm_request *mpi_all_gather(struct comm *comm, void *buffer, size_t bytes, struct error *err)
{
    struct mpi_request *request = request_create(comm, 1, err);
    MPI_Datatype chunk;
    int code, unit = 4096;

    if (!request)
        return NULL;
    /* A contiguous type of as many bytes as divide them lets an int count what a size_t cannot. */
    while (bytes % (size_t)unit != 0)
        unit /= 2;
    if (bytes / (size_t)unit > INT_MAX) {
        request_free(request);
        error_set(err, CODE_INTERNAL, "comm: an all-gather of %zu bytes a rank is more than MPI can count", bytes);
        return NULL;
    }
    MPI_Type_contiguous(unit, MPI_BYTE, &chunk);
    MPI_Type_commit(&chunk);
    code = MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, buffer, (int)(bytes / (size_t)unit), chunk,
                          as_mpi(comm)->handle, &request->pending[request->npending++]);
    MPI_Type_free(&chunk);
    return code == MPI_SUCCESS ? &request->base : request_failed(request, "all-gather", code, err);
}

static struct comm_request *mpi_broadcast(struct comm *comm, void *buffer, size_t bytes, int root, struct error *err)
{
    struct mpi_request *request;
    int code;

    if (bytes > MAX_MESSAGE) {
        error_set(err, CODE_INTERNAL, "comm: a broadcast of %zu bytes is more than %d", bytes, MAX_MESSAGE);
        return NULL;
    }
    request = request_create(comm, 1, err);
    if (!request)
        return NULL;
    code = MPI_Ibcast(buffer, (int)bytes, MPI_BYTE, root, as_mpi(comm)->handle, &request->pending[request->npending++]);
    return code == MPI_SUCCESS ? &request->base : request_failed(request, "broadcast", code, err);
}

static struct comm_request *mpi_message(struct comm *comm, bool sending, void *buffer, size_t bytes, int peer,
                                        struct error *err)
{
    struct mpi_request *request = request_create(comm, count_messages(bytes), err);
    int code;

    if (!request)
        return NULL;
    code = post_messages(request, sending, buffer, bytes, peer, TAG_POINT);
    return code == MPI_SUCCESS ? &request->base : request_failed(request, sending ? "send" : "receive", code, err);
}

static int add_parts(const struct mpi_request *request, struct error *err)
{
    const struct comm *comm = request->base.comm;
    const void **parts = error_calloc((size_t)comm->size, sizeof *parts, err);
    size_t bytes = request->count * dtype_size(request->dtype);

    if (!parts)
        return -1;
    for (int rank = 0; rank < comm->size; rank++) {
        int slot = rank < comm->rank ? rank : rank - 1;

        parts[rank] = rank == comm->rank ? request->own : request->scratch + (size_t)slot * bytes;
    }
    comm_tree_sum(request->dtype, request->recv, parts, comm->size, request->count);
    free(parts);
    return 0;
}

/* gcc 12 takes MPICH's MPI_STATUSES_IGNORE, which is the address 1, for an array of no elements. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstringop-overflow"
static int test_all(struct mpi_request *request, int *done)
{
    return MPI_Testall(request->npending, request->pending, done, MPI_STATUSES_IGNORE);
}
#pragma GCC diagnostic pop

static int mpi_wait(struct comm_request *base, struct error *err)
{
    struct mpi_request *request = (struct mpi_request *)base;
    int code, done = 0, result = 0;
    unsigned polls = 0;

    for (;;) {
        code = test_all(request, &done);
        if (done || code != MPI_SUCCESS)
            break;
        if (++polls % 16 == 0)
            sched_yield();
        /* The request is not freed: MPI may still write to its buffers until the process ends. */
        if (polls % 256 == 0 && comm_mpi_check_failure(err)) /* a rank has failed, or comm_interrupt was called */
            return -1;
    }
    if (code != MPI_SUCCESS) /* not freed either */
        return comm_mpi_error(err, base->comm, record_kinds[base->op.kind], code);
    if (request->scratch)
        result = add_parts(request, err);
    request_free(request);
    return result;
}

static const struct comm_ops mpi_ops;

/* "MPICH Version: 4.0.2", with blanks for tabs; Open MPI's has its package after a comma. MPI lets this be called
 * before MPI_Init too. */
static const char *library_version(char version[MPI_MAX_LIBRARY_VERSION_STRING])
{
    int length;

    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = '\0';
    for (char *at = version; *at; at++)
        if (*at == '\t')
            *at = ' ';
    return version;
}

static struct comm *wrap_handle(MPI_Comm handle, bool world, struct error *err)
{
    struct comm_mpi *comm = error_calloc(1, sizeof *comm, err);
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";

    if (!comm)
        return NULL;
    comm->base.ops = &mpi_ops;
    comm->handle = handle;
    comm->world = world;
    MPI_Comm_rank(handle, &comm->base.rank);
    MPI_Comm_size(handle, &comm->base.size);
    MPI_Comm_set_errhandler(handle, MPI_ERRORS_RETURN);
    library_version(version);
    snprintf(comm->base.text, sizeof comm->base.text, "%d ranks%s, %.50s", comm->base.size,
             handle != MPI_COMM_WORLD && world ? " in the order of MUSTER_RANK_MAP" : "", version);
    return &comm->base;
}

static struct comm *mpi_split(struct comm *parent, int color, int key, struct error *err)
{
    MPI_Comm handle;
    int code = MPI_Comm_split(as_mpi(parent)->handle, color, key, &handle);

    if (code != MPI_SUCCESS) {
        comm_mpi_error(err, parent, "split", code);
        return NULL;
    }
    return wrap_handle(handle, false, err);
}

static void mpi_destroy(struct comm *comm)
{
    if (as_mpi(comm)->world)
        comm_mpi_end();
    else if (!comm_mpi_failing())
        MPI_Comm_free(&as_mpi(comm)->handle);
    free(comm);
}

static const struct comm_ops mpi_ops = {
    .split = mpi_split,
    .destroy = mpi_destroy,
    .start_reduce_scatter = mpi_reduce_scatter,
    .start_all_gather = mpi_all_gather,
    .start_broadcast = mpi_broadcast,
    .start_message = mpi_message,
    .wait = mpi_wait,
    .fail = comm_mpi_fail,
    .check_failure = comm_mpi_check_failure,
};

/* Whether every rank has the same MUSTER_RANK_MAP. Without this check, only the rank with a different map would fail,
 * and the others would hang. */
static int agree_on_map(const char *text, struct error *err)
{
    long sum = crc32c(0, text, strlen(text)), range[2] = {sum, -sum};
    int code = MPI_Allreduce(MPI_IN_PLACE, range, 2, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);

    if (code != MPI_SUCCESS)
        return error_set(err, CODE_PEER, "MPI did not compare the ranks' MUSTER_RANK_MAP (code %d)", code);
    if (range[0] != -range[1])
        return error_set(err, CODE_USAGE,
                         "MUSTER_RANK_MAP differs between ranks, here it is \"%.100s\"; unset it, or "
                         "let srun --muster set it",
                         text);
    return 0;
}

/*
 * Applies MUSTER_RANK_MAP (common/mesh.h), which srun --muster sets if another order than Slurm's sends less data
 * across the switches. Under srun, the rank in MPI_COMM_WORLD is SLURM_PROCID. From here on, ranks in the trainer are
 * mesh ranks. No other code in the trainer uses Slurm's.
 */
static int order_ranks(MPI_Comm *handle, struct error *err)
{
    const char *text = getenv("MUSTER_RANK_MAP");
    int rank, size, code = MPI_SUCCESS, found, *map;

    if (agree_on_map(text ? text : "", err) < 0)
        return -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    map = error_calloc((size_t)size, sizeof *map, err);
    found = map ? comm_read_rank_map(size, map, err) : -1;
    if (found > 0)
        code = MPI_Comm_split(MPI_COMM_WORLD, 0, map[rank], handle);
    free(map);
    if (code != MPI_SUCCESS)
        return error_set(err, CODE_PEER, "MPI did not order its ranks (code %d)", code);
    return found < 0 ? -1 : 0;
}

const char *comm_launch_type(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";

    return launch_type(library_version(version));
}

/*
 * When a process dies, UCX prints a backtrace in each of its peers. It reads its variables when it is loaded: in
 * MPI_Init, if MPI opens it as a plugin; or before main, if MPI is linked with it. Then it warns of later ones.
 */
static void quiet_ucx(void)
{
    int (*set)(const char *name, const char *value);

    *(void **)&set = dlsym(RTLD_DEFAULT, "ucs_global_opts_set_value");
    if (getenv("UCX_HANDLE_ERRORS"))
        return;
    if (set)
        set("HANDLE_ERRORS", "none");
    else
        setenv("UCX_HANDLE_ERRORS", "none", 0);
}

static int start_mpi(const struct launch *launch, struct error *err)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int provided, size, code;

    if (launch_check(launch, library_version(version), err) < 0)
        return -1;
    quiet_ucx();
    launch_avoid_shm(launch);
    code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (code != MPI_SUCCESS)
        return error_set(err, CODE_USAGE, "MPI did not start (code %d): start with srun --mpi=%s or mpiexec", code,
                         launch_type(version));
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (launch_check_size(launch, version, size, err) == 0)
        return 0;
    MPI_Finalize();
    return -1;
}

struct comm *comm_mpi_create(const struct launch *launch, struct error *err)
{
    MPI_Comm handle = MPI_COMM_WORLD;
    struct comm *world;

    if (start_mpi(launch, err) < 0)
        return NULL;
    if (order_ranks(&handle, err) < 0) {
        MPI_Finalize(); /* agree_on_map has compared the maps: all ranks fail alike */
        return NULL;
    }
    world = wrap_handle(handle, true, err);
    return world && comm_mpi_failure_init(world, err) < 0 ? NULL : world;
}

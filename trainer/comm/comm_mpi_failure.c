/*
 * comm_mpi_failure.c - comm_world_fail over MPI: a rank that fails tells all others. After comm_interrupt it does not:
 * each rank's watchdog has the cause, so nothing is sent or waited for.
 */
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "trainer/comm/comm_mpi.h"

enum {
    TAG_FAILURE = 3,
    FAIL_SECONDS = 10, /* a rank that computes receives a failure only at its next wait */
    ANSWER_MS = 1000,  /* for mpiexec */
};

/* Messages about failures have their own communicator, apart from all other traffic. */
static struct {
    MPI_Comm handle;
    bool known; /* `error` is set: this rank has sent or received it, or comm_interrupt was called */
    struct error error;
    bool answered; /* comm_mpi_fail has waited; `all` is its result */
    bool all;
} failing;

/* Requeuing helps after a lost peer, but not after a bug or without memory. */
static enum exit_code exit_code_of(int code)
{
    int class = MPI_ERR_OTHER;

    MPI_Error_class(code, &class);
    switch (class) {
    case MPI_ERR_NO_MEM:
        return CODE_IO;
    case MPI_ERR_TRUNCATE:
    case MPI_ERR_COUNT:
    case MPI_ERR_ARG:
    case MPI_ERR_BUFFER:
    case MPI_ERR_TYPE:
    case MPI_ERR_RANK:
    case MPI_ERR_COMM:
        return CODE_INTERNAL;
    default:
        return CODE_PEER;
    }
}

int comm_mpi_error(struct error *err, const struct comm *comm, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;

    MPI_Error_string(code, text, &length);
    return error_set(err, exit_code_of(code), "rank %d of %d: %s failed: %s", comm->rank, comm->size, what, text);
}

int comm_mpi_failure_init(struct comm *world, struct error *err)
{
    int code = MPI_Comm_dup(((struct comm_mpi *)world)->handle, &failing.handle);

    if (code != MPI_SUCCESS)
        return comm_mpi_error(err, world, "start", code);
    MPI_Comm_set_errhandler(failing.handle, MPI_ERRORS_RETURN);
    return 0;
}

/* True if the request completes within FAIL_SECONDS. */
static bool wait_briefly(MPI_Request *request)
{
    double deadline = MPI_Wtime() + FAIL_SECONDS;
    int done = 0;

    while (!done && MPI_Wtime() < deadline) {
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return false;
        sched_yield();
    }
    return done;
}

/* True if all ranks reach this barrier in time. */
static bool barrier_passed(void)
{
    MPI_Request request;

    return MPI_Ibarrier(failing.handle, &request) == MPI_SUCCESS && wait_briefly(&request);
}

/*
 * Ends this rank under mpiexec without MPI_Finalize; the caller exits next and calls MPI no more.
 *
 * MPICH's mpiexec (Hydra) takes a process that exits before MPI_Finalize for crashed: it kills the other processes,
 * prints a banner, and exits with 9 or 1 instead of their common exit code (2 of 60 such runs). MPI_Finalize would not
 * return while operations are pending that never end. So this sends mpiexec the message that MPI_Finalize sends:
 * "cmd=finalize" in the wire protocol of PMI-1 (Balaji and others, "PMI: a scalable parallel process-management
 * interface for extreme-scale systems", EuroMPI 2010), on the socket PMI_FD. Waits at most a second for the answer.
 * Other launchers need nothing.
 */
static void tell_mpiexec(void)
{
    static const char last[] = "cmd=finalize\n";
    const char *number = getenv("PMI_FD");
    char answer[64]; /* "cmd=finalize_ack" */
    struct pollfd hydra = {.events = POLLIN};

    if (!number || !getenv("HYDI_CONTROL_FD"))
        return;
    hydra.fd = atoi(number);
    if (send(hydra.fd, last, strlen(last), MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)strlen(last) &&
        poll(&hydra, 1, ANSWER_MS) > 0)
        (void)!recv(hydra.fd, answer, sizeof answer, MSG_DONTWAIT);
}

void comm_mpi_end(void)
{
    struct error interrupted;

    if (!failing.known) {
        MPI_Comm_free(&failing.handle);
        MPI_Finalize();
    } else if (failing.all && !comm_interrupted(&interrupted) && barrier_passed()) {
        tell_mpiexec();
    }
}

bool comm_mpi_failing(void)
{
    return failing.known;
}

bool comm_mpi_check_failure(struct error *err)
{
    MPI_Status status;
    int there = 0;

    if (!failing.known && comm_interrupted(&failing.error))
        failing.known = true;
    if (!failing.known) {
        if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_FAILURE, failing.handle, &there, &status) != MPI_SUCCESS || !there)
            return false;
        if (MPI_Recv(&failing.error, sizeof failing.error, MPI_BYTE, status.MPI_SOURCE, TAG_FAILURE, failing.handle,
                     MPI_STATUS_IGNORE) != MPI_SUCCESS)
            error_set(&failing.error, CODE_PEER, "rank %d failed", status.MPI_SOURCE);
        failing.known = true;
    }
    *err = failing.error;
    return true;
}

/* Sends the error to every other rank, without waiting for any. */
static void tell_all(struct comm *comm, const struct error *err)
{
    MPI_Request request;

    failing.known = true;
    failing.error = *err;
    error_prefix(&failing.error, "rank %d", comm->rank);
    for (int rank = 0; rank < comm->size; rank++)
        if (rank != comm->rank && MPI_Isend(&failing.error, sizeof failing.error, MPI_BYTE, rank, TAG_FAILURE,
                                            failing.handle, &request) == MPI_SUCCESS)
            MPI_Request_free(&request);
}

/* True if all ranks have reached this call. Also true after comm_interrupt, without any exchange: each process is ended
 * by its own watchdog. */
static bool exchange_failure(struct comm *comm, const struct error *err)
{
    MPI_Request request;
    int code = comm->rank == 0 ? (int)err->code : 0; /* the sum is rank 0's */

    if (comm_interrupted(&failing.error)) {
        failing.known = true;
        return true;
    }
    if (!failing.known)
        tell_all(comm, err);
    if (MPI_Iallreduce(MPI_IN_PLACE, &code, 1, MPI_INT, MPI_SUM, failing.handle, &request) != MPI_SUCCESS ||
        !wait_briefly(&request))
        return false;
    failing.error.code = (enum exit_code)code;
    return true;
}

bool comm_mpi_fail(struct comm *comm, struct error *err)
{
    if (!failing.answered)
        failing.all = exchange_failure(comm, err);
    failing.answered = true;
    if (failing.all)
        err->code = failing.error.code;
    return failing.all;
}

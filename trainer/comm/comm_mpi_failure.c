/* comm_mpi_failure.c - one rank's failure becomes everyone's: comm_world_fail over MPI. */
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "trainer/comm/comm_hydra.h"
#include "trainer/comm/comm_mpi.h"

enum {
    TAG_FAILURE = 3,
    FAIL_SECONDS = 10, /* a rank between two waits computes: it hears of a failure after that */
};

/* What a failing rank tells the others goes through a communicator of its own, apart from all other traffic. */
static struct {
    MPI_Comm handle;
    bool known; /* this rank has told, or was told, of `error` */
    struct error error;
    int heard;     /* messages, from ranks that have told all others */
    bool told;     /* this rank has */
    bool answered; /* comm_mpi_fail has waited, and `all` is its answer */
    bool all;
    int sum[3]; /* when all: open requests, ranks that have told, rank 0's exit code */
} failing;

/* Requeuing mends a lost peer, not a bug or an empty memory. */
static enum exit_code code_of(int code)
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
    return error_set(err, code_of(code), "rank %d of %d: %s failed: %s", comm->rank, comm->size, what, text);
}

int comm_mpi_failure_begin(struct comm *world, struct error *err)
{
    int code = MPI_Comm_dup(((struct comm_mpi *)world)->handle, &failing.handle);

    if (code != MPI_SUCCESS)
        return comm_mpi_error(err, world, "start", code);
    MPI_Comm_set_errhandler(failing.handle, MPI_ERRORS_RETURN);
    return 0;
}

static void leave(int signal)
{
    (void)signal;
    _exit(failing.error.code);
}

static int hear(int source, struct error *err)
{
    failing.heard++;
    return MPI_Recv(err, sizeof *err, MPI_BYTE, source, TAG_FAILURE, failing.handle, MPI_STATUS_IGNORE);
}

/* Whether it is done within FAIL_SECONDS. */
static bool wait_a_little(MPI_Request *request)
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

/* Whether all ranks have put away what was theirs, which may take one longer than another. */
static bool all_are_here(void)
{
    MPI_Request request;

    return MPI_Ibarrier(failing.handle, &request) == MPI_SUCCESS && wait_a_little(&request);
}

/* Every message is for a receive: MPI_Finalize may wait for one that is still under way. */
static bool hear_all(void)
{
    struct error heard;

    while (failing.heard < failing.sum[1] - failing.told)
        if (hear(MPI_ANY_SOURCE, &heard) != MPI_SUCCESS)
            return false;
    return true;
}

bool comm_mpi_failure_end(void)
{
    struct error interrupted;

    if (!failing.known) {
        MPI_Comm_free(&failing.handle);
        return true;
    }
    /* A rank may hang: mpiexec is to take this one for crashed, and to end that. */
    if (!failing.all || comm_interrupted(&interrupted) || !all_are_here())
        return false;
    signal(SIGALRM, leave);
    alarm(FAIL_SECONDS);
    if (failing.sum[0] == 0 && hear_all())
        return true;
    comm_hydra_end();
    return false;
}

bool comm_mpi_failing(void)
{
    return failing.known;
}

bool comm_mpi_told_of_failure(struct error *err)
{
    MPI_Status status;
    int there = 0;

    if (!failing.known && comm_interrupted(&failing.error))
        failing.known = true;
    if (!failing.known) {
        if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_FAILURE, failing.handle, &there, &status) != MPI_SUCCESS || !there)
            return false;
        if (hear(status.MPI_SOURCE, &failing.error) != MPI_SUCCESS)
            error_set(&failing.error, CODE_PEER, "rank %d failed", status.MPI_SOURCE);
        failing.known = true;
    }
    *err = failing.error;
    return true;
}

/* Tell every other rank; whoever is not there to listen is not waited for. */
static void tell_all(struct comm *comm, const struct error *err)
{
    MPI_Request request;

    failing.known = failing.told = true;
    failing.error = *err;
    error_prefix(&failing.error, "rank %d", comm->rank);
    for (int rank = 0; rank < comm->size; rank++)
        if (rank != comm->rank && MPI_Isend(&failing.error, sizeof failing.error, MPI_BYTE, rank, TAG_FAILURE,
                                            failing.handle, &request) == MPI_SUCCESS)
            MPI_Request_free(&request);
}

/* Whether all ranks have come here. */
static bool meet(struct comm *comm, const struct error *err)
{
    MPI_Request request;

    failing.sum[0] = comm_mpi_open_requests();
    if (comm_interrupted(&failing.error)) { /* as every rank's watchdog does: nobody is left to be told, or asked */
        failing.known = true;
        failing.sum[0]++;
        return true;
    }
    if (!failing.known)
        tell_all(comm, err);
    failing.sum[1] = failing.told;
    failing.sum[2] = comm->rank == 0 ? (int)err->code : 0;
    if (MPI_Iallreduce(MPI_IN_PLACE, failing.sum, 3, MPI_INT, MPI_SUM, failing.handle, &request) != MPI_SUCCESS ||
        !wait_a_little(&request))
        return false;
    failing.error.code = (enum exit_code)failing.sum[2];
    return true;
}

bool comm_mpi_fail(struct comm *comm, struct error *err)
{
    if (!failing.answered)
        failing.all = meet(comm, err);
    failing.answered = true;
    if (failing.all)
        err->code = failing.error.code;
    return failing.all;
}

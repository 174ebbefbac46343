/* comm_mpi.h - what comm_mpi.c (groups and operations) and comm_mpi_failure.c (what ranks tell each other when one
 * fails) share. Private to these files. */
#ifndef MUSTER_TRAINER_COMM_COMM_MPI_H
#define MUSTER_TRAINER_COMM_COMM_MPI_H

#include <mpi.h>

#include "trainer/comm/comm_impl.h"

struct comm_mpi {
    struct comm base;
    MPI_Comm handle;
    bool world;
};

/* Fills *err from an MPI error code, naming the rank; -1. */
int comm_mpi_error(struct error *err, const struct comm *comm, const char *what, int code);

/* Requests of this process that may still be under way, and use memory: not waited for to the end, or failed by MPI. */
int comm_mpi_open_requests(void);

/* With MPI's start. */
int comm_mpi_failure_begin(struct comm *world, struct error *err);

/*
 * Before MPI_Finalize: whether that can be called. After a failure only where all ranks have come here, and no request
 * is open on any: then an alarm ends the process with the exit code they agreed on, should MPI_Finalize not return.
 * Otherwise mpiexec is told that this rank ends (comm_hydra.h), unless another may hang, which mpiexec is then to kill.
 */
bool comm_mpi_failure_end(void);

bool comm_mpi_failing(void); /* this rank has told, or was told */

/*
 * Whether some rank has failed; then *err is its error, now and at every later wait. Cheap enough to ask while waiting.
 */
bool comm_mpi_told_of_failure(struct error *err);

bool comm_mpi_fail(struct comm *world, struct error *err); /* comm_world_fail */

#endif

/* comm_mpi.h - private to comm_mpi.c (groups and operations) and comm_mpi_failure.c (messages about failures). */
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

/* Called once, after MPI_Init. */
int comm_mpi_failure_init(struct comm *world, struct error *err);

/*
 * Calls MPI_Finalize; after a failure it does not, since operations may be pending that never end. When all ranks have
 * reached this call, it tells mpiexec that this rank ends. But if another rank may still hang, it does not: mpiexec then
 * takes this rank for crashed, and kills the others.
 */
void comm_mpi_end(void);

bool comm_mpi_failing(void); /* this rank has sent or received a failure */

/*
 * True if a rank has failed, or comm_interrupt was called: *err is that error, now and at every later call. Cheap
 * enough to call while waiting.
 */
bool comm_mpi_check_failure(struct error *err);

bool comm_mpi_fail(struct comm *world, struct error *err); /* comm_world_fail */

#endif

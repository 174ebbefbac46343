/*
 * launch.h - how this process was started: how many ranks there are, and by which protocol they can find each other. A
 * launcher sets it in the environment; the MPI library must support that protocol too.
 *
 * | launcher | protocol | variables |
 * | --- | --- | --- |
 * | srun --mpi=pmi2 | PMI2 | PMI_FD, PMI_RANK, PMI_SIZE |
 * | srun --mpi=pmix | PMIx | PMIX_NAMESPACE, PMIX_RANK |
 * | srun --mpi=none | none | only Slurm's own |
 * | MPICH's mpiexec (Hydra) | PMI-1 and PMI2 | PMI_FD, PMI_RANK, PMI_SIZE |
 * | Open MPI's mpirun | PMIx | PMIX_NAMESPACE, PMIX_RANK, OMPI_COMM_WORLD_SIZE |
 *
 * MPICH and its relatives speak PMI2, or PMIx if they were built for it; Open MPI speaks PMIx (its 4.x releases also
 * PMI2 if they were built for it, which muster does not use). A library that finds no protocol takes its process for
 * the only one, or, Open MPI in a step of Slurm, prints a page and aborts. Each rank would train the whole model alone.
 */
#ifndef MUSTER_TRAINER_COMM_LAUNCH_H
#define MUSTER_TRAINER_COMM_LAUNCH_H

#include <stdbool.h>

#include "common/error.h"

struct launch {
    const char *launcher; /* "srun", "mpiexec", "mpirun"; "the launcher" for others */
    bool pmi, pmix;       /* the protocols offered; pmi is PMI-1 or PMI2 */
    int size;             /* ranks started; 0: the launcher does not tell, as some with PMIx */
};

/* Reads the environment. A process without a launcher has size 1 and no protocol. */
struct launch launch_read(void);

/*
 * The variable, such as "SLURM_NTASKS", by which this process was meant to be one of several ranks although its `launch`
 * has only one: srun was forgotten, or torchrun started it. NULL if there is none.
 */
const char *launch_forgotten(const struct launch *launch);

/* This process's rank as the launcher counts; 0 without one. When all ranks have the same error, 0 reports it. */
int launch_rank(void);

/* The type for srun --mpi that suits an MPI library, of which `library` is MPI_Get_library_version's text. */
const char *launch_type(const char *library);

/*
 * Before MPI_Init: UCX, which MPICH uses, allocates more than 4 MiB a rank in /dev/shm, and MPI_Init aborts the process
 * where it cannot. If there is no room for all ranks, or no permission, this sets UCX_TLS so that UCX uses System V's
 * shared memory instead, and returns the reason. NULL if there is room, or the user has set UCX_TLS.
 */
const char *launch_avoid_shm(const struct launch *launch);

/*
 * Before MPI_Init: 0, or -1 with CODE_USAGE and the right way to start if MPI_Init cannot succeed: no protocol is
 * offered, or Open MPI is not offered PMIx.
 */
int launch_check(const struct launch *launch, const char *library, struct error *err);

/*
 * After MPI_Init, which found `size` ranks: 0, or -1 with CODE_USAGE and the right way to start if the launcher started
 * another number, because the library does not speak the launcher's protocol.
 */
int launch_check_size(const struct launch *launch, const char *library, int size, struct error *err);

#endif

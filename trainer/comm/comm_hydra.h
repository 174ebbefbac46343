/*
 * comm_hydra.h - ending under mpiexec without MPI_Finalize.
 *
 * MPICH's mpiexec (Hydra) takes a process that ends before MPI_Finalize for crashed: it kills those that are about to
 * end too, prints a banner, and says 9 or 1 instead of the code that all of them have (2 of 60 runs that ended so).
 * MPI_Finalize would not return where operations are under way that will never end. So mpiexec alone is told what
 * MPI_Finalize tells it: "cmd=finalize" in the wire protocol of PMI-1 (Balaji and others, "PMI: a scalable parallel
 * process-management interface for extreme-scale systems", EuroMPI 2010), on the socket whose number is in PMI_FD.
 */
#ifndef MUSTER_TRAINER_COMM_COMM_HYDRA_H
#define MUSTER_TRAINER_COMM_COMM_HYDRA_H

/*
 * To be called by a process that exits next and calls MPI no more. Waits a second at most for mpiexec's answer. Does
 * nothing under other launchers: srun makes no such difference.
 */
void comm_hydra_end(void);

#endif

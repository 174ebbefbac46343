/* choose.h - what a job leaves to muster: device = "auto" and parallel.mesh = "auto" (plan/auto.h). */
#ifndef MUSTER_TRAINER_CHOOSE_H
#define MUSTER_TRAINER_CHOOSE_H

#include "common/job.h"
#include "kernels/kernels.h"
#include "trainer/comm/comm.h"

/*
 * Creates the device that a job requests. "auto" is a GPU if device_create finds one, else the CPU. A GPU that is
 * present but unusable (any failure but CODE_CONFIG) is an error even then: a run on the CPU would be a hundred times
 * slower than the user expects.
 */
struct device *choose_device(enum device_choice choice, struct error *err);

/*
 * Gives the job, which was read from the file `name`, the keys of its mesh. The machine is parallel.machine, else that
 * of MUSTER_MESH, else that of this rank's GPU. Rank 0 chooses, and prints a line. Collective. Does nothing unless
 * parallel.mesh is "auto". CODE_CONFIG if the machine is not known, or if nothing fits.
 */
int choose_mesh(struct job *job, const char *name, struct comm *world, struct error *err);

/* The same for a run of so many ranks that is not started, for --plan. */
int choose_mesh_of(struct job *job, const char *name, int ranks, struct error *err);

#endif

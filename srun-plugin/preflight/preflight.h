/*
 * preflight.h - srun --muster-preflight[=exclude]: asks every node of a step that exists and has started no task, and
 * decides what becomes of the step.
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_PREFLIGHT_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_PREFLIGHT_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"
#include "common/job.h"
#include "srun-plugin/order/slurmctld.h"

struct preflight {
    const char *program;              /* muster-preflight, as the nodes find it */
    const struct step_layout *layout; /* of the step */
    const struct job *job;            /* says where checkpoints go, and how large they are; NULL without a job file */
    bool exclude;                     /* requeue the job without the bad nodes */
    bool own_job;                     /* srun allocated the job itself, and ends it when it ends */
    void (*log)(const char *line);
};

/*
 * 0 if all nodes are good, or, with a warning, if they could not be checked. Else the exit code for srun: 76
 * (CODE_PEER) if other nodes can replace the bad ones, 74 (CODE_IO) if all nodes are bad in the same way.
 *
 * Slurm's API has no call that completes a step that was created and not launched: its CPUs are held until the job
 * ends. So if the job continues without this step, the step is launched, and its tasks end with that code before they
 * start the user's program. If the job ends with the step, the process ends here.
 */
int preflight_step(const struct preflight *preflight);

/* ---- child.c ----------------------------------------------------------------------------------------------------- */

/* The srun that starts muster-preflight on the nodes of a step. */
struct child {
    pid_t pid;
    int fd; /* its standard output and error */
};

/*
 * Starts this program, srun, again (/proc/self/exe) with these arguments, ended by NULL. It gets our environment
 * without the variables of Slurm and muster, which srun would read as options, and an empty standard input.
 */
int child_start(struct child *child, char *const *argv, struct error *err);

/* Ends it and its tasks within some seconds, if it has not ended; closes fd. */
void child_end(struct child *child);

#endif

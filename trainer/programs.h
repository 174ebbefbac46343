/*
 * programs.h - the other programs that a trainer starts: muster-ckptd(8) and muster-report(1), which do what could
 * block in checkpoint.dir and in report.*, and squeue(1), because a trainer that links libslurm runs under one release.
 */
#ifndef MUSTER_TRAINER_PROGRAMS_H
#define MUSTER_TRAINER_PROGRAMS_H

#include "common/process/launcher.h"

#define CKPTD  "muster-ckptd"
#define REPORT "muster-report"

enum slurm_answer {
    SLURM_SILENT,     /* no squeue, or slurmctld did not answer */
    SLURM_UNKNOWN,    /* no such job: it ended long ago, or this user may not see it */
    SLURM_ENDED,      /* the job; or, while it runs, that step of it */
    SLURM_COMPLETING, /* its processes or its epilog may still run */
    SLURM_WAITING,    /* it was requeued, and will run again */
    SLURM_RUNNING,    /* or suspended */
};

/*
 * Asks Slurm, for a limited time, whether a job of this cluster runs. job: as squeue --jobs takes it, "4711" or
 * "4711_2". step: a step's number; "" asks for the job alone.
 */
enum slurm_answer slurm_job_ask(const char *job, const char *step);

#endif

/*
 * epilog.h - a job whose processes were killed may have left a checkpoint staged in this node's memory: it is drained
 * and committed before the node goes to another job. Called in slurmd's epilog, as root.
 */
#ifndef MUSTER_SRUN_PLUGIN_EPILOG_H
#define MUSTER_SRUN_PLUGIN_EPILOG_H

#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"

struct epilog {
    uint32_t job_id;
    uint32_t het_job_id; /* of a component of a heterogeneous job: what all its tasks have as SLURM_JOB_ID; 0 else */
    uid_t uid;           /* whose job it was */
    const char *roots;   /* where stages may be, with colons between: "/dev/shm:/local/nvme" */
    const char *ckptd;   /* path of muster-ckptd */
    int (*trust)(const char *program, struct error *err); /* whether it may be started: 0; NULL: it may (module.h) */
    int seconds; /* until epilog_drain returns, whatever hangs; 0: leave everything where it is */
};

/*
 * Run `muster-ckptd --once --partner` on each stage of that job and user, as that user (epilog_run.h): root looks at
 * names and owners only, and opens nothing that the user could have put there. Returns how many stages were drained, or
 * tried, 64 at most; what goes wrong is logged, a line each, and is no failure.
 */
int epilog_drain(const struct epilog *epilog, void (*log)(const char *line));

#endif

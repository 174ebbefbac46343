/*
 * epilog.h - context epilog: a job whose processes were killed may have left a checkpoint staged in this node's memory.
 * It is drained and committed before the node goes to another job. Called in slurmd's epilog, as root (slurmd.c).
 */
#ifndef MUSTER_SRUN_PLUGIN_EPILOG_H
#define MUSTER_SRUN_PLUGIN_EPILOG_H

#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"

struct epilog {
    uint32_t job_id;     /* 0: slurmd starts, and no job has ended */
    uint32_t het_job_id; /* of a component of a heterogeneous job: what all its tasks have as SLURM_JOB_ID; 0 else */
    uid_t uid;           /* whose job it was */
    const char *roots;   /* where stages may be, with colons between: "/dev/shm:/local/nvme" */
    const char *ckptd;   /* path of muster-ckptd */
    int (*trust)(const char *program, struct error *err); /* whether it may be started: 0; NULL: it may (trust.h) */
    const char *keep;       /* --reclaim's AGE for stages of earlier jobs; NULL: leave those as they are */
    const char *prometheus; /* where runs write files for Prometheus; NULL: nowhere */
    int seconds;            /* until epilog_drain returns, whatever hangs; 0: drain nothing */
};

/*
 * Run, each as its user:
 *   - `muster-ckptd --once --partner` on each stage of that job and user;
 *   - the same with --reclaim on those that earlier jobs of any user have left, one of each user in turn. It leaves the
 *     stage of a job that runs. All of them get 2 s (a third of `seconds` if that is less; all of it at slurmd's
 *     start).
 * First remove the file for Prometheus that a run of that job left (trainer/report/prometheus.h). What is not a regular
 * file of that user is left, and logged.
 * A muster-ckptd that its user stops is killed at once. Root looks at names and owners only, and opens nothing that a
 * user could have put there. Returns how many stages were tried. What goes wrong is logged, a line each, and one line
 * says how many stages were not looked at.
 */
int epilog_drain(const struct epilog *epilog, void (*log)(const char *line));

/* The same in a process that nobody waits for, without the sockets of this one: slurmd's start does not wait for it. */
int epilog_start(const struct epilog *epilog, void (*log)(const char *line));

enum { EPILOG_NO_TIMEOUT = -1 };

/*
 * slurmd kills an epilog that runs past the timeout in slurm.conf, and drains the node. How many of `seconds` an epilog
 * may take to end before. If that is fewer, `warn` (may be NULL) gets a line with what to change.
 */
int epilog_timeout_fit(int seconds, int timeout, void (*warn)(const char *line));

#endif

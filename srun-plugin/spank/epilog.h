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
    int (*trust)(const char *program, struct error *err); /* whether it may be started: 0; NULL: it may (trust.h) */
    int seconds; /* until epilog_drain returns, whatever hangs; 0: leave everything where it is */
};

/*
 * Run `muster-ckptd --once --partner` on each stage of that job and user, as that user (epilog_run): root looks at
 * names and owners only, and opens nothing that the user could have put there. Returns how many stages were drained, or
 * tried, 64 at most; what goes wrong is logged, a line each, and is no failure.
 */
int epilog_drain(const struct epilog *epilog, void (*log)(const char *line));

/* ---- epilog_run.c -------------------------------------------------------------------------------------------------- */

enum {
    EPILOG_NO_USER = 126, /* exit statuses of a child that did not come to be muster-ckptd */
    EPILOG_NO_PROGRAM = 127,
    EPILOG_KILLED = -1,    /* it went on for too long */
    EPILOG_LEFT = -2,      /* and could not be killed: it hangs in the kernel, or a debugger has it */
    EPILOG_NO_PROCESS = -3 /* errno says why */
};

struct epilog_run {
    const char *program; /* its absolute path */
    const char *stage;
    uid_t uid;
    double seconds; /* until epilog_run returns */
    void (*log)(const char *line);
};

/*
 * Run `program --once --partner --seconds N stage` as the user and wait for it, run->seconds at most, even if it cannot
 * be killed. N is smaller: it leaves time for the program to end by itself, and then to be killed. Returns its exit
 * status, or one of the above.
 *
 * It has no descriptor of ours: what it prints comes through a pipe and goes to `log`, line by line, with '?' for what
 * is not printable ASCII, since names of the user's making are in it; of endless output only the beginning. When we are
 * root, it cannot be traced by other processes of the user, leaves no core, and the kernel may kill it when memory is
 * out.
 */
int epilog_run(const struct epilog_run *run);

/* ---- epilog_timeout.c ---------------------------------------------------------------------------------------------- */

enum { EPILOG_NO_TIMEOUT = -1 };

/*
 * The smaller of PrologEpilogTimeout and EpilogTimeout (Slurm 25.05 and later) in the file `slurm_conf` and the files
 * that it includes. EPILOG_NO_TIMEOUT where neither is set, as by default, or the file cannot be read. NULL is no file.
 */
int epilog_timeout_read(const char *slurm_conf);

/*
 * How many of `seconds` an epilog may take under that timeout. Where that is fewer, `warning` says so and what to
 * change; else `warning` is "".
 */
int epilog_timeout_fit(int seconds, int timeout, char *warning, size_t size);

#endif

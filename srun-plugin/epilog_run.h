/*
 * epilog_run.h - one muster-ckptd that root starts for a user, who may have other processes on the node: in another job
 * there, or by ssh. They must not get at what root has through it, nor at its place outside of every job's cgroup.
 */
#ifndef MUSTER_SRUN_PLUGIN_EPILOG_RUN_H
#define MUSTER_SRUN_PLUGIN_EPILOG_RUN_H

#include <sys/types.h>

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

#endif

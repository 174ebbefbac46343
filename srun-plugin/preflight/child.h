/*
 * child.h - the srun that starts muster-preflight on the nodes of a step, and what it prints.
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_CHILD_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"

struct child {
    pid_t pid;
    int fd; /* its standard output and error */
};

/*
 * Starts this very program, srun, again (/proc/self/exe) with these arguments, ended by NULL. Its environment is ours,
 * without what Slurm's and muster's outer commands put there: an srun reads SLURM_* as options. Its standard input is
 * empty.
 */
int child_start(struct child *child, char *const *argv, struct error *err);

/* Whether the child gets an entry "NAME=VALUE" of our environment. */
bool child_inherits(const char *entry);

/* Ends it and what it started, within some seconds, if it has not ended; closes fd. */
void child_end(struct child *child);

#endif

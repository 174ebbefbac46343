/*
 * child.h - runs the srun that starts muster-preflight on the nodes of a step, and reads its output.
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
 * Starts this program, srun, again (/proc/self/exe) with these arguments, ended by NULL. It gets our environment
 * without the variables of Slurm and muster, which srun would read as options, and an empty standard input.
 */
int child_start(struct child *child, char *const *argv, struct error *err);

/* Whether the child gets an entry "NAME=VALUE" of our environment. */
bool child_inherits(const char *entry);

/* Ends it and its tasks within some seconds, if it has not ended; closes fd. */
void child_end(struct child *child);

#endif

/*
 * launcher.h - starts muster's own programs, which do for a trainer what may hang in a file system.
 *
 * A process that waits in an uninterruptible call cannot be killed. If it is in the cgroup of a Slurm step, the step
 * cannot end, and Slurm drains the node ("Kill task failed"). So the plugin has slurmstepd start a *launcher* before
 * the tasks (muster-ckptd --serve, as the job's user): that process, and all that it starts, is in the cgroup of the
 * job. It starts programs on request, and ends with slurmstepd. Without a launcher, the caller starts the program.
 *
 * The launcher starts programs of its own installation only, in its own environment, and only for its user: a user gets
 * no process of his own out of the step's cgroup.
 */
#ifndef MUSTER_COMMON_LAUNCHER_H
#define MUSTER_COMMON_LAUNCHER_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"

/* The name of the launcher's socket (abstract, of AF_UNIX), which the plugin gives to each task. */
#define LAUNCHER_VARIABLE "MUSTER_LAUNCHER"

/*
 * Starts a program in a session of its own, which a terminal's ^C does not reach. `words`: its name, looked for in PATH
 * unless it has a slash, and its arguments, up to NULL. Its input is /dev/null, its output and its errors are `output`
 * (-1: /dev/null), and no other file is open: a launcher such as mpiexec, which waits for the end of its socket, would
 * wait for the program. No signal is blocked in it. -1 and *pid is 0 if it cannot be started.
 */
int program_spawn(pid_t *pid, const char *const *words, int output, struct error *err);

/*
 * The same for a program of muster, such as "muster-ckptd": by the launcher, if there is one of this release that sees
 * the same files; else the one beside this program, or in PATH. It runs in this working directory. `arguments`: after
 * its name, at most 8. Its input is a socket of messages (SOCK_SEQPACKET), which shows it that its caller has ended.
 * Returns the caller's end of it, which does not wait (O_NONBLOCK), or -1. The process may not be a child of this one.
 */
int program_start(pid_t *pid, const char *name, const char *const *arguments, int output, struct error *err);

/* Whether the process that program_start started still runs; if not, *pid becomes 0. Reaps a child. */
bool program_is_running(pid_t *pid);

/* Whether it is a child of this process: no launcher has started it. */
bool program_is_child(pid_t pid);

/* For a program that program_start has started: Slurm ends a job by signals to all its processes, and some of them have
 * to go on. A write that fails is an error, and no signal. */
void program_ignore_signals(void);

/* The launcher: serves requests at the listening socket until `life` is at its end, which only slurmstepd holds. */
void launcher_serve(int listener, int life);

#endif

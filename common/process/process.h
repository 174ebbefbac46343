/* process.h - names a process of this machine, and tells what has become of it. */
#ifndef MUSTER_COMMON_PROCESS_PROCESS_H
#define MUSTER_COMMON_PROCESS_PROCESS_H

#include <stdint.h>

/* The kernel reuses pids, but not with the same start time. */
struct process {
    int64_t pid;
    uint64_t started;       /* clock ticks after boot */
    uint64_t pid_namespace; /* its inode: each container has its own pids */
};

enum process_state {
    PROCESS_UNKNOWN, /* of another container, or /proc cannot be read */
    PROCESS_RUNNING, /* or asleep */
    PROCESS_STOPPED, /* by SIGSTOP, a terminal or a debugger */
    PROCESS_GONE,
};

/* All 0 where there is no /proc. */
struct process process_self(void);

/* PROCESS_GONE only for a process of this pid namespace that /proc no longer shows, or shows as a zombie. */
enum process_state process_inspect(const struct process *process);

#endif

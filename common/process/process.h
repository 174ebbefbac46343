/* process.h - names a process of this machine, tells what has become of it, and shares memory with it. */
#ifndef MUSTER_COMMON_PROCESS_PROCESS_H
#define MUSTER_COMMON_PROCESS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
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

/*
 * Memory without a name (memfd_create(2)), for processes of this user that see this one: they open it as /proc/PID/fd/N,
 * N being *fd, until the caller closes that. Nothing is left behind, however the processes end. It is zero but for its
 * beginning, which is process_self(). To be unmapped. NULL with errno, and *fd is -1.
 */
void *process_share(size_t bytes, int *fd);

/* Maps it in another process. NULL with errno, also if it is anything else or has another size. */
void *process_map(const struct process *owner, int fd, size_t bytes, bool writable);

#endif

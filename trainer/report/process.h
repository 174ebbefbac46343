/* process.h - processes of this host by more than their number, which the kernel gives out again. */
#ifndef MUSTER_TRAINER_REPORT_PROCESS_H
#define MUSTER_TRAINER_REPORT_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct process {
    int64_t pid;
    uint64_t started;   /* clock ticks after boot */
    uint64_t numbering; /* the inode of its pid namespace: containers count their own */
};

enum process_state {
    PROCESS_UNKNOWN, /* of another container, or /proc is not to be read */
    PROCESS_RUNNING, /* or asleep */
    PROCESS_STOPPED, /* by SIGSTOP, a terminal or a debugger */
    PROCESS_GONE,
};

/* All 0 where there is no /proc. */
struct process process_self(void);

/* Only what was seen is said: GONE means that /proc knows no such process and would have shown it. */
enum process_state process_look(const struct process *process);

#endif

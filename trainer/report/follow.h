/*
 * follow.h - shows a run while it goes on, by the metrics it writes.
 *
 * On a terminal one line is drawn over and over; elsewhere a line is printed every few seconds. Changes ("resumed at
 * step 121 on 2 ranks (was 4)") get lines of their own. For a program: it prints to stdout and catches SIGINT and
 * SIGTERM.
 */
#ifndef MUSTER_TRAINER_REPORT_FOLLOW_H
#define MUSTER_TRAINER_REPORT_FOLLOW_H

#include <sys/types.h>

#include "common/error.h"

struct follow {
    const char *path; /* metrics.jsonl; it may not be there yet */
    long steps;       /* end when this step is reached; 0: no such end, and no bar */
    pid_t pid;        /* end when this process has ended; 0: no such end */
    double interval;  /* seconds between lines where stdout is no terminal */
};

/* Returns 0 when an end came, a signal being one. */
int follow_run(const struct follow *follow, struct error *err);

#endif

/*
 * follow.h - shows the progress of a run by its metrics.
 *
 * On a terminal one line is redrawn; elsewhere a line is printed every few seconds. Changes ("resumed at step 121 on 2
 * ranks (was 4)") get their own lines. It prints to stdout and catches SIGINT and SIGTERM.
 *
 * It follows the name, not the file: the file may be created later, and may be replaced by a rename or truncated; then
 * it is read again. It is polled, because network file systems support nothing else.
 */
#ifndef MUSTER_TRAINER_REPORT_FOLLOW_H
#define MUSTER_TRAINER_REPORT_FOLLOW_H

#include <sys/types.h>

#include "common/error.h"

struct follow {
    const char *path; /* metrics.jsonl; it may not exist yet */
    long steps;       /* end at this step; 0: unknown, and no bar */
    pid_t pid;        /* end when this process has ended; 0: none */
    double interval;  /* seconds between lines if stdout is not a terminal */
};

/* Returns 0 at the run's end or after a signal. */
int follow_run(const struct follow *follow, struct error *err);

#endif

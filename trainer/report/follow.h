/*
 * follow.h - shows a run while it goes on, by the metrics it writes.
 *
 * On a terminal one line is drawn over and over; elsewhere a line is printed every few seconds. Changes ("resumed at
 * step 121 on 2 ranks (was 4)") get lines of their own. For a program: it prints to stdout and catches SIGINT and
 * SIGTERM.
 */
#ifndef MUSTER_TRAINER_REPORT_FOLLOW_H
#define MUSTER_TRAINER_REPORT_FOLLOW_H

#include <stddef.h>
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

/*
 * The lines of a file that another process writes: those that are there, then each new one. It follows the
 * name, not the file: the file may come later, and may be replaced by a rename or cut short; then it begins anew.
 */

struct tail;

enum tail_news {
    TAIL_ERROR = -1,
    TAIL_NOTHING, /* for now: ask again later. On network filesystems there is no better way than asking */
    TAIL_LINE,
    TAIL_ANEW, /* the file was replaced or cut: the next line is its first */
};

struct tail *tail_create(const char *path, struct error *err);
void tail_destroy(struct tail *tail);

/* Never waits. A line is without its newline, ends in 0, and is valid until the next call. Half a line is not a line
 * yet. */
enum tail_news tail_next(struct tail *tail, const char **line, size_t *length, struct error *err);

long tail_line_number(const struct tail *tail); /* of the last line given, from 1 */

#endif

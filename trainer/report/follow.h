/*
 * follow.h - shows the progress of a run by its metrics.
 *
 * On a terminal one line is redrawn; elsewhere a line is printed every few seconds. Changes ("resumed at step 121 on 2
 * ranks (was 4)") get their own lines. It prints to stdout and catches SIGINT and SIGTERM.
 */
#ifndef MUSTER_TRAINER_REPORT_FOLLOW_H
#define MUSTER_TRAINER_REPORT_FOLLOW_H

#include <stddef.h>
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

/*
 * The lines of a file that another process writes. It follows the name, not the file: the file may be created later,
 * and may be replaced by a rename or truncated; then reading starts again.
 */

struct tail;

enum tail_news {
    TAIL_ERROR = -1,
    TAIL_NOTHING, /* no new line: try again later. Network file systems support only polling */
    TAIL_LINE,
    TAIL_ANEW, /* the file was replaced or truncated: the next line is its first */
};

struct tail *tail_create(const char *path, struct error *err);
void tail_destroy(struct tail *tail);

/* Does not block. A line has no newline, ends in 0, and is valid until the next call. A line without its newline in the
 * file is not returned yet. */
enum tail_news tail_next(struct tail *tail, const char **line, size_t *length, struct error *err);

long tail_line_number(const struct tail *tail); /* of the last line returned, from 1 */

#endif

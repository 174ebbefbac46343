/*
 * follow.h - shows the progress of a run by its metrics.
 *
 * On a terminal one line is redrawn; elsewhere a line is printed every few seconds. Changes ("resumed at step 121 on 2
 * ranks (was 4)") get their own lines. It prints to stdout and catches SIGINT and SIGTERM.
 */
#ifndef MUSTER_TRAINER_REPORT_FOLLOW_H
#define MUSTER_TRAINER_REPORT_FOLLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/error.h"
#include "trainer/report/metrics.h"
#include "trainer/report/progress.h"

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

struct tail_line {
    const char *text; /* without its newline, ends in 0; valid until the next call */
    size_t length;
    long number; /* from 1 */
};

/* Does not block. A line without its newline in the file is not returned yet. */
enum tail_news tail_next(struct tail *tail, struct tail_line *line, struct error *err);

/* ---- the state of a run that is followed, without files and clock ---- */

enum { FOLLOWED_RECENT = 20, FOLLOWED_EVENTS = 64 };

struct followed_run {
    struct metrics_step last;        /* step 0: none yet */
    long steps;                      /* of the whole run; 0 unknown; all else is 0 at first */
    long furthest;                   /* highest step so far: a resumed job begins below it if work was lost */
    bool anew;                       /* the file was replaced, and its lines are being read */
    double seconds[FOLLOWED_RECENT]; /* of the latest steps on this mesh, a ring; for the ETA */
    size_t timed;                    /* number of steps stored in it */
    /* at the latest changes of mesh, a ring: a file that is read again must not show them twice */
    struct metrics_step shown[FOLLOWED_EVENTS];
    size_t nshown;
};

/*
 * Adds one step. Returns true and one line of text if there is an event for the user, such as "resumed at step 121 on 2
 * ranks (was 4)".
 */
bool followed_step(struct followed_run *run, const struct metrics_step *step, char *event, size_t size);

/* The file is read again from its beginning. */
void followed_anew(struct followed_run *run);

/* At the end of a new file: true and a line if the run is at an earlier step than before ("back at step 100..."). */
bool followed_rewound(struct followed_run *run, char *event, size_t size);

struct progress followed_progress(const struct followed_run *run);

#endif

/*
 * progress.h - the progress line of a run, fitted to the width of a terminal. Pure functions.
 *
 *     120/200 ━━━━━━━━━━━━━━━━━━────────────  loss 5.0625  12.3k tok/s  4 ranks  ETA 1:23
 *
 * If it does not fit, fields are left out in this order: MFU, ranks, tokens/s, the bar, ETA, loss. The step stays.
 */
#ifndef MUSTER_TRAINER_REPORT_PROGRESS_H
#define MUSTER_TRAINER_REPORT_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/report/metrics.h"

#define PROGRESS_SIZE 1024 /* enough for any line */

enum progress_flag {
    PROGRESS_UTF8 = 1,   /* the terminal shows UTF-8: a finer bar */
    PROGRESS_COLOUR = 2, /* use escape sequences for colours */
    PROGRESS_NO_BAR = 4, /* for logs */
};

struct progress {
    long step;
    long steps;               /* of the whole run; 0: unknown, no bar and no ETA */
    double loss;              /* NaN is shown */
    double tokens_per_second; /* NaN here and below: not shown */
    double mfu;               /* 0 to 1 */
    double eta_seconds;
    int ranks; /* 0: not shown */
};

/*
 * Writes the line into buf, without a newline, at most `columns` wide, and truncated to whole characters if `size` is
 * too small. Returns its length in bytes.
 */
size_t progress_line(char *buf, size_t size, int columns, unsigned flags, const struct progress *progress);

/* ---- the state of a run that is followed, without files and clock: follow.c has those ---- */

enum { WATCH_RECENT = 20, WATCH_EVENTS = 64 };

struct watch {
    struct metrics_step last;     /* step 0: none yet */
    long steps;                   /* of the whole run; 0 unknown */
    long furthest;                /* highest step so far: a resumed job begins below it if work was lost */
    bool anew;                    /* the file was replaced, and its lines are being read */
    double seconds[WATCH_RECENT]; /* of the latest steps on this mesh, a ring; for the ETA */
    size_t timed;                 /* number of steps stored in it */
    struct watch_event {
        long step;
        int world, dp, tp, pp;
    } shown[WATCH_EVENTS]; /* the latest changes, a ring: a file that is read again must not show them twice */
    size_t nshown;
};

void watch_start(struct watch *watch, long steps);

/*
 * Adds one step. Returns true and one line of text if there is an event for the user, such as "resumed at step 121 on 2
 * ranks (was 4)".
 */
bool watch_step(struct watch *watch, const struct metrics_step *step, char *event, size_t size);

/* The file is read again from its beginning. */
void watch_anew(struct watch *watch);

/* At the end of a new file: true and a line if the run is at an earlier step than before ("back at step 100..."). */
bool watch_rewound(struct watch *watch, char *event, size_t size);

struct progress watch_progress(const struct watch *watch);

/* ---- numbers for people; each function returns buf ---- */

#define UNITS_SIZE 32

/* Three digits and a suffix: 0, 7.25, 12.3k, 131M, 1.05G, 2.00T. "-" when not finite. */
const char *units_count(char buf[UNITS_SIZE], double value);

/* 0:07, 12:34, 1:02:03, 3d04:05 (days, hours, minutes). "-" when not finite or negative. */
const char *units_duration(char buf[UNITS_SIZE], double seconds);

/* 1234567 as 1,234,567. */
const char *units_grouped(char buf[UNITS_SIZE], long value);

#endif

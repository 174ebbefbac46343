/*
 * progress.h - one line that says how far a run is, fitted to the width of a terminal. A pure function.
 *
 *     120/200 ━━━━━━━━━━━━━━━━━━────────────  loss 5.0625  12.3k tok/s  4 ranks  ETA 1:23
 *
 * What does not fit goes, least needed first: MFU, ranks, tokens/s, the bar, ETA, loss. The step stays.
 */
#ifndef MUSTER_TRAINER_REPORT_PROGRESS_H
#define MUSTER_TRAINER_REPORT_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/report/metrics.h"

#define PROGRESS_SIZE 1024 /* enough for any line */

enum progress_flag {
    PROGRESS_UTF8 = 1,   /* the terminal shows UTF-8: a finer bar */
    PROGRESS_COLOUR = 2, /* escape sequences are welcome */
    PROGRESS_NO_BAR = 4, /* for logs */
};

struct progress {
    long step;
    long steps;               /* of the whole run; 0 where unknown: then there is no bar and no ETA */
    double loss;              /* NaN is shown as such: it is news */
    double tokens_per_second; /* NaN here and below: not shown */
    double mfu;               /* 0 to 1 */
    double eta_seconds;
    int ranks; /* 0: not shown */
};

/*
 * Writes the line into buf, without a newline, never wider than `columns`, and cut at a whole character where `size` is
 * too small. Returns its length in bytes.
 */
size_t progress_line(char *buf, size_t size, int columns, unsigned flags, const struct progress *progress);

/*
 * What is known of a run that is being followed, step by step. No files, no clock: follow.c has those.
 */

enum { WATCH_RECENT = 20, WATCH_EVENTS = 64 };

struct watch {
    struct metrics_step last;     /* step 0: none yet */
    long steps;                   /* of the whole run; 0 unknown */
    long furthest;                /* highest step ever seen: a resumed job begins below it when work was lost */
    bool anew;                    /* the file was replaced, and what it holds is being read */
    double seconds[WATCH_RECENT]; /* of the latest steps on this mesh, a ring; for the ETA */
    size_t timed;                 /* steps that went into it */
    struct watch_event {
        long step;
        int world, dp, tp, pp;
    } told[WATCH_EVENTS]; /* the latest changes, a ring: a file that is read again must not tell them twice */
    size_t ntold;
};

void watch_start(struct watch *watch, long steps);

/*
 * Takes in one step. Returns true and one line of text when something happened that the user should read, such as
 * "resumed at step 121 on 2 ranks (was 4)".
 */
bool watch_step(struct watch *watch, const struct metrics_step *step, char *event, size_t size);

/* The file begins anew: the same steps will come again. */
void watch_anew(struct watch *watch);

/* At the end of what a new file holds: true and a line when the run is further back than it was ("back at step
 * 100..."). */
bool watch_rewound(struct watch *watch, char *event, size_t size);

struct progress watch_progress(const struct watch *watch);

/*
 * Numbers as people read them. Pure functions; each returns buf.
 */

#define UNITS_SIZE 32

/* Three digits and a suffix: 0, 7.25, 12.3k, 131M, 1.05G, 2.00T. "-" when not finite. */
const char *units_count(char buf[UNITS_SIZE], double value);

/* 0:07, 12:34, 1:02:03, 3d04:05 (days, hours, minutes). "-" when not finite or negative. */
const char *units_duration(char buf[UNITS_SIZE], double seconds);

/* 1234567 as 1,234,567. */
const char *units_grouped(char buf[UNITS_SIZE], long value);

#endif

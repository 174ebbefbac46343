/*
 * progress.h - one line that says how far a run is, fitted to the width of a terminal. A pure function.
 *
 *     120/200 ━━━━━━━━━━━━━━━━━━────────────  loss 5.0625  12.3k tok/s  4 ranks  ETA 1:23
 *
 * What does not fit goes, least needed first: MFU, ranks, tokens/s, the bar, ETA, loss. The step stays.
 */
#ifndef MUSTER_TRAINER_REPORT_PROGRESS_H
#define MUSTER_TRAINER_REPORT_PROGRESS_H

#include <stddef.h>

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

#endif

/*
 * summary.h - a run on one screen: how far, how good, how fast, on whom.
 */
#ifndef MUSTER_TRAINER_REPORT_SUMMARY_H
#define MUSTER_TRAINER_REPORT_SUMMARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "trainer/report/metrics.h"

struct summary {
    const char *name; /* the heading */
    const struct metrics_step *steps;
    size_t count;
    int columns; /* of the screen */
    bool utf8;
};

/* Fails with CODE_DATA when there is no step, CODE_IO when memory or the stream fails. */
int summary_print(FILE *out, const struct summary *summary, struct error *err);

/*
 * A curve drawn with characters, for a terminal without a picture viewer.
 *
 *     10.92 | *
 *           |  **
 *           |    ****
 *      4.31 |        *****
 *           +--------------
 *            1          200
 */

struct text_chart {
    const double *x, *y; /* count points; those that are not finite are left out */
    size_t count;
    int width, height; /* of the drawing in characters, without the labels; up to TEXT_CHART_MOST each */
    bool utf8;         /* draw with Braille's dots: eight to a character */
};

enum { TEXT_CHART_MOST = 200 };

/* Prints nothing where no point is finite. */
void text_chart_print(FILE *out, const struct text_chart *chart);

/* What the user's terminal can do. For programs; call setlocale(LC_CTYPE, "") before. */
struct terminal {
    bool live;   /* a terminal on which a line can be drawn over and over: not a file, a pipe, or TERM=dumb */
    bool colour; /* live, and NO_COLOR (no-color.org) is not set */
    bool utf8;   /* the locale says so */
    int columns; /* 80 where unknown */
};

struct terminal terminal_look(int fd);

#endif

/* summary.h - a run's progress, losses, speed and meshes on one screen; and terminals. */
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

/* Fails with CODE_DATA if there is no step, CODE_IO if memory or the stream fails. */
int summary_print(FILE *out, const struct summary *summary, struct error *err);

/*
 * A curve drawn with characters.
 *
 *     10.92 | *
 *           |  **
 *           |    ****
 *      4.31 |        *****
 *           +--------------
 *            1          200
 */

struct text_chart {
    const double *x, *y; /* count points; points that are not finite are left out */
    size_t count;
    int width, height; /* of the drawing in characters, without the labels; up to TEXT_CHART_MOST each */
    bool utf8;         /* draw with Braille dots, eight a character */
};

enum { TEXT_CHART_MOST = 200 };

/* Prints nothing if no point is finite. */
void text_chart_print(FILE *out, const struct text_chart *chart);

/* The capabilities of the user's terminal. Call setlocale(LC_CTYPE, "") first. */
struct terminal {
    bool live;   /* a line can be redrawn: not a file, a pipe, or TERM=dumb */
    bool colour; /* live, and NO_COLOR (no-color.org) is not set */
    bool utf8;   /* the locale's encoding */
    int columns; /* 80 if unknown */
};

struct terminal terminal_inspect(int fd);

#endif

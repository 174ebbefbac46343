/*
 * text_chart.h - a curve drawn with characters, for a terminal without a picture viewer.
 *
 *     10.92 | *
 *           |  **
 *           |    ****
 *      4.31 |        *****
 *           +--------------
 *            1          200
 */
#ifndef MUSTER_TRAINER_REPORT_TEXT_CHART_H
#define MUSTER_TRAINER_REPORT_TEXT_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct text_chart {
    const double *x, *y; /* count points; those that are not finite are left out */
    size_t count;
    int width, height; /* of the drawing in characters, without the labels; up to TEXT_CHART_MOST each */
    bool utf8;         /* draw with Braille's dots: eight to a character */
};

enum { TEXT_CHART_MOST = 200 };

/* Prints nothing where no point is finite. */
void text_chart_print(FILE *out, const struct text_chart *chart);

#endif

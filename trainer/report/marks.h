/* marks.h - the vertical lines of a plot, with labels in rows so that they do not overlap; and the axes' ticks. */
#ifndef MUSTER_TRAINER_REPORT_MARKS_H
#define MUSTER_TRAINER_REPORT_MARKS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/svg.h"
#include "trainer/report/plot.h"

#define MARKS_FONT 11.0 /* pixels */
enum { MARKS_ROWS = 5 };

struct mark {
    long step;
    char label[96];
    double x;
    double from, to; /* the label's extent */
    int row;         /* of its label, 0 is nearest to the plot; -1: no room for a label */
    bool struck;     /* another mark's line passes behind the label */
    enum svg_anchor anchor;
};

/*
 * The changes of mesh in the plot's steps ("preempted: 4 -> 2 ranks at step 120", with a real arrow; just "4 -> 2
 * ranks" when there are many) and the user's marks, by step, in an array that the caller frees. No marks: NULL and 0.
 */
int marks_make(const struct plot *plot, struct mark **marks, size_t *nmarks, struct error *err);

/*
 * Sets each mark's row and anchor from its x: labels lie between left and right, never overlap each other, and avoid
 * other marks' lines where possible. Returns the number of rows.
 */
int marks_place(struct mark *marks, size_t nmarks, double left, double right);

/*
 * Ticks at round numbers: 1, 2 or 5 times a power of ten apart (Heckbert, "Nice Numbers for Graph Labels",
 * Graphics Gems, 1990). Pure functions.
 */

struct axis {
    double lo, hi;      /* its range */
    double first, step; /* ticks at first + i * step, 0 <= i < count */
    int count;          /* at least 1 */
    int decimals;       /* of the labels */
};

/*
 * An axis for data from lo to hi (finite, in any order, may be equal) with at most `most` (>= 4) ticks. axis_cover
 * widens the axis to a tick at both ends; axis_inside keeps the data's range and has only the ticks within it.
 */
struct axis axis_cover(double lo, double hi, int most);
struct axis axis_inside(double lo, double hi, int most);

double axis_tick(const struct axis *axis, int index);

/* Tick's text: as many decimals as the step needs, thousands grouped: 0.25, 3, 12,000. Returns buf. */
const char *axis_label(const struct axis *axis, int index, char *buf, size_t size);

#endif

/*
 * marks.h - the vertical lines of a plot: where they stand, what they say, and in which row their labels do not
 * collide.
 */
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
    double from, to; /* what its label spans */
    int row;         /* of its label, 0 is nearest to the plot; -1: there was no room, the line stands alone */
    bool struck;     /* another mark's line passes behind the label */
    enum svg_anchor anchor;
};

/*
 * The changes of mesh in the plot's steps ("preempted: 4 -> 2 ranks at step 120", with a real arrow; just "4 -> 2
 * ranks" when there are many) and the user's marks, by step, in an array that the caller frees. No marks: NULL and 0.
 */
int marks_make(const struct plot *plot, struct mark **marks, size_t *nmarks, struct error *err);

/*
 * Gives each mark its row and anchor, its x being set: labels lie between left and right and never overlap each other,
 * and stay out of the way of other marks' lines if they can. Returns the rows used.
 */
int marks_place(struct mark *marks, size_t nmarks, double left, double right);

/*
 * Ticks at round numbers: 1, 2 or 5 times a power of ten apart (Heckbert, "Nice Numbers for Graph Labels",
 * Graphics Gems, 1990). Pure functions.
 */

struct axis {
    double lo, hi;      /* what the axis spans */
    double first, step; /* ticks at first + i * step, 0 <= i < count */
    int count;          /* at least 1 */
    int decimals;       /* that a label needs */
};

/*
 * An axis for data from lo to hi (finite, in either order, may be equal) with at most `most` (>= 4) ticks. _cover
 * widens the axis to a tick at both ends; _inside keeps the data's ends and has only the ticks between them.
 */
struct axis axis_cover(double lo, double hi, int most);
struct axis axis_inside(double lo, double hi, int most);

double axis_tick(const struct axis *axis, int index);

/* Tick's text: as many decimals as the step needs, thousands grouped: 0.25, 3, 12,000. Returns buf. */
const char *axis_label(const struct axis *axis, int index, char *buf, size_t size);

#endif

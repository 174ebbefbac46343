/*
 * plot.h - a run's loss curve as one self-contained SVG: training loss, validation losses, the loss of a reference run,
 * and a labelled line wherever the mesh changed.
 */
#ifndef MUSTER_TRAINER_REPORT_PLOT_H
#define MUSTER_TRAINER_REPORT_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "common/svg.h"
#include "trainer/report/metrics.h"

/* A vertical line with a label. The caller of plot_write sets the first two. */
struct mark {
    long step;
    char label[96];
    double x;
    double from, to; /* the label's extent */
    int row;         /* of its label, 0 is nearest to the plot; -1: no room for a label */
    bool struck;     /* another mark's line passes behind the label */
    enum svg_anchor anchor;
};

struct plot {
    const char *title;
    const struct metrics_step *steps; /* the run; steps whose loss is not finite leave a gap */
    size_t nsteps;
    const struct metrics_step *reference; /* another run to compare with; may be NULL */
    size_t nreference;
    const struct mark *marks; /* the user's; one at the step of a mesh change replaces its label */
    size_t nmarks;
};

/*
 * Fails with CODE_DATA when there is no finite loss to draw, CODE_IO when memory or the stream fails. A curve of many
 * steps is thinned to its extremes in each pixel's column, which looks the same: the file stays below about 200 KiB.
 */
int plot_write(FILE *out, const struct plot *plot, struct error *err);

/* ---- for plot.c (marks.c): the marks, with labels in rows so that they do not overlap; and the axes' ticks */

#define MARKS_FONT 11.0 /* pixels */
enum { MARKS_ROWS = 5 };

/*
 * The changes of mesh in the plot's steps ("shrunk: 4 -> 2 ranks at step 120", with a real arrow; just "4 -> 2
 * ranks" when there are many) and the user's marks, by step, in an array that the caller frees.
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
 * An axis for data from lo to hi (finite, in any order, may be equal) with at most `most` (>= 4) ticks. With `cover` it
 * is widened to a tick at both ends; else it keeps the data's range and has only the ticks within it, at least one.
 */
struct axis axis_make(double lo, double hi, int most, bool cover);

double axis_tick(const struct axis *axis, int index);

/* Tick's text: as many decimals as the step needs, thousands grouped: 0.25, 3, 12,000. Returns buf. */
const char *axis_label(const struct axis *axis, int index, char *buf, size_t size);

#endif

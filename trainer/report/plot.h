/*
 * plot.h - a run's loss curve as one self-contained SVG: training loss, validation losses, the loss of a reference run,
 * and a labelled line wherever the mesh changed.
 */
#ifndef MUSTER_TRAINER_REPORT_PLOT_H
#define MUSTER_TRAINER_REPORT_PLOT_H

#include <stddef.h>
#include <stdio.h>

#include "trainer/report/metrics.h"

/* A vertical line with a label. The caller of plot_write sets the first two. */
struct mark {
    long step;
    char label[96];
    double x, from, to; /* the line and the label's extent */
    int row;            /* of the label, 0 is nearest to the plot; -1: no room */
};

struct plot {
    const char *title;
    const struct metrics_step *steps; /* the run; steps whose loss is not finite leave a gap */
    size_t nsteps;
    const struct metrics_step *reference; /* another run to compare with; may be NULL */
    size_t nreference;
    struct mark *marks; /* the user's; one at the step of a mesh change replaces its label */
    size_t nmarks;
};

/*
 * Fails with CODE_DATA when there is no finite loss to draw, CODE_IO without memory; the caller checks the stream. A
 * curve of many steps is thinned to its extremes in each pixel's column, which looks the same: the file stays below
 * about 200 KiB.
 */
int plot_write(FILE *out, const struct plot *plot, struct error *err);

#endif

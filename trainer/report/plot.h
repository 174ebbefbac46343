/*
 * plot.h - a run's loss curve as one self-contained SVG: training loss, validation losses, the loss of a reference run,
 * and a labelled line wherever the mesh changed.
 */
#ifndef MUSTER_TRAINER_REPORT_PLOT_H
#define MUSTER_TRAINER_REPORT_PLOT_H

#include <stdio.h>

#include "trainer/report/metrics.h"

struct plot_mark {
    long step;
    const char *label;
};

struct plot {
    const char *title;
    const struct metrics_step *steps; /* the run; steps whose loss is not finite leave a gap */
    size_t nsteps;
    const struct metrics_step *reference; /* another run to compare with; may be NULL */
    size_t nreference;
    const struct plot_mark *marks; /* the user's; one at the step of a mesh change replaces its label */
    size_t nmarks;
};

/*
 * Fails with CODE_DATA when there is no finite loss to draw, CODE_IO when memory or the stream fails. A curve of many
 * steps is thinned to its extremes in each pixel's column, which looks the same: the file stays below about 200 KiB.
 */
int plot_write(FILE *out, const struct plot *plot, struct error *err);

#endif

/*
 * segments.h - a run cut where its mesh changed: which steps were done by whom, and how fast.
 */
#ifndef MUSTER_TRAINER_REPORT_SEGMENTS_H
#define MUSTER_TRAINER_REPORT_SEGMENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/report/metrics.h"

struct segment {
    long first_step, last_step;
    size_t steps; /* lines */
    int world, dp, tp, pp;
    double seconds, tokens; /* sums; tokens is rate times time */
    double mfu;             /* mean over its time, NaN where no step has one */
};

/* The segments of a run, in an array that the caller frees. No steps make none, and NULL. -1 with CODE_IO for no
 * memory. */
int segments_make(const struct metrics_step *steps, size_t count, struct segment **segments, size_t *nsegments,
                  struct error *err);

bool segments_same_mesh(const struct metrics_step *a, const struct metrics_step *b);

#endif

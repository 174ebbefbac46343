/*
 * summary.h - a run on one screen: how far, how good, how fast, on whom.
 */
#ifndef MUSTER_TRAINER_REPORT_SUMMARY_H
#define MUSTER_TRAINER_REPORT_SUMMARY_H

#include <stdbool.h>
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

#endif

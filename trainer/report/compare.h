/*
 * compare.h - two runs step by step: are they the same training? Pure arithmetic on what metrics_read gave.
 */
#ifndef MUSTER_TRAINER_REPORT_COMPARE_H
#define MUSTER_TRAINER_REPORT_COMPARE_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/report/metrics.h"

struct compare_run {
    size_t steps;      /* different ones */
    long first, last;  /* step numbers; 0 where there are none */
    size_t repeated;   /* lines whose step was there before; the last line of a step counts */
    long repeated_at;  /* the first such step */
    size_t only_here;  /* steps that the other run lacks */
    long only_here_at; /* the first such step */
};

struct comparison {
    struct compare_run a, b;
    size_t common; /* steps in both */
    size_t equal;  /* of those, with the very same loss; NaN equals NaN */
    double worst;  /* greatest |a - b| / max(|a|, |b|) over them; infinite where one is NaN and the other is not */
    long worst_at; /* its step; 0 where all are equal */
    double loss_a, loss_b; /* there */
};

/* -1 with CODE_IO where there is no memory. */
int compare_runs(struct comparison *result, const struct metrics_step *a, size_t na, const struct metrics_step *b,
                 size_t nb, struct error *err);

double compare_relative(double a, double b);

/* A run cut where its mesh changed: which steps were done by whom, and how fast. */
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

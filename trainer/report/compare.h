/* compare.h - compares the losses of two runs step by step, and divides a run by its meshes. Pure functions. */
#ifndef MUSTER_TRAINER_REPORT_COMPARE_H
#define MUSTER_TRAINER_REPORT_COMPARE_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/report/metrics.h"

struct compare_run {
    size_t steps;      /* distinct ones */
    long first, last;  /* step numbers; 0 if there are none */
    size_t repeated;   /* lines of a step that already had one; the last line of a step counts */
    long repeated_at;  /* the first such step */
    size_t only_here;  /* steps that the other run lacks */
    long only_here_at; /* the first such step */
};

struct comparison {
    struct compare_run a, b;
    size_t common; /* steps in both */
    size_t equal;  /* of those, with exactly the same loss; NaN equals NaN */
    double worst;  /* greatest |a - b| / max(|a|, |b|) over them; infinite where one is NaN and the other is not */
    long worst_at; /* its step; 0 where all are equal */
    double loss_a, loss_b; /* there */
};

/* -1 with CODE_IO when out of memory. */
int compare_runs(struct comparison *result, const struct metrics_step *a, size_t na, const struct metrics_step *b,
                 size_t nb, struct error *err);

double compare_relative(double a, double b);

/* A part of a run on one mesh. */
struct run_segment {
    long first_step, last_step;
    size_t steps; /* lines */
    int world, dp, tp, pp;
    double seconds, tokens; /* sums; tokens is rate times time */
    double mfu;             /* mean over its time; NaN if no step has one */
};

/* The segments of a run, in an array that the caller frees; NULL without steps. -1 with CODE_IO when out of memory. */
int segments_make(const struct metrics_step *steps, size_t count, struct run_segment **segments, size_t *nsegments,
                  struct error *err);

bool segments_same_mesh(const struct metrics_step *a, const struct metrics_step *b);

#endif

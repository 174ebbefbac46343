/* summary.h - what happened in a run: losses, speed and meshes on one screen; and the losses of two runs compared. */
#ifndef MUSTER_TRAINER_REPORT_SUMMARY_H
#define MUSTER_TRAINER_REPORT_SUMMARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "trainer/report/metrics.h"

struct summary {
    const char *name; /* the heading */
    const struct metrics_step *steps;
    size_t count;
    int columns; /* of the screen */
    bool utf8;
};

/* Fails with CODE_DATA if there is no step, CODE_IO if memory or the stream fails. */
int summary_print(FILE *out, const struct summary *summary, struct error *err);

/* A part of a run on one mesh. */
struct run_segment {
    const struct metrics_step *first, *last; /* both with its mesh */
    size_t steps;                            /* lines */
    double seconds, tokens;                  /* sums; tokens is rate times time */
    double tflops, mfu, hfu;                 /* means over its time; NaN if no step has one */
};

/* The segments of a run, in an array that the caller frees, and that points to the steps; NULL without steps. -1 with
 * CODE_IO when out of memory. */
int segments_make(const struct metrics_step *steps, size_t count, struct run_segment **segments, size_t *nsegments,
                  struct error *err);

bool segments_same_mesh(const struct metrics_step *a, const struct metrics_step *b);

enum { SUMMARY_CHART_MOST = 200 };

/*
 * The loss drawn with characters, as Braille dots, eight a character, with utf8. width and height are those of the
 * drawing in characters, without the labels, and at most SUMMARY_CHART_MOST. Prints nothing if no loss is finite.
 *
 *     10.92 | *
 *           |  **
 *           |    ****
 *      4.31 |        *****
 *           +--------------
 *            1          200
 */
void summary_chart(FILE *out, const struct metrics_step *steps, size_t count, int width, int height, bool utf8);

/* ---- two runs, step by step ---- */

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

#endif

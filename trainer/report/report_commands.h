/* report_commands.h - the commands of muster-report: each shows metrics (metrics.h) in its way. */
#ifndef MUSTER_TRAINER_REPORT_REPORT_COMMANDS_H
#define MUSTER_TRAINER_REPORT_REPORT_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "trainer/report/metrics.h"

/* One of several that are shown together. */
struct report_run {
    const char *name; /* as the user named the file */
    struct metrics metrics;
};

/* ---- follow.c ---------------------------------------------------------------------------------------------------- */

/*
 * Shows the progress of a run by its metrics.
 *
 * On a terminal one line is redrawn; elsewhere a line is printed every few seconds. Changes ("resumed at step 121 on 2
 * ranks (was 4)") get their own lines. It prints to stdout and catches SIGINT and SIGTERM.
 *
 * It follows the name, not the file: the file may be created later, and may be replaced by a rename or truncated; then
 * it is read again. It is polled, because network file systems support nothing else.
 */

struct follow {
    const char *path; /* metrics.jsonl; it may not exist yet */
    long steps;       /* end at this step; 0: unknown, and no bar */
    long pid;         /* end when this process has ended; 0: none */
    double interval;  /* seconds between lines if stdout is not a terminal */
};

/* Returns 0 at the run's end or after a signal. */
int follow_run(const struct follow *follow, struct error *err);

/* ---- plot.c ------------------------------------------------------------------------------------------------------ */

/*
 * A run's loss curve as one self-contained SVG: training loss, validation losses, the loss of a reference run,
 * and a labelled line wherever the mesh changed, or the run went on from a checkpoint.
 */

#define PLOT_OTHERS_MOST 7

struct plot {
    const char *title;
    struct metrics run;              /* borrowed; steps whose loss is not finite leave a gap */
    const char *name;                /* of the run; is shown if there are others */
    const struct report_run *others; /* each is a curve of its own colour, without marks and validations; borrowed */
    size_t nothers;                  /* at most PLOT_OTHERS_MOST */
    struct metrics reference;        /* another run to compare with; may have no steps */
};

/*
 * Fails with CODE_DATA when there is no finite loss to draw, CODE_IO without memory; the caller checks the stream. A
 * curve of many steps is thinned to its extremes in each pixel's column, which looks the same: the file stays below
 * about 200 KiB.
 */
int plot_write(FILE *out, const struct plot *plot, struct error *err);

/* ---- html.c ------------------------------------------------------------------------------------------------------ */

/*
 * Runs as one page of HTML that needs no other file and no network: page.html with the runs as JSON in it. Its script
 * draws the losses, the rates, the learning rate, the norm of the gradient and the loss scale over the steps, with a
 * mark for each change of mesh and each start that went on, and a stroke for each checkpoint. Tables have the runs, with
 * their checkpoints, memory and GPUs, their meshes and their restarts; hang reports can be opened, if their files are
 * where the run has written them. A series without a finite value is not drawn.
 *
 * The page stays below 2 MB. A run of more than 2000 steps (fewer if there are more than three runs) is thinned to
 * buckets of steps with the mean of each. Of losses, tokens/s, seconds a step and the norm a bucket also has the least
 * and the greatest value. Of many meshes and restarts the page has the last ones.
 *
 * Fails with CODE_USAGE for more than HTML_RUNS_MOST runs, CODE_DATA for a run without a step, CODE_IO without memory;
 * the caller checks the stream.
 */
#define HTML_RUNS_MOST 100

int html_write(FILE *out, const struct report_run *runs, size_t count, struct error *err);

/* ---- summary.c --------------------------------------------------------------------------------------------------- */

/* What happened in a run: losses, speed, meshes and restarts on one screen; and the losses of two runs compared. */

/*
 * `name` is the heading. json: all of it as one object, with at most so many of the last meshes, and of the last starts;
 * 0: as text. CODE_DATA if there is no step. The caller checks the stream.
 */
int summary_print(FILE *out, const char *name, size_t json, const struct metrics *metrics, struct error *err);

/* A part of a run on one mesh. */
struct run_segment {
    const struct metrics_step *first, *last; /* both with its mesh */
    size_t steps;                            /* lines */
    double seconds, tokens;                  /* sums; tokens is rate times time */
    double tflops, mfu, hfu;                 /* means over its time; NaN if no step has one */
    double before_2022, mosaic[4]; /* the same by other conventions: MosaicML's MFU and HFU, then without attention */
};

/* The segments of a run, in an array that the caller frees, and that points to the steps; NULL without steps. -1 with
 * CODE_IO when out of memory. */
int segments_make(const struct metrics_step *steps, size_t count, struct run_segment **segments, size_t *nsegments,
                  struct error *err);

bool segments_same_mesh(const struct metrics_step *a, const struct metrics_step *b);

/* Whether the run has gone on with this start; otherwise it began. */
bool start_went_on(const struct metrics_start *start);

/* What a start cost, from the fault, or else from the end of the last step before it, to its own first step. */
enum start_phase {
    START_WAIT,  /* a new job, or a requeued one: for its nodes */
    START_END,   /* a restart: for the step with the fault to end */
    START_CHECK, /* a restart: of the nodes */
    START_LOAD,  /* the program's start, with the checkpoint, without the drain */
    START_DRAIN,
    START_STEP, /* the first one */
    START_PHASES,
};

/* Seconds of each phase, NaN where there was none; returns all of them, NaN if no step followed. */
double start_measure(const struct metrics_start *start, double phases[START_PHASES]);

/* The time for which jobs of the run had nodes, as far as its events tell; 0 without events. Goodput is the time of the
 * file's steps since then, *counted, divided by this: steps that were done again count once. */
double starts_allocated(const struct metrics *metrics, double *counted);

/* ---- where.c ----------------------------------------------------------------------------------------------------- */

/*
 * Where the time of a run went (struct metrics_where), a table for each mesh, with the predictions of a file that
 * muster-plan --json wrote, or NULL. CODE_IO without PATH.events, CODE_DATA if it does not tell.
 */
int where_print(FILE *out, const char *path, const char *plan_path, struct error *err);

/* What it tells of the last mesh beside the times, as an object with numbers: device_mib, host_mib, and of GPUs watts,
 * power_limited, sm_mhz, celsius; each if it is known. */
struct json_t *where_measured(const char *path);

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

/*
 * progress.h - the lines that show a run's progress. Pure functions, except for terminal_inspect.
 *
 * On a terminal it is one line, fitted to the width:
 *
 *     120/200 ━━━━━━━━━━━━━━━━━━────────────  loss 5.0625  12.3k tok/s  4 ranks  ETA 1:23
 *
 * If it does not fit, fields are left out in this order: MFU, ranks, tokens/s, the bar, ETA, loss. The step stays.
 */
#ifndef MUSTER_TRAINER_REPORT_PROGRESS_H
#define MUSTER_TRAINER_REPORT_PROGRESS_H

#include <stdbool.h>
#include <stdio.h>

#include "trainer/report/metrics.h"

#define PROGRESS_SIZE 1024 /* more than any line has */

/* The capabilities of the user's terminal. Call setlocale(LC_CTYPE, "") first. */
struct terminal {
    bool live;   /* a line can be redrawn: not a file, a pipe, or TERM=dumb */
    bool colour; /* live, and NO_COLOR (no-color.org) is not set */
    bool utf8;   /* the locale's encoding */
    int columns; /* 80 if unknown */
};

struct terminal terminal_inspect(int fd);

/*
 * Writes the line, without a newline, at most `columns` wide; without a bar if the terminal is not live. steps: of the
 * whole run; 0: unknown, no bar and no ETA. eta: seconds. Of these and of the step what is NaN is not shown, except for
 * the loss, and world 0.
 */
void progress_line(char line[PROGRESS_SIZE], int columns, const struct terminal *terminal,
                   const struct metrics_step *step, long steps, double eta);

/* On a terminal, shows that line in place of the one before; step NULL: erases that. */
void progress_show(FILE *out, const struct metrics_step *step, long steps, double eta);

/*
 * ---- elsewhere: the log line, in exactly the format of BigScience's Megatron-DeepSpeed, so that scripts for those
 * logs can read ours
 */

#define LOG_LINE_SIZE 768 /* enough for all realistic numbers */

/* Means and counts are over the steps since the previous line. */
struct log_line {
    struct metrics_step mean; /* step and consumed_samples are the last; loss is that of a BERT's tokens */
    long steps;               /* "iteration step/steps" */
    long consumed_tokens;
    int global_batch; /* samples a step */
    bool bert;
    int skipped; /* steps without an update */
    int nans;    /* steps whose loss was not finite */
};

/* The same number, which prints "nan" and not "-nan". */
double unsigned_nan(double x);

/* Writes the line, without a newline, cut to the buffer. "num zeros" is always 0: they are not counted. MFU and HFU are
 * not in Megatron's line, so they come last; they are left out if NaN. */
void log_line_format(char text[LOG_LINE_SIZE], const struct log_line *line);

/* ---- numbers for people; each function returns buf ---- */

#define UNITS_SIZE 32

/* Three digits and a suffix: 0, 7.25, 12.3k, 131M, 1.05G, 2.00T. "-" when not finite. */
const char *units_count(char buf[UNITS_SIZE], double value);

/* 0:07, 12:34, 1:02:03, 3d04:05 (days, hours, minutes). "-" when not finite or negative. */
const char *units_duration(char buf[UNITS_SIZE], double seconds);

/* 1234567 as 1,234,567. */
const char *units_grouped(char buf[UNITS_SIZE], long value);

#endif

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

#define PROGRESS_SIZE 1024 /* more than any line has */

struct progress {
    long step;
    long steps;               /* of the whole run; 0: unknown, no bar and no ETA */
    double loss;              /* NaN is shown */
    double tokens_per_second; /* NaN here and below: not shown */
    double mfu;               /* 0 to 1 */
    double eta_seconds;
    int ranks; /* 0: not shown */
};

/* The capabilities of the user's terminal. Call setlocale(LC_CTYPE, "") first. */
struct terminal {
    bool live;   /* a line can be redrawn: not a file, a pipe, or TERM=dumb */
    bool colour; /* live, and NO_COLOR (no-color.org) is not set */
    bool utf8;   /* the locale's encoding */
    int columns; /* 80 if unknown */
};

struct terminal terminal_inspect(int fd);

/* Writes the line, without a newline, at most `columns` wide; without a bar if the terminal is not live. */
void progress_line(char line[PROGRESS_SIZE], int columns, const struct terminal *terminal,
                   const struct progress *progress);

/*
 * ---- elsewhere: the log line, in exactly the format of BigScience's Megatron-DeepSpeed, so that scripts for those
 * logs can read ours
 */

#define LOG_LINE_SIZE 768 /* enough for all realistic numbers */

/* Means and counts are over the steps since the previous line. */
struct log_line {
    long step, steps; /* "iteration step/steps" */
    long consumed_samples;
    long consumed_tokens;
    double step_seconds; /* mean */
    double lr;
    int global_batch; /* samples a step */
    double loss;      /* mean; of a BERT's tokens */
    bool bert;
    double order_loss; /* of a BERT's sentence order */
    double loss_scale;
    double grad_norm;
    int skipped; /* steps without an update */
    int nans;    /* steps whose loss was not finite */
    double samples_per_second;
    double tflops;   /* of one rank, by Megatron's formula */
    double mfu, hfu; /* 0 to 1. Not in Megatron's line, so they come last; left out if NaN */
};

/* Writes the line, without a newline, cut to the buffer. "num zeros" is always 0: they are not counted. */
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

/*
 * log_line.h - the trainer's log line, in exactly the format of BigScience's Megatron-DeepSpeed, so that scripts for
 * those logs can read ours. A pure function.
 */
#ifndef MUSTER_TRAINER_REPORT_LOG_LINE_H
#define MUSTER_TRAINER_REPORT_LOG_LINE_H

#include <stdbool.h>
#include <stddef.h>

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
    double zeros; /* gradient elements that are exactly 0; not counted, so 0 */
    int skipped;  /* steps without an update */
    int nans;     /* steps whose loss was not finite */
    double samples_per_second;
    double tflops;   /* of one rank, by Megatron's formula */
    double mfu, hfu; /* 0 to 1. Not in Megatron's line, so they come last; left out if NaN */
};

/* Returns the length of the line in buf, which has no newline and is truncated to `size`. */
size_t log_line_format(char *buf, size_t size, const struct log_line *line);

#endif

/*
 * log_line.h - the trainer's log line, word for word that of Megatron-DeepSpeed as BigScience ran it, so that the
 * scripts people have for those logs read ours. A pure function.
 */
#ifndef MUSTER_TRAINER_REPORT_LOG_LINE_H
#define MUSTER_TRAINER_REPORT_LOG_LINE_H

#include <stdbool.h>
#include <stddef.h>

#define LOG_LINE_SIZE 768 /* enough for any line but one of absurd numbers, which is cut */

/* Means and counts are over the steps since the line before. */
struct log_line {
    long step, steps; /* "iteration step/steps" */
    long consumed_samples;
    long consumed_tokens;
    double step_seconds; /* mean */
    double lr;
    int global_batch; /* samples a step */
    double loss;      /* mean; of a BERT's tokens */
    bool bert;
    double order_loss; /* of a BERT's sentence order, as Megatron's BERT shows it */
    double loss_scale;
    double grad_norm;
    double zeros; /* gradient elements that are exactly 0; 0 where nobody counts */
    int skipped;  /* steps whose update was left out */
    int nans;     /* steps whose loss was no number */
    double samples_per_second;
    double tflops;   /* of one rank, by Megatron's formula */
    double mfu, hfu; /* 0 to 1. Megatron has no such words: they stand last, and not at all where they are NaN */
};

/* Returns the length of the line in buf, which has no newline and is cut where size is too small. */
size_t log_line_format(char *buf, size_t size, const struct log_line *line);

#endif

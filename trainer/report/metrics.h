/*
 * metrics.h - metrics.jsonl: one JSON object a line, one line a training step.
 *
 *     {"step":120,"consumed_samples":30720,"loss":5.0625,...,"world":4,"dp":2,"tp":2,"pp":1}
 *
 * Keys, always all of them and in this order: step consumed_samples loss lr grad_norm loss_scale skipped step_seconds
 * tokens_per_second tflops mfu hfu world dp tp pp; order_loss of a BERT; valid_loss on the steps that were validated,
 * and of a BERT valid_order_loss. A number that is not finite (the loss of a run that diverged) is null, and reads back
 * as NaN; the last three are left out then. Results (losses, lr, grad_norm, loss_scale) are written with as many digits
 * as bring back the same double; measurements with nine.
 *
 * The file belongs to the run, not to the job: a job that resumes appends to it, after taking out what the job before
 * did beyond its last checkpoint. So every step is there once, in order, whatever happened to the jobs.
 *
 * Only one process writes (rank 0 of the trainer); any number may read while it does.
 */
#ifndef MUSTER_TRAINER_REPORT_METRICS_H
#define MUSTER_TRAINER_REPORT_METRICS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

#define METRICS_LINE_SIZE 1024 /* of any line that metrics_format makes, with its newline and a 0 */

struct metrics_step {
    long step;             /* from 1 */
    long consumed_samples; /* by all steps up to and with this one */
    double loss;           /* mean over the global batch, in nats a token; of a BERT with order_loss */
    double lr;
    double grad_norm;         /* before clipping */
    double loss_scale;        /* 1 where there is none */
    int skipped;              /* 1 when the update was left out, because a gradient was not finite; else 0 */
    double step_seconds;      /* wall clock */
    double tokens_per_second; /* of all ranks together */
    double tflops;            /* of one rank, by Megatron's formula; see plan/flops.h */
    double mfu, hfu;          /* PaLM's, 0 to 1 */
    int world, dp, tp, pp;    /* the mesh that did this step */
    double order_loss;        /* of the sentences' order, which is part of loss; NaN for a GPT */
    double valid_loss;        /* NaN when the step was not validated */
    double valid_order_loss;  /* part of it, as of loss */
};

/* One step as one line, with its newline, into buf of METRICS_LINE_SIZE bytes. Returns its length. */
size_t metrics_format(char *buf, const struct metrics_step *step);

/*
 * The reverse, strict: every key once, none unknown, counts whole and in range. `text` need not end in 0, and may end
 * in a newline. Fails with CODE_DATA; the text does not say where the line is from: the caller knows, and prefixes it.
 */
int metrics_parse(struct metrics_step *step, const char *text, size_t length, struct error *err);

/* ---- writing ---- */

struct metrics_writer;

/*
 * Opens a run's metrics for appending; makes the file when there is none. A run that goes on after step resume_step
 * (0 for one that starts) first loses its lines beyond that step, and a last line that a crash left torn: the file is
 * written anew beside the old one and renamed over it, so that a reader or another crash sees either the old or the
 * new. Fails with CODE_IO, or CODE_DATA when a line (other than a torn last one) is no step.
 */
struct metrics_writer *metrics_open(const char *path, long resume_step, struct error *err);

/* Appends one step by one write(2), so that no reader sees half a line. A write cut short (disk full) is taken back. */
int metrics_write(struct metrics_writer *writer, const struct metrics_step *step, struct error *err);

/*
 * True once, within seconds of another file having taken the name, or of nobody having it: two jobs in one directory,
 * by an sbatch too many. The second has renamed its lines over ours, and nobody will find what we write.
 */
bool metrics_displaced(struct metrics_writer *writer);

/* Puts what was written on disk. Call it before a checkpoint commits: then no step up to the checkpoint is ever
 * missing. */
int metrics_sync(struct metrics_writer *writer, struct error *err);

void metrics_close(struct metrics_writer *writer); /* NULL is harmless */

/* ---- reading ---- */

/*
 * All steps of a file, in its order, in an array that the caller frees. A last line without a newline is one that is
 * just being written, or that a crash tore: it is left out. Any other line that is no step fails with CODE_DATA and
 * "FILE:LINE: what is wrong". An empty file is no error: 0 steps.
 */
int metrics_read(const char *path, struct metrics_step **steps, size_t *count, struct error *err);

/*
 * The same one line at a time, for who wants the text too. `line` ends in its newline and is valid during the call. A
 * visit that returns other than 0 ends the walk, and the walk returns that. *torn (may be NULL) tells of a torn last
 * line.
 */
typedef int metrics_visit(const struct metrics_step *step, const char *line, size_t length, void *arg);
int metrics_each(const char *path, metrics_visit *visit, void *arg, bool *torn, struct error *err);

#endif

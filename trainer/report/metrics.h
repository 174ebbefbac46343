/*
 * metrics.h - metrics.jsonl: one JSON object a line, one line a training step.
 *
 *     {"step":120,"consumed_samples":30720,"loss":5.0625,...,"world":4,"dp":2,"tp":2,"pp":1}
 *
 * Always all of these keys, in this order: step consumed_samples loss lr grad_norm loss_scale skipped step_seconds
 * tokens_per_second tflops mfu hfu world dp tp pp; for a BERT order_loss; last, on validated steps valid_loss, and for
 * a BERT valid_order_loss. A number that is not finite (the loss of a run that diverged) or does not exist (the mean
 * loss of no token) is null, and reads back as NaN; order_loss and valid_order_loss are left out then. With a blend,
 * set_losses is an array with each data set's mean loss of a token since the previous one, in the order of data.train,
 * on the steps of log lines; and valid_set_losses on validated steps. Readers here check the arrays and leave them out.
 * Results (losses, lr, grad_norm, loss_scale) are written with enough digits to read back the same double; measurements
 * with nine.
 *
 * The file belongs to the run, not to the job: a job that resumes removes the steps beyond its checkpoint and appends.
 * So every step is in the file once, in order, whatever happened to the jobs.
 *
 * Only one process writes (rank 0 of the trainer); any number may read while it does.
 */
#ifndef MUSTER_TRAINER_REPORT_METRICS_H
#define MUSTER_TRAINER_REPORT_METRICS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

#define METRICS_SETS_MOST 128
#define METRICS_LINE_SIZE 8192 /* of any line that metrics_format makes, with its newline and a 0 */

struct metrics_step {
    long step;             /* from 1 */
    long consumed_samples; /* by all steps up to this one, included */
    double loss;           /* mean over the global batch, in nats a token; of a BERT with order_loss */
    double lr;
    double grad_norm;         /* before clipping */
    double loss_scale;        /* 1 for none */
    int skipped;              /* 1 if there was no update, because a gradient was not finite; else 0 */
    double step_seconds;      /* wall clock */
    double tokens_per_second; /* of all ranks together */
    double tflops;            /* of one rank, by Megatron's formula; see plan/cost.h */
    double mfu, hfu;          /* PaLM's, 0 to 1 */
    int world, dp, tp, pp;    /* the mesh that did this step */
    /* By other conventions (plan/cost.h), each optional: 0 for none. _params: without attention */
    double tflops_before_2022, mosaicml_mfu, mosaicml_hfu, mosaicml_mfu_params, mosaicml_hfu_params;
    double order_loss;       /* of the sentences' order, which is part of loss; NaN for a GPT */
    bool validated;          /* valid_loss is that of this step */
    double valid_loss;       /* NaN when the step was not validated, or its validation predicted nothing */
    double valid_order_loss; /* of the sentences' order, which is part of valid_loss */

    /* to be written, each if its number is not 0; borrowed. A step that was read has none */
    int sets, valid_sets;
    const double *set_losses,
        *valid_set_losses; /* [sets] and [valid_sets], at most METRICS_SETS_MOST; NaN: no prediction */
};

/* One step as one line, with its newline, into buf of METRICS_LINE_SIZE bytes. Returns its length. */
size_t metrics_format(char *buf, const struct metrics_step *step);

/* The end of such a line: what a validation adds to it, and "}\n". */
size_t metrics_format_end(char *buf, size_t size, const struct metrics_step *step);

/*
 * The reverse, strict: every key once, counts whole and in range. Unknown keys are a later release's, and ignored.
 * `text` need not end in 0, and may end in a newline. Fails with CODE_DATA; the caller prefixes the error with file and
 * line.
 */
int metrics_parse(struct metrics_step *step, const char *text, size_t length, struct error *err);

/* Complete lines that are not steps, such as the zeros or half lines of a power loss. They are left out. */
struct metrics_damage {
    size_t lines;
    struct error first;       /* of the first: "FILE:LINE: what is wrong" */
    char kept[PATH_MAX + 24]; /* metrics_open: the file as it was */
};

/* ---- writing ---- */

struct metrics_writer;

/*
 * After metrics_open, no call waits for longer than some seconds for a file system that does not answer. The steps are
 * then written when it answers again; a failure is returned by a later call.
 */

/*
 * Opens a run's metrics for appending; creates the file if there is none. For a run that resumes after step resume_step
 * (0 for a new one) it first removes the lines beyond that step, a torn last line that a crash left, and damaged lines:
 * a new file is written and renamed over the old one, so that a reader or another crash sees either the old or the new.
 * A file with damaged lines is kept beside it, as FILE.damaged, .damaged-2 and so on. Fails with CODE_IO; with
 * CODE_CONFIG for a FIFO that nobody reads, a socket, a directory or a disk.
 */
struct metrics_writer *metrics_open(const char *path, long resume_step, struct metrics_damage *damage,
                                    struct error *err);

/* Appends one step, so that no reader of the file sees half a line. A short write (disk full) is removed again. A later
 * call fails if the reader of a pipe that is full does not read for 10 seconds. */
int metrics_write(struct metrics_writer *writer, const struct metrics_step *step, struct error *err);

/* Whether the last line that metrics_open kept is that of `step`, and has a validation. */
bool metrics_has_validation(const struct metrics_writer *writer, long step);

/* Adds the validation of a step to its line, if that is the last one that metrics_open kept and has none. Call before
 * metrics_write. Replaces the file as metrics_open does. */
int metrics_add_validation(struct metrics_writer *writer, const struct metrics_step *step, struct error *err);

/*
 * True once, some seconds after the file was replaced or removed: a second job in the same directory has renamed its
 * own file over this one, and the lines that are written here are lost.
 */
bool metrics_displaced(struct metrics_writer *writer);

/* Flushes to disk. Called before a checkpoint is committed, so that no step before the checkpoint is ever missing. */
int metrics_sync(struct metrics_writer *writer, struct error *err);

void metrics_close(struct metrics_writer *writer); /* may be NULL */

/* ---- reading ---- */

/*
 * All steps of a file, in its order, in an array that the caller frees. A last line without a newline is being written,
 * or was torn by a crash, and is left out, unless it is a whole step. Any other line that is not a step is damaged. If
 * all are, the file is not one of metrics: CODE_DATA, and the first. An empty file has 0 steps.
 */
int metrics_read(const char *path, struct metrics_step **steps, size_t *count, struct metrics_damage *damage,
                 struct error *err);

/* What becomes of a step of a file. `line` has no newline. */
typedef int metrics_take_step(void *arg, const struct metrics_step *step, const char *line, struct error *err);

/* Calls `take` for each step, until it fails. -1 with its error, or with CODE_IO. */
int metrics_each_step(const char *path, metrics_take_step *take, void *arg, struct metrics_damage *damage,
                      struct error *err);

#endif

/*
 * metrics.h - metrics.jsonl: one JSON object a line, one line a training step.
 *
 *     {"step":120,"consumed_samples":30720,"loss":5.0625,...,"world":4,"dp":2,"tp":2,"pp":1}
 *
 * Always all of these keys, in this order: step consumed_samples loss lr grad_norm loss_scale skipped step_seconds
 * tokens_per_second tflops mfu hfu world dp tp pp; time, where it is known; for a BERT order_loss; last, on validated
 * steps valid_loss, and for a BERT valid_order_loss. A number that is not finite (the loss of a run that diverged) or
 * does not exist (the mean loss of no token) is null, and reads back as NaN; order_loss and valid_order_loss are left
 * out then. With a blend, set_losses is an array with each data set's mean loss of a token since the previous one, in
 * the order of data.train, on the steps of log lines; and valid_set_losses on validated steps. Readers here check the
 * arrays and leave them out.
 * Results (losses, lr, grad_norm, loss_scale) are written with enough digits to read back the same double; measurements
 * with nine.
 *
 * The file belongs to the run, not to the job: a job that resumes removes the steps beyond its checkpoint and appends.
 * So every step is in the file once, in order, whatever happened to the jobs. It has one writer while the run lives, in a
 * process of its own; any number may read.
 */
#ifndef MUSTER_TRAINER_REPORT_METRICS_H
#define MUSTER_TRAINER_REPORT_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

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
    double time;              /* when it ended, in seconds since 1970; 0: not known */
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

/*
 * PATH.events: a JSON object a line. "event" is its kind: "start" each time that a job began the run or went on with it,
 * "first_step" when the step that followed ended, "checkpoint" and "where". Nothing is cut from it; lines may be empty.
 * Times are in seconds since 1970; 0 for none.
 */
struct metrics_start {
    long step;            /* of the checkpoint that the run went on from; 0: it was new */
    long repeated;        /* steps of the file that are done again */
    double last;          /* when the last step of the file ended */
    char job[32];         /* "17", or "17.1" after the first requeue; "" without Slurm */
    double job_began;     /* where Slurm does not tell, when the trainer began */
    double drain_seconds; /* in which this start drained saves of an earlier run */
    double ready;         /* when the first step could begin */
    double first_step;    /* when it ended */
    /* of a restart by muster-supervise(1), from MUSTER_RESTART */
    double fault, ended, checked; /* when the fault was named, its step had ended, and the nodes were checked */
    char nodes[256];              /* that it was on, with commas; "" for none */
    char cause[512];
    const char *hang; /* the directory of a hang report, if there will be one; NULL for none, and in what is read */
};

/* Its line, with its newline, into buf of METRICS_LINE_SIZE bytes. The process that writes it adds `repeated` and `last`.
 * With `ready` 0, the line of the first step. Returns its length. */
size_t metrics_format_start(char *buf, const struct metrics_start *s);

/* The line of a checkpoint that is committed, so many seconds after its save began. */
size_t metrics_format_saved(char *buf, long step, double seconds);

/* Where the time of some steps has gone, and what they took; a line of PATH.events, at most one a minute. */
#define METRICS_SHARES_MOST 16
#define METRICS_GPU_MOST    5

struct metrics_where {
    long steps;
    int dp, tp, pp;
    const char *const *names; /* [shares] */
    int shares;
    double mean[METRICS_SHARES_MOST], rank0[METRICS_SHARES_MOST]; /* seconds; the mean of all ranks, and rank 0's */
    const char *slowest;         /* the node of the rank that computed for the longest, against the mean of its stage */
    double slower;               /* 1.08: 8% longer */
    double device_mib, host_mib; /* of memory, the most of any rank: the peak of the device's; the host's, resident */
    /* what NVIDIA's driver tells of the ranks' GPUs; without a reading the line has nothing of them */
    const char *const *gpu_names; /* [METRICS_GPU_MOST] */
    double gpu_sums[METRICS_GPU_MOST];
    long gpu_readings[METRICS_GPU_MOST];
    const char *lowest; /* the node of the GPU with the lowest clock; NULL for none */
    double lowest_mhz, lowest_celsius;
    double ecc, xid; /* uncorrected errors of their memory; the first error, by NVIDIA's number, or 0 */
};

size_t metrics_format_where(char *buf, const struct metrics_where *w);

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/*
 * A file system may keep a process that calls it, and nothing can end that process before it answers. So none of the
 * trainer's does: rank 0 starts `muster-report --write` (trainer/run_metrics.c), which ends soon after the run has, or
 * when its file system answers.
 *
 * Its standard input is a socket of messages. Each is a line, and is answered by "+" when it is done:
 *     {"step":120,...}                    is appended, so that no reader of the file sees half a line
 *     v120 ,"valid_loss":3.5}             metrics_format_end of that step: its line gets this, if it was the last one in
 *                                         the file and had no validation
 *     s                                   the lines before it are flushed to disk
 *     e{"event":...}                      is appended to PATH.events, a start with `repeated` and `last`; this is not
 *                                         tried again
 *     p# HELP muster_step ...             becomes the file of prometheus.h; this is not tried again
 * A line that fails is tried again every few seconds, once more when the run has ended, and those after it wait. Other
 * messages of the writer:
 *     o120 1                              the file is open, and ends with step 120 (0: it is empty), with a validation
 *     !cannot write ...                   the first failure since something was done
 *     xmetrics /: it is a directory ...   this can never be a file of metrics: the writer ends
 *      the metrics ...                    (after a blank) a line for the log
 */
#define METRICS_STREAM      "/dev/stdout"
#define METRICS_ANSWER_SIZE 12288

/* The next message, with a 0, of at most size - 1 bytes: its length; 0 at the end; -1 and errno. */
ssize_t metrics_receive(int socket, char *text, size_t size);

struct metrics_run {
    const char *path; /* report.metrics; METRICS_STREAM for a stream of the run, to which lines are only appended */
    const char *id;   /* while another run writes there, this one writes to PATH.ID */
    long after;       /* the step of the checkpoint; -1: the run is new, and keeps lines of another as PATH.old */
    const char *tensorboard; /* report.tensorboard: event files (tensorboard.h), beside PATH.ID in DIR.ID; NULL: none */
    const char *prometheus;  /* a directory for the file of prometheus.h; NULL: none */
};

/*
 * Writes until the input has ended. First it makes the file this run's, by a lock (flock): it waits some seconds for
 * another writer, which may be an earlier one of this run that is ending. It then cuts off the steps that the run will
 * do again, and a torn last line. Where they are not at the end, or lines are damaged, it writes a copy and renames it
 * over the file; with damaged lines the old file is kept as PATH.damaged, .damaged-2 and so on. Nothing is appended
 * before.
 */
void metrics_serve(const struct metrics_run *run, int socket);

/* The same for the kill-switch file: sends a byte after the first look, and KILL_FILE_THERE when it is there; ends then,
 * or when the input does (muster-report --watch). */
#define KILL_FILE_THERE '1'
void kill_file_serve(const char *path, int socket);

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Complete lines that are not steps, such as the zeros or half lines of a power loss. They are left out. */
struct metrics_damage {
    size_t lines;
    struct error first; /* of the first: "FILE:LINE: what is wrong" */
};

struct metrics {
    struct metrics_step *steps;
    size_t count;
    struct metrics_start *starts;
    size_t nstarts; /* 0 without PATH.events */
};

/*
 * All steps of a file, in its order, and the starts of PATH.events. A last line without a newline is being written,
 * or was torn by a crash, and is left out, unless it is a whole step. Any other line that is not a step is damaged. If
 * all are, the file is not one of metrics: CODE_DATA, and the first. An empty file has 0 steps. metrics_read_starts reads
 * the starts alone.
 */
int metrics_read(const char *path, struct metrics *metrics, struct metrics_damage *damage, struct error *err);
int metrics_read_starts(const char *path, struct metrics *metrics, struct error *err);
void metrics_free(struct metrics *metrics);

/* What becomes of an event; `event` is its JSON object, `kind` its "event". */
struct json_t;
typedef int metrics_take_event(void *arg, const char *kind, struct json_t *event, struct error *err);

/* Calls `take` for each event of PATH.events, until it fails; damage as above. 1 with CODE_IO without that file. */
int metrics_each_event(const char *path, metrics_take_event *take, void *arg, struct metrics_damage *damage,
                       struct error *err);

/* What becomes of a step of a file. `line` has no newline. */
typedef int metrics_take_step(void *arg, const struct metrics_step *step, const char *line, struct error *err);

/* Calls `take` for each step, until it fails. -1 with its error, or with CODE_IO. */
int metrics_each_step(const char *path, metrics_take_step *take, void *arg, struct metrics_damage *damage,
                      struct error *err);

#endif

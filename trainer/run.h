/*
 * run.h - the state of a run, shared by train.c, evaluate.c and their helpers, whose functions are below by file.
 * Private to these files.
 */
#ifndef MUSTER_TRAINER_RUN_H
#define MUSTER_TRAINER_RUN_H

#include "trainer/engine.h"
#include "trainer/nodes.h"
#include "trainer/report/metrics.h"
#include "trainer/saver.h"
#include "trainer/watch/gpu_watch.h"
#include "trainer/watch/recorder.h"
#include "trainer/watch/watchdog.h"

/* From the weakest to the strongest. */
enum stop_reason { STOP_NONE, STOP_MINUTES, STOP_FILE, STOP_SIGNAL, STOP_LOST }; /* LOST: checkpoint.dir */

struct kill_watch {
    int socket;     /* of the process that looks for the file; 0: there is none */
    double started; /* that process; clock_monotonic */
    bool answered, there;
};

struct run {
    const struct job *job;
    struct job job_of_engine; /* a copy that the engine gets; run_tokenizer_eod fills in its data.eod */
    struct comm *world;
    struct engine *engine;
    struct metrics_link *metrics;    /* on rank 0; NULL elsewhere and without report.metrics */
    struct watchdog *watchdog;       /* NULL with one rank or report.hang_seconds = 0 */
    char hang[1024];                 /* on rank 0: the directory of its report, from the root; "" for none */
    struct rank_location *locations; /* [world] where each rank runs */
    struct nodes nodes;              /* which ranks share a node */
    bool *slow;                      /* [world] the stragglers of the last check */
    bool leader, terminal;
    double began;         /* when run_start was called, since 1970 */
    double drain_seconds; /* in which run_start drained saves of an earlier run */
    double peak_flops;    /* of all ranks together; raised by a step that is faster than what was measured */
    bool peak_raised;
    struct saver *saver;
    struct kill_watch kill_watch;
    struct claim_watch *claim; /* on rank 0; NULL elsewhere and without checkpoint.dir */
    char id[CKPT_RUN_SIZE];    /* of this run (struct ckpt_claim); "" without checkpoint.dir */
    bool resumed;              /* from checkpoint.dir */
    bool validation_due;       /* after the engine's step: not done, or interrupted by a request to stop */
    bool was_unpredicted;      /* a step had no token to predict: it was reported */
    bool all_saved;            /* the run has ended, and no save of it is left to drain */
    double started;        /* when the first step could begin. report.minutes count from here: every run does a step */
    enum stop_reason stop; /* as last agreed */
    int stop_signal;
    int global_batch;   /* of the last step */
    size_t allocations; /* of the device, in all steps but the first: there should be none */
    /* since the last check for stragglers */
    long watched_steps;
    double own_seconds; /* of this rank's steps, without waiting for others */
    /* for muster-report where */
    double shares[RECORDER_SHARES]; /* of this rank (recorder_shares), at the last check */
    struct metrics_where where;     /* on rank 0, since the last event */
    double where_since;             /* clock_monotonic */
    struct gpu_watch *gpu;          /* of this rank; NULL for none */
    float *computed;                /* [world] seconds of computing since then; used on rank 0 */
    /* of the data sets */
    uint64_t *drawn;    /* [sets] samples of each so far; on rank 0 */
    double *set_losses; /* [sets of data.train], then [sets of data.valid]: as last measured */
    /* since the last log line */
    long logged_steps;
    double logged_seconds;
    struct loss_sums logged; /* of the steps with a finite loss */
    int logged_skipped, logged_nans;
};

/*
 * ---- run_start.c ----
 *
 * run_create_engine compares the ranks' job files and data, starts the watchdog, checks the memory and creates the
 * engine. run_start does this, claims checkpoint.dir, restores or initializes the engine, and opens the metrics.
 * Collective: all ranks fail together, each with *err.
 */
int run_create_engine(struct run *run, struct error *err);
int run_start(struct run *run, struct error *err);

/* A part of run_start, which --check calls too: loads from checkpoint.dir, else from checkpoint.load or init, else, if
 * neither is set, sets initial weights; without engine->zero it only looks (engine_restore). */
int run_restore(struct run *run, struct error *err);

/* Gathers `count` floats of each rank: malloc'ed, [world][count]. Collective. NULL with *err when out of memory, or a
 * rank is lost. */
void *run_gather(const struct run *run, const void *own, size_t count, const char *purpose, struct error *err);

/* ---- train.c ---- */

/* Starts to look for report.kill_file. CODE_CONFIG if it is there, and waits at most two seconds to know. */
int run_kill_file_start(struct run *run, struct error *err);

/* The last signal that asked this rank to stop (train_block_signals); 0: none. */
int run_signal(void);

/*
 * ---- run_claim.c ----
 *
 * Claims checkpoint.dir for this run, and watches the claim from then on. CODE_CONFIG if another run owns it. Makes the
 * directory, and checks that checkpoints can be written there. Waits for a file system that does not answer, which the
 * log says, until it answers or a signal asks to stop (CODE_STOPPED). Collective, when the engine was created.
 */
int run_claim_start(struct run *run, struct error *err);

/* On rank 0: whether another run has taken the directory over, as its keeper has found out. run_claim_check has it look
 * now, and returns -1 with CODE_CONFIG if so; it waits at most a second. Other ranks: false and 0. */
bool run_claim_is_lost(struct run *run);
int run_claim_check(struct run *run, struct error *err);

/* Ends the keeper. `release`: releases the directory. If not all is saved, another job that claims it must wait for this
 * one's epilog (run_claim.c): then the claim stays as if this run had been killed. */
void run_claim_stop(struct run *run, bool release);

/* ---- run_watch.c ---- */

/* Starts the flight recorder and the watchdog. Collective, right after the job files are compared; a hang before this
 * is not reported. */
int run_watch_start(struct run *run, struct error *err);

/*
 * Once a step; own_seconds: this rank's time without waiting for others. With each log line, logs the stragglers
 * (report.straggler_factor) among the ranks of each pipeline stage, which have the same work, and calls run_where_take
 * and run_where_add. Collective.
 */
int run_stragglers(struct run *run, double own_seconds, struct error *err);

/* This rank will end, and communicates no more except in comm_world_fail: its end is not reported as a lost rank. After
 * a hang it waits a few seconds for the other ranks of this host (watchdog_leave_together). */
void run_announce_end(struct run *run);
void run_watch_stop(struct run *run);

/* ---- run_where.c ---- */

/* When the first step can begin: what ranks take is measured from here on. */
void run_where_start(struct run *run);

/* With each log line: sets what this rank took since the last one; on rank 0, adds what all took, logs errors of their
 * GPUs, and gives the metrics an event when it is due. */
struct rank_time;
void run_where_take(struct run *run, struct rank_time *own);
void run_where_add(struct run *run, const struct rank_time *times);

/* `err`: why this rank ends, or NULL. Then an error that the driver reports of its GPU is put before it. */
void run_where_stop(struct run *run, struct error *err);

/*
 * ---- run_tokenizer.c ----
 *
 * Rank 0 finds the tokenizer of the data (data.tokenizer), and compares it with the one that is kept in `dir`, a directory
 * of checkpoints, one of them, or "". `ours`: keeps a copy there, if there is none, and logs it. CODE_CONFIG if it has
 * more tokens than the model, or if a data set or `dir` has another one. Collective.
 */
int run_tokenizer_start(struct run *run, const char *dir, bool ours, struct error *err);

/* The part of it that rank 0 does; without run->claim nothing is copied. */
int run_tokenizer_check(const struct run *run, struct error *err);

/*
 * Before the engine is created: fills run->job_of_engine. Where documents are separated (data.reset) and data.eod is
 * not set, its data.eod is the tokenizer's end of a document, if rank 0 finds one in the vocabulary. Collective.
 */
int run_tokenizer_eod(struct run *run, struct error *err);

/* On rank 0, after a load from `path`, the value of `key`: logs a warning if the tokenizer there is not the data's. */
void run_tokenizer_loaded(const struct run *run, const char *key, const char *path);

/*
 * ---- run_metrics.c ----
 *
 * The metrics, which another process writes (metrics.h). No call waits for longer than two seconds for it; it gets what
 * is left, of at most a MiB, when it answers again. What fails is logged, and tried again: no failure ends the run.
 * Where this is not rank 0, or there is no report.metrics, the functions do nothing.
 */

/* When the engine is restored. CODE_CONFIG for what can never be a file of metrics. */
int run_metrics_start(struct run *run, struct error *err);

void run_metrics_step(struct run *run, const struct metrics_step *m);
void run_metrics_where(struct run *run, const struct metrics_where *where);
void run_metrics_saved(struct run *run, uint64_t step, double seconds);

/* Whether the file has the validation of the step that the run resumed from; and adds it, before the first step. */
bool run_metrics_has_validation(const struct run *run);
void run_metrics_validation(struct run *run, const struct metrics_step *m);

/* Before a checkpoint is committed: no step before it is to be missing. Logs the first of several that may lack one. */
void run_metrics_sync(struct run *run);

void run_metrics_stop(struct run *run);

/* ---- run_log.c ---- */

/* One line on rank 0's standard output; on a terminal it replaces the progress line. */
void run_log(const struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The metrics of the step that was just done. */
struct metrics_step run_measure(struct run *run, const struct step_result *result, double step_seconds);

/* At the end, collective: logs the predicted and the peak memory of rank 0, and the largest error of any rank. */
int run_report_memory(const struct run *run, struct error *err);

/* Once a step on every rank: prints the log line if one is due, or the progress line on a terminal. */
void run_report(struct run *run, const struct metrics_step *m, const struct loss_sums *sums);

void run_log_validation(const struct run *run, const struct metrics_step *m);

/* When the engine is restored or initialized: logs the sets of a blend. run_data_finish may be called without it. */
int run_data_start(struct run *run, struct error *err);
void run_data_finish(struct run *run);

/* After a step. Logs the sets that began another epoch; and on the steps of log lines, with a blend, the loss of each
 * set since the previous one, which goes into *m too. Collective. */
int run_data_step(struct run *run, struct metrics_step *m, struct error *err);

/* Whether a validation follows the step that the engine did last. */
bool run_validates_step(const struct run *run);

/* The same for the sets of data.valid, after a validation. Collective. */
int run_data_validation(struct run *run, struct metrics_step *m, struct error *err);

#endif

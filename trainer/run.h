/*
 * run.h - the state of a run, shared by train.c and its helpers: run_start.c, everything before the first step, with
 * run_hosts.c, the checks of each host's memory and threads; run_watch.c, the watchdog and stragglers; and
 * run_log.c, the output. Private to these files.
 */
#ifndef MUSTER_TRAINER_RUN_H
#define MUSTER_TRAINER_RUN_H

#include "trainer/engine.h"
#include "trainer/report/metrics.h"
#include "trainer/saver.h"
#include "trainer/watch/watchdog.h"
#include "trainer/stop.h"

struct run {
    const struct job *job;
    struct comm *world;
    struct engine *engine;
    struct metrics_writer *metrics; /* on rank 0; NULL elsewhere and without report.metrics */
    struct watchdog *watchdog;      /* NULL with one rank or report.hang_seconds = 0 */
    struct neighbour *hosts;        /* [world] where each rank runs */
    bool *slow;                     /* [world] the stragglers of the last check */
    bool leader, terminal;
    double peak_flops; /* of all ranks together */
    struct saver *saver;
    bool resumed;          /* from checkpoint.dir */
    enum stop_reason stop; /* as last agreed */
    int stop_signal;
    int global_batch;   /* of the last step */
    size_t allocations; /* of the device, in all steps but the first: there should be none */
    /* since the last check for stragglers */
    long watched_steps;
    double own_seconds; /* of this rank's steps, without waiting for others */
    /* since the last log line */
    long logged_steps;
    double logged_seconds, logged_loss, logged_order; /* losses of the steps that had a finite one */
    int logged_skipped, logged_nans;
};

/* ---- run_start.c: all collective; all ranks fail together, each with *err ---- */

/*
 * Fails with CODE_CONFIG, naming the rank, if ranks read different job files. To be called first: ranks with different
 * jobs would call different operations, or split the world into groups that do not match, and deadlock.
 */
int run_compare_jobs(const struct run *run, struct error *err);

/* Checks the environment, creates the engine, restores or initializes it, opens the metrics. */
int run_start(struct run *run, struct error *err);

/* ---- run_hosts.c ---- */

/*
 * Fails with CODE_CONFIG if the ranks of a host would hold more than its memory, or the job does not fit the mesh. An
 * operating system that overcommits memory kills processes later, and often the wrong ones.
 */
int run_check_memory(const struct run *run, struct error *err);

/* Warns if the ranks on rank 0's host have more threads than processors. */
int run_check_threads(const struct run *run, struct error *err);

/* ---- run_watch.c ---- */

/* Starts the flight recorder and the watchdog. Collective, before everything else. */
int run_watch_start(struct run *run, struct error *err);

/*
 * Logs the stragglers (report.straggler_factor). own_seconds: this rank's time of a step without waiting for others;
 * `stage`: its pipeline stage, since only ranks of one stage have the same work. Collective.
 */
int run_stragglers(struct run *run, double own_seconds, int stage, struct error *err);

/* This rank will end, and communicates no more except in comm_world_fail: its end is not reported as a lost rank. */
void run_watch_ending(struct run *run);
void run_watch_stop(struct run *run);

/* ---- run_log.c ---- */

/* One line on rank 0's standard output; on a terminal it replaces the progress line. */
void run_log(const struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The metrics of the step that was just done. */
struct metrics_step run_measure(const struct run *run, const struct step_result *result, double step_seconds);

/*
 * At the end, collective: logs the predicted and the peak memory of rank 0, and the largest error of any rank.
 */
int run_report_memory(const struct run *run, struct error *err);

/* Once a step on every rank: prints the log line if one is due, or the progress line on a terminal. */
void run_report(struct run *run, const struct metrics_step *m);

void run_log_validation(const struct run *run, const struct metrics_step *m);

#endif

/*
 * run.h - what train.c and its helpers share: run_start.c, everything before the first step, with run_memory.c and
 * run_threads.c; run_watch.c, who watches over it; and run_log.c, what a run says while it goes. saver.h saves
 * its checkpoints. Private to these files.
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
    struct metrics_writer *metrics; /* rank 0's; NULL elsewhere and where none are wanted */
    struct watchdog *watchdog;      /* NULL where there is nothing to watch */
    struct neighbour *hosts;        /* [world] where each rank runs */
    bool *slow;                     /* [world] which were stragglers when last looked at */
    bool leader, terminal;
    double peak_flops; /* of all ranks together */
    struct saver *saver;
    bool resumed;          /* from checkpoint.dir */
    enum stop_reason stop; /* as last agreed */
    int stop_signal;
    int global_batch;   /* of the last step */
    size_t allocations; /* of the device, in all steps but the first: there should be none */
    /* since ranks were last looked at for stragglers */
    long watched_steps;
    double own_seconds; /* of this rank's steps, without the time that it waited for others */
    /* since the last log line */
    long logged_steps;
    double logged_seconds, logged_loss, logged_order; /* losses of the steps that had a finite one */
    int logged_skipped, logged_nans;
};

/* Seconds of a clock that only goes forward. */
double run_seconds(void);

/* ---- run_start.c: all collective, -1 with *err on all ranks alike ---- */

/*
 * Fails with CODE_CONFIG, naming the rank, when ranks read different job files. To be called first: ranks with unlike
 * jobs would call different operations, or split the world into groups that do not match, and wait for each other.
 */
int run_compare_jobs(const struct run *run, struct error *err);

/* Check what can be checked, create the engine, restore or initialize it, open the metrics. */
int run_start(struct run *run, struct error *err);

/*
 * run_memory.c. Fails with CODE_CONFIG where the ranks of a host would hold more than its memory, or the job does not
 * fit the mesh. An operating system that grants more than it has ends processes later, and often the wrong ones.
 */
int run_check_memory(const struct run *run, struct error *err);

/* run_threads.c. Says so where the ranks of the host of rank 0 have more threads than processors. */
int run_check_threads(const struct run *run, struct error *err);

/* ---- run_watch.c ---- */

/* The flight recorder and the watchdog. Collective, before everything else. */
int run_watch_start(struct run *run, struct error *err);

/*
 * Names the ranks whose own work took long (report.straggler_factor): own_seconds a step, without waiting for others.
 * `stage` is this rank's place in the pipeline: only ranks of one stage have the same work. Collective.
 */
int run_stragglers(struct run *run, double own_seconds, int stage, struct error *err);

/* This rank ends and communicates no more, but for comm_world_fail: it will not be missed when it is gone. */
void run_watch_ending(struct run *run);
void run_watch_stop(struct run *run);

/* ---- run_log.c ---- */

/* One line on rank 0's standard output; on a terminal it replaces the progress line. */
void run_say(const struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What there is to say of the step that was just done. */
struct metrics_step run_measure(const struct run *run, const struct step_result *result, double step_seconds);

/*
 * At the end, collective: the memory that was foretold beside what it came to, of rank 0 and of the rank farthest off.
 */
int run_report_memory(const struct run *run, struct error *err);

/* Once a step on every rank: the log line where one is due, or the progress line on a terminal. */
void run_report(struct run *run, const struct metrics_step *m);

void run_say_validation(const struct run *run, const struct metrics_step *m);

#endif

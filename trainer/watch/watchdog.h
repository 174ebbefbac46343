/*
 * watchdog.h - detects a hang, reports which rank causes it, and ends the run so that it can be requeued.
 *
 * Each rank has a thread that checks, four times a second, for a reason to raise the alarm:
 *
 *   - this rank has been in one wait for hang_seconds (time in which the process was suspended does not count, since
 *     Slurm can suspend and resume a job);
 *   - a rank of this host has ended without announcing it;
 *   - a wait has failed because a peer was lost (watchdog_explain), or this process has called abort: libraries under
 *     MPI do that when they find that a peer has ended (UCX, reading the memory of another process);
 *   - another rank has raised the alarm: in its record on this host, otherwise by creating the directory.
 *
 * Then one rank of each host publishes the records of the host's ranks in that directory (hang.h). When every host has
 * done so, or after 3 seconds, the lowest of these ranks judges, writes the report, and prints it to standard error.
 * All ranks read the verdict from there: they wake the stopped ranks of their host and call `verdict`, which makes the
 * main thread fail with CODE_PEER. A process that still runs 3 seconds later is ended with that code.
 *
 * If the directory cannot be written to within 20 seconds, which may be the reason for the hang, each host judges by
 * its own ranks' records.
 */
#ifndef MUSTER_TRAINER_WATCH_WATCHDOG_H
#define MUSTER_TRAINER_WATCH_WATCHDOG_H

#include "trainer/watch/neighbours.h"

struct watchdog;

struct watchdog_config {
    int rank, world;
    double hang_seconds;
    const char *directory;         /* of the hang, the same on all ranks; must not exist. Copied. */
    const char *title;             /* of the report: the job. Copied. */
    struct record_file *record;    /* this rank's own, until watchdog_stop */
    struct neighbours *neighbours; /* owned from here on */
    void (*verdict)(const struct error *err);
};

/* NULL with CODE_IO, and then the neighbours are destroyed. */
struct watchdog *watchdog_start(const struct watchdog_config *config, struct error *err);

/*
 * After a verdict, and after recorder_ending: waits a few seconds for the host's other ranks to end too, because a peer
 * that ends while they still communicate would make their library abort. Without a verdict it returns at once.
 */
void watchdog_leave_together(struct watchdog *watchdog);

/*
 * Ends the thread and frees everything; returns true, also for NULL. Returns false during an alarm: then thread and
 * record must stay until the process ends, which it soon does.
 */
bool watchdog_stop(struct watchdog *watchdog);

/*
 * Called by the main thread when a wait has failed with CODE_PEER (`arg` is the watchdog): raises the alarm, waits for
 * the verdict and puts it into *err, with the previous text in parentheses.
 */
void watchdog_explain(struct error *err, void *arg);

#endif

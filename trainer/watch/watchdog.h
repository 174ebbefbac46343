/*
 * watchdog.h - a run that hangs says who is late, and ends, so that it can be requeued.
 *
 * Each rank has a thread that looks, four times a second, whether there is reason for alarm:
 *
 *   - this rank has been in one wait for hang_seconds (time in which the process itself was suspended does not count:
 *     a job that Slurm suspends and resumes is no hang);
 *   - a rank of this host is gone that did not say that it would end;
 *   - a wait has failed because a peer was lost (watchdog_explain), or this process has called abort: libraries under
 *     MPI do that when they find a peer gone (UCX, reading the memory of another process);
 *   - another rank has raised the alarm: in its record, if it is of this host, else by the directory that it made.
 *
 * Then one rank of each host publishes the records of all its ranks in that directory (hang_files.h); when every host
 * has, or after 3 seconds, the lowest of them judges (hang.h), and its report is printed on its standard error.
 * Everyone takes the verdict from there: stopped ranks of the host are woken, `verdict` is called, which is to make the
 * main thread fail with CODE_PEER, and should the process still be there 3 seconds later, it is ended with that code.
 *
 * Where the directory cannot be written to within 20 seconds, which may be the reason of the hang, each host judges by
 * what it knows itself.
 */
#ifndef MUSTER_TRAINER_WATCH_WATCHDOG_H
#define MUSTER_TRAINER_WATCH_WATCHDOG_H

#include "trainer/watch/neighbours.h"

struct watchdog;

struct watchdog_config {
    int rank, world;
    double hang_seconds;
    const char *directory;         /* of the hang, the same on all ranks; must not exist. Copied. */
    const char *title;             /* of the report: which job this is. Copied. */
    struct record_file *record;    /* this rank's own, until watchdog_stop */
    struct neighbours *neighbours; /* owned from here on */
    void (*verdict)(const struct error *err);
};

/* NULL with CODE_IO, and then the neighbours are destroyed. */
struct watchdog *watchdog_start(const struct watchdog_config *config, struct error *err);

/*
 * After a verdict, and after recorder_ending: waits until the host's other ranks have ended too, but not for long. A
 * peer that is gone while they still communicate would make their library abort. Otherwise returns at once.
 */
void watchdog_leave_together(struct watchdog *watchdog);

/*
 * Ends the thread and frees all, NULL included: true. False when there is an alarm: then thread and record must live on
 * until the process ends, which it soon does.
 */
bool watchdog_stop(struct watchdog *watchdog);

/*
 * Called by the main thread when a wait has failed with CODE_PEER (`arg` is the watchdog): raises the alarm, waits for
 * the verdict and puts it into *err, with what was there in parentheses.
 */
void watchdog_explain(struct error *err, void *arg);

#endif

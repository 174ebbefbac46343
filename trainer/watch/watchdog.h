/*
 * watchdog.h - detects a hang, reports which rank causes it, and ends the run so that it can be requeued.
 *
 * A node's publisher is its lowest running rank. It speaks for all ranks of the node (local_ranks.h), also for stopped
 * and dead ones. Each rank has a thread that checks for a reason to raise the alarm:
 *
 *   - four times a second: this rank has been in one wait for hang_seconds (time in which the process was suspended
 *     does not count, since Slurm can suspend and resume a job), or another rank of this node has raised the alarm;
 *   - four times a second: a wait has failed because a peer was lost (recorder_alarm), or this process is about to end
 *     by a signal or exit that nobody announced: libraries under MPI abort when they find that a peer has ended (UCX,
 *     reading the memory of another process);
 *   - four times a second: the process of a rank that this one is linked to (links.h) has ended without announcing it,
 *     or that rank has raised the alarm; or its node does not answer, and this rank has waited in one operation for 5
 *     seconds;
 *   - once a second, by the publisher of each node: a rank of this node has ended without announcing it, or a rank of
 *     another node has raised the alarm by creating the directory of the hang (output.directory).
 *
 * Then the publisher of each node publishes the records of the node's ranks in that directory (hang.h). When every node
 * has done so, or after 3 seconds, the lowest of the publishers judges. If no rank is dead or stopped, it judges again
 * 3 seconds after the alarm, because a process may take some time to end. It writes the report, and prints it to
 * standard error. The first line of the report, the cause, names the late ranks (hang_cause). Each publisher reads it,
 * passes it to its node's ranks in its record (record_set_cause), and continues the stopped ones. Every rank then
 * calls config.on_cause. The trainer passes comm_interrupt for it, which makes the main thread's wait fail with
 * CODE_PEER (exit code 76). If the main thread has not ended the process 3 seconds later, the watchdog ends it with
 * that code.
 *
 * A file system that does not answer may itself be the reason for the hang. So if the cause is not known after 20
 * seconds, each node judges by its own ranks' records.
 */
#ifndef MUSTER_TRAINER_WATCH_WATCHDOG_H
#define MUSTER_TRAINER_WATCH_WATCHDOG_H

#include <stdatomic.h>
#include <stdbool.h>

#include "common/job.h"
#include "trainer/watch/local_ranks.h"

struct watchdog;

/* Where a hang is reported; the same on all ranks. */
struct hang_output {
    char directory[JOB_PATH_SIZE + 128]; /* must not exist: its existence is the alarm */
    char title[160];                     /* of the report: the job */
};

/* Seconds after an alarm in which each rank ends with the cause, at the latest. */
#define WATCHDOG_SECONDS 26.0

struct watchdog_config {
    int rank, world;
    double hang_seconds;
    struct hang_output output;
    struct record_file *record_file; /* this rank's own, until watchdog_stop */
    struct local_ranks *local_ranks; /* owned from here on, and so are: */
    struct links *links;             /* NULL if the ranks could not connect */
    void (*on_cause)(const struct error *err);
};

/* On failure NULL with CODE_IO; what config owns is destroyed then, too. */
struct watchdog *watchdog_start(const struct watchdog_config *config, struct error *err);

/*
 * To be called after recorder_ending. Announces the end to the linked ranks. If the cause of a hang is known, it waits
 * up to 3 seconds for the node's other ranks to end too: if this rank ended while they still communicate, their MPI
 * library would abort them. Otherwise it returns at once.
 */
void watchdog_leave_together(struct watchdog *watchdog);

/*
 * Ends the thread and frees everything; returns true, also for NULL. Returns false during an alarm: then thread and
 * record must stay until the process ends, which it soon does.
 */
bool watchdog_stop(struct watchdog *watchdog);

/* ---- for watchdog.c: finds the cause after an alarm (watchdog_judge.c) ---- */

/*
 * Raises the alarm on other nodes. The publisher publishes its node's records, and judges, or reads another's report.
 * Other ranks wait until they become the publisher. 1 with the cause; 0 when *stop is set, because watchdog.c has the
 * cause from a rank of this node; -1 with CODE_IO if the directory cannot be used.
 */
int watchdog_find_cause(const struct watchdog_config *config, const atomic_bool *stop, struct record_cause *cause,
                        struct error *err);

/* Judges by this node's records, without files. */
void watchdog_find_cause_alone(const struct watchdog_config *config, struct record_cause *cause);

#endif

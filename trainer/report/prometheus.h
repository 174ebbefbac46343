/*
 * prometheus.h - a run's values for Prometheus: DIR/muster-UID-JOB.prom, a file for the textfile collector of
 * node_exporter on rank 0's node. UID is the user, JOB the Slurm job or, without Slurm, the process of rank 0.
 *
 * Rank 0 makes the text; the process that writes the metrics adds what PATH.events tells, writes muster-UID-JOB.prom.tmp
 * and renames it. It removes the file when the run ends. After a kill the epilog removes it, if DIR is the site's.
 *
 * Names and units are as https://prometheus.io/docs/practices/naming/ wants them. Each value has the labels slurm_job and
 * uid, since a node may have the files of several jobs.
 */
#ifndef MUSTER_TRAINER_REPORT_PROMETHEUS_H
#define MUSTER_TRAINER_REPORT_PROMETHEUS_H

#include "trainer/report/metrics.h"

#define PROMETHEUS_VARIABLE "MUSTER_PROMETHEUS" /* the site's DIR, from srun --muster; before report.prometheus */

/* A value that is NaN is left out. */
struct prometheus {
    double step;
    double tokens, skipped; /* since this start: Prometheus takes a count that goes down for one that began at 0 */
    double loss, mfu;       /* of the last step; mfu from 0 to 1 */
    double waited;          /* seconds that training has waited for saves since this start */
    double committed; /* when the newest checkpoint was committed, or the run began with it, in seconds since 1970 */
    double committed_step;
    double staged, left; /* bytes that this node's stage has reserved, and that its file system has left */
};

/* The text, without newlines: each of its lines ends in a tab. A `size` of 4096 is enough. */
void prometheus_format(char *buf, size_t size, const struct prometheus *values, const char *job);

/* Writes that text and, from the starts, restarts and their causes. CODE_IO; also if the name belongs to another user, or
 * is no regular file: then it is left as it is. */
int prometheus_write(const char *path, const char *text, const char *job, const struct metrics *starts,
                     struct error *err);

/* Removes the file, if it is this user's. */
void prometheus_remove(const char *path);

#endif

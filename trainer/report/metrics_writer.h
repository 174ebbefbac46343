/*
 * metrics_writer.h - within the process that writes a run's metrics: metrics_writer.c has the metrics, beside.c has what is
 * written beside them. That costs no step: what fails is said once, and tried again with the next lines.
 */
#ifndef MUSTER_TRAINER_REPORT_METRICS_WRITER_H
#define MUSTER_TRAINER_REPORT_METRICS_WRITER_H

#include <limits.h>
#include <sys/types.h>

#include "trainer/report/metrics.h"
#include "trainer/report/tensorboard.h"

enum { RETRY_SECONDS = 5 }; /* after a failure, also for the reader of a pipe; between two looks at the name */

struct metrics_file {
    const struct metrics_run *run;
    int socket, fd;           /* fd: -1 while the file is not open */
    char path[PATH_MAX + 32]; /* without symbolic links */
    bool is_file;             /* not a pipe or a terminal, nor the standard output of a run */
    off_t length;             /* of what shall be in the file */
    bool torn;                /* it is longer */
    size_t part;              /* bytes of the present line that a pipe has taken */
    bool failed, ended;       /* since something was done; the run */
    bool displaced;           /* the name belongs to another file */
    bool events_failed;       /* the last line of PATH.events */
    double looked;            /* clock_monotonic, at the name */
    long last_step;           /* of the lines that were kept; 0: none */
    bool validated;           /* that step */
    struct metrics_step seen; /* the last step before lines were left out */
    char *last;               /* malloc'ed: its line, if it is the one that the run goes on after */
    off_t last_at;            /* where that begins */
    long gap_first, gap_last; /* steps that the lines lack; 0: none */
    long gaps;                /* such gaps */
    long valid_step;          /* the last one that is validated; 0: none */
    off_t valid_at;           /* where its line begins */
    char suffix[64];          /* of path, where it is PATH.ID */
    /* beside.c: */
    struct tensorboard board;       /* dir: "" for none */
    double board_failed;            /* clock_monotonic, when event files could not be written; 0: they could */
    char prometheus[PATH_MAX + 32]; /* the file; "" for none */
    double prometheus_failed;       /* as board_failed */
    struct metrics starts;          /* of the run, for that file */
};

/* A message to rank 0. */
void writer_tell(const struct metrics_file *f, char kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* When the metrics are open; after each of their lines; at the end. */
void beside_open(struct metrics_file *f);
void beside_follow(struct metrics_file *f);
void beside_close(struct metrics_file *f);

/* Rank 0's text for Prometheus. */
void beside_prometheus(struct metrics_file *f, const char *text);

#endif

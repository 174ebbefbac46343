/*
 * hang.h - finds the rank that causes a hang, exchanges the ranks' records between nodes, and writes the report.
 *
 * A rank waits for those that have not entered its operation: the members of the communicator that have entered fewer
 * collectives there, or the peer that has not sent or received yet. If one of these waits too, the search continues from
 * it: A waits in tp for B, B waits in dp for C, and C computes: only C is late.
 */
#ifndef MUSTER_TRAINER_WATCH_HANG_H
#define MUSTER_TRAINER_WATCH_HANG_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"
#include "trainer/watch/flight_record.h"

enum { HANG_HOST_SIZE = 64 };

enum hang_state {
    HANG_SILENT,  /* no record: its node is dead or cut off, or no rank of that node runs and can publish it */
    HANG_RUNNING, /* waiting if record.waiting_since is not 0, otherwise doing what record.phase names */
    HANG_STOPPED, /* by SIGSTOP, a terminal or a debugger */
    HANG_DEAD,    /* its process ended without announcing it */
    HANG_ABORTED, /* it ends by a signal, abort or exit, which a library may do because a peer is lost */
    HANG_ENDING,  /* it is ending, or has ended after announcing it */
    HANG_STATES
};

/* Flat: nodes exchange it as it is. All 0: silent. */
struct hang_rank {
    enum hang_state state;
    int signal;                  /* that ends it, when aborted */
    char host[HANG_HOST_SIZE];   /* the node's name */
    int64_t taken;               /* when the record was copied, on its node's clock; 0 without a record */
    struct flight_record record; /* all 0 when silent, or when only ranks of other nodes know that it is dead */
};

/* The operation that the rank waits in; NULL if it does not wait or is not HANG_RUNNING. */
const struct record_op *hang_waiting_op(const struct hang_rank *rank);

/* Seconds since the rank last began or ended an operation or a phase. */
double hang_unchanged_seconds(const struct hang_rank *rank);

/* ---- the verdict: pure functions --------------------------------------------------------------------------------- */

enum hang_verdict_kind {
    HANG_LATE,     /* the other ranks wait for the named ranks */
    HANG_MISMATCH, /* the two named ranks are in different operations with the same number on one communicator */
    HANG_CYCLE,    /* each named rank waits for the next, and the last for the first */
    HANG_NETWORK,  /* all have entered the operation that the named ranks wait in: the network or the library hangs */
    HANG_NOTHING,  /* no rank waits and none is missing */
};

struct hang_named {
    int rank;

    /* HANG_LATE only */
    int waiter;      /* the lowest rank that waits for it; -1 for none */
    uint64_t behind; /* collectives by which it is behind the most advanced member of waiter's communicator; for a send
                        or receive, messages by which it is behind the waiter */
};

struct hang_verdict {
    enum hang_verdict_kind kind;
    struct hang_named *named; /* [nnamed] in the order of rank, or of the cycle; the caller frees it */
    size_t nnamed;
};

/*
 * If a rank is dead, stopped, silent or has aborted, a running rank that does not wait is named too, but only if it has
 * been unchanged for at least `patience` seconds. -1 when out of memory; then, too, the caller frees verdict->named.
 */
int hang_judge(struct hang_verdict *verdict, const struct hang_rank *ranks, int world, double patience,
               struct error *err);

/* True if a named rank is in one of the states, given as bits 1 << state. */
bool hang_blames(const struct hang_verdict *verdict, const struct hang_rank *ranks, unsigned states);

/* ---- the report (hang_report.c) ---------------------------------------------------------------------------------- */

/*
 * One line, without a newline, truncated to the buffer:
 *
 *     rank 5 on n3 is 2 collectives behind, last entered reduce-scatter of block 7 gradients (dp); it has been
 *     computing for 603 s
 *     rank 5 on n3 is dead (its process is gone), probably by SIGKILL; it is 2 collectives behind, last entered
 *     reduce-scatter of block 7 gradients (dp)
 *     ranks 8-15 on n3 are silent: their node is dead, stopped or cut off
 */
void hang_cause(struct record_cause *cause, const struct hang_verdict *verdict, const struct hang_rank *ranks,
                int world);

/*
 * The whole report, malloc'ed; NULL when out of memory: the cause, `title` with the greatest step of all ranks, which
 * muster-supervise(1) reads, the waiting ranks and their operations, a line for each rank (at most most_lines; 0 for all), and the last operations of the named ranks. If the named ranks
 * have aborted, it ends in HANG_ABORTED_LINE, by which hang_cause_read sets record_cause.aborted on other nodes.
 */
#define HANG_ABORTED_LINE "the abort is the cause: no other rank was lost\n"

char *hang_compose(const char *title, const struct hang_verdict *verdict, const struct hang_rank *ranks, int world,
                   int most_lines);

/*
 * ---- the directory of a hang, on the file system that all nodes share (hang_files.c) --------------------------------
 *
 *     <where>/hang-<job>.<step>.<restart>/
 *         records-00004           the records of rank 4's node, for its other nodes: binary
 *         hang-report.txt         the report; its first line is the cause
 *
 * The alarm is that the directory exists. Each file is written under another name and renamed. The directory is kept
 * for the user.
 */

/* Raises the alarm, if it is not raised yet. CODE_IO. */
int hang_raise_alarm(const char *dir, struct error *err);
bool hang_alarm_raised(const char *dir);

/* Writes the records of the ranks that are not silent, as rank `publisher`. CODE_IO. */
int hang_records_publish(const char *dir, int publisher, const struct hang_rank *ranks, int world, struct error *err);

/*
 * The number of files of records, and their lowest publisher. With `ranks`, which may be NULL, reads them, and replaces
 * older records, and the hosts. A rank that any of them reports as dead is dead, unless its own node reports that it is
 * ending. Skips a file that cannot be read or is damaged. -1 with CODE_IO when the directory cannot be read.
 */
int hang_collect(const char *dir, int *lowest, struct hang_rank *ranks, int world, struct error *err);

/* 1 if `text` is the report now, 0 if there was one already; -1 with CODE_IO. `rank` is the writer. */
int hang_report_publish(const char *dir, int rank, const char *text, struct error *err);

/* The cause of the report; false if there is no report. */
bool hang_cause_read(const char *dir, struct record_cause *cause);

#endif

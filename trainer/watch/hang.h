/*
 * hang.h - finds the rank that causes a hang, exchanges the ranks' records between hosts, and writes the report.
 *
 * A waiting rank waits for the ranks that have not entered the same operation: the members of the communicator that
 * have entered fewer collectives there, or the peer that has not sent or received yet. If one of these waits itself,
 * the search goes on from it; where a chain ends is the late rank. In a chain (A waits in tp for B, B in dp for C, and
 * C computes) that is C alone, however many wait.
 */
#ifndef MUSTER_TRAINER_WATCH_HANG_H
#define MUSTER_TRAINER_WATCH_HANG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "common/error.h"
#include "trainer/watch/flight_record.h"

enum { HANG_HOST_SIZE = 64 };

enum hang_state {
    HANG_SILENT,  /* no record: its node is dead or cut off, or no rank of it is left to publish */
    HANG_RUNNING, /* waiting if record.waiting_since is not 0, otherwise doing what record.phase names */
    HANG_STOPPED, /* by SIGSTOP, a terminal or a debugger */
    HANG_DEAD,    /* its process ended without announcing it */
    HANG_ABORTED, /* it, or a library in it, has called abort, possibly because a peer was lost */
    HANG_ENDED,   /* it is ending, or has ended after announcing it */
};

struct hang_rank {
    enum hang_state state;
    char host[HANG_HOST_SIZE];
    int64_t taken;               /* when the record was copied, on its host's clock */
    struct flight_record record; /* all 0 when silent */
    int *members[RECORD_COMMS];  /* owned; [record.comms[i].size] ranks of the world */
};

/* All ranks of a world, silent ones too; the caller fills in the hosts. NULL when out of memory. */
struct hang_rank *hang_ranks_create(int world, struct error *err);
void hang_ranks_destroy(struct hang_rank *ranks, int world);

/* The operation that the rank waits in; NULL if it does not wait or is not HANG_RUNNING. */
const struct record_op *hang_waits(const struct hang_rank *rank);

/* Seconds since it last began or ended anything. */
double hang_idle_seconds(const struct hang_rank *rank);

/* ---- the verdict: pure functions --------------------------------------------------------------------------------- */

enum hang_verdict_kind {
    HANG_LATE,     /* the other ranks wait for `late` */
    HANG_MISMATCH, /* the two ranks of `late` are in different operations at the same place */
    HANG_CYCLE,    /* each of `late` waits for the next, and the last for the first */
    HANG_TRANSFER, /* all have entered the operation that `late` waits in: the network or the library hangs */
    HANG_NOTHING,  /* no rank waits and none is missing */
};

struct hang_late {
    int rank;
    int waiter;      /* the lowest rank that waits for it; -1 for none */
    int comm;        /* where: index into the waiter's comms */
    uint64_t behind; /* collectives that it is behind the first of that communicator; or messages it owes the waiter */
};

struct hang_verdict {
    enum hang_verdict_kind kind;
    struct hang_late *late; /* [nlate], owned: in the order of rank, or of the cycle */
    size_t nlate;
};

/*
 * patience: seconds after which a rank that is busy on its own counts as late even if another rank is silent or dead.
 * -1 when out of memory.
 */
int hang_judge(struct hang_verdict *verdict, const struct hang_rank *ranks, int world, double patience,
               struct error *err);
void hang_verdict_free(struct hang_verdict *verdict);

/* ---- the report (hang_report.c) ---------------------------------------------------------------------------------- */

/*
 * One line, without a newline, truncated to `size`:
 *
 *     rank 5 on n3 is 2 collectives behind, last entered reduce-scatter of block 7 gradients (dp); it has been
 *     computing for 603 s
 *     rank 5 on n3 is dead (its process is gone), last entered ...
 *     ranks 8-15 on n3 gave no sign
 */
void hang_sentence(char *text, size_t size, const struct hang_verdict *verdict, const struct hang_rank *ranks,
                   int world);

/* True if such a sentence blames this one rank for having aborted. */
bool hang_blames_abort(const char *sentence, int rank);

/*
 * The whole report: the sentence, `title` (may be NULL), the waiting ranks and their operations, a line for each rank
 * (at most most_lines; 0 for all), and the last operations of the late ranks.
 */
void hang_print(FILE *out, const char *title, const struct hang_verdict *verdict, const struct hang_rank *ranks,
                int world, int most_lines);

/*
 * ---- the directory of a hang, on the file system that all hosts share (hang_files.c) --------------------------------
 *
 *     <where>/hang-<job>.<step>.<restart>/
 *         records-00004.json      the records of rank 4's host
 *         hang-report.txt         the report; its first line is the sentence
 *
 * The alarm is that the directory exists. Each file is written under another name and renamed. The directory is kept
 * for the user.
 */

/* Raises the alarm, if it is not raised yet. CODE_IO. */
int hang_raise(const char *dir, struct error *err);
bool hang_raised(const char *dir);

/* Writes the records of the ranks that `chosen` marks, as rank `speaker`. CODE_IO. */
int hang_publish(const char *dir, int speaker, const struct hang_rank *ranks, const bool *chosen, int world,
                 struct error *err);

/* Sets spoken[world]: the ranks that have published. CODE_IO when the directory cannot be read. */
int hang_spoken(const char *dir, bool *spoken, int world, struct error *err);

/* Reads what these ranks have published. A file that cannot be read is skipped. */
void hang_collect(const char *dir, const bool *spoken, struct hang_rank *ranks, int world);

/* 1 if this is the report now, 0 if there already was one; -1 with CODE_IO. `rank` is the writer. */
int hang_report_publish(const char *dir, int rank, const char *text, size_t length, struct error *err);

/* The report's first line, without its newline; false if there is no report. */
bool hang_report_sentence(const char *dir, char *text, size_t size);

/*
 * The records of the ranks that `chosen` marks, as JSON:
 *
 * {"version": 1, "ranks": [{"rank": 5, "host": "n3", "state": "stopped", "taken": NS, "phase": "computing", ...,
 *   "waiting": OP, "comms": [...], "ring": [OP, ...]}, ...]}
 *
 * The members of a communicator are runs of [first, stride, count]. NULL when out of memory; json_decref frees it.
 */
json_t *hang_encode(const struct hang_rank *ranks, const bool *chosen, int world);

/*
 * The reverse: replaces the records and hosts of the ranks in `json`. Fails with CODE_DATA; ranks before the faulty one
 * are replaced.
 */
int hang_decode(struct hang_rank *ranks, int world, const json_t *json, struct error *err);

#endif

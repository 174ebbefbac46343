/*
 * flight_record.h - the flight recorder's record: the current and latest operations of one rank, in shared memory,
 * where the other ranks of its node can read it even when it is stopped or dead. recorder.h writes it; the watchdog
 * reads it.
 *
 * One thread writes and never waits. Readers copy, and detect whether the writer was in the middle of a change (a
 * sequence lock: Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012). The file
 * consists of 64-bit words, each stored and loaded atomically, so that a copy may be torn but is never undefined
 * behaviour.
 *
 * Times are nanoseconds of the node's CLOCK_MONOTONIC.
 */
#ifndef MUSTER_TRAINER_WATCH_FLIGHT_RECORD_H
#define MUSTER_TRAINER_WATCH_FLIGHT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/process/process.h"

enum {
    RECORD_COMMS = 16,     /* communicators a rank can have at once; operations of further ones are not recorded */
    RECORD_RUNS = 8,       /* of members of a communicator; the members of further ones are not recorded */
    RECORD_PEERS = 8,      /* ranks that a communicator exchanges messages with; a pipeline has two */
    RECORD_RING = 64,      /* operations remembered */
    RECORD_NAME_SIZE = 24, /* communicator: "dp", "pp forward" */
    RECORD_TEXT_SIZE = 40, /* purpose or phase: "block 7 gradients", "saving a checkpoint" */
};

enum record_kind {
    RECORD_REDUCE_SCATTER,
    RECORD_ALL_GATHER,
    RECORD_ALL_REDUCE,
    RECORD_BROADCAST,
    RECORD_SEND,
    RECORD_RECEIVE,
    RECORD_SUM,     /* all-reduce of scalars */
    RECORD_MAXIMUM, /* the same, with the maximum */
    RECORD_BARRIER,
    RECORD_AGREEMENT, /* on whether all succeeded */
    RECORD_SPLIT,     /* into groups */
    RECORD_KINDS
};

extern const char *const record_kinds[RECORD_KINDS]; /* "reduce-scatter", ... */

/* Sends and receives, which are counted by peer; collectives are counted by communicator. */
bool record_is_message(int kind);

struct record_op {
    uint64_t number;   /* among all operations of this rank, from 1; 0: none */
    uint64_t sequence; /* among its communicator's collectives, or its sends to or receives from this peer; from 1 */
    int64_t entered;   /* time of its start */
    int64_t finished;  /* time at which waiting for it ended; 0: not yet */
    int32_t kind;      /* enum record_kind */
    int32_t comm;      /* index into comms */
    int32_t peer;      /* rank in the world; -1 for a collective */
    int32_t unused;
    char purpose[RECORD_TEXT_SIZE]; /* "block 7 gradients", or "" */
};

struct record_peer {
    int64_t rank;             /* in the world */
    uint64_t sends, receives; /* started */
};

/* Members at equal distances, as ranks of the world: each group of a mesh is one run, however many ranks it has. */
struct record_run {
    int32_t first, stride, count;
};

struct record_comm {
    uint64_t id;                   /* the same on every member: a hash of name and members; 0: unused */
    uint64_t collectives_entered;  /* started */
    uint64_t collectives_finished; /* waited for */
    int32_t size;                  /* members */
    int32_t npeers;
    struct record_run members[RECORD_RUNS]; /* in the communicator's order */
    struct record_peer peers[RECORD_PEERS];
    char name[RECORD_NAME_SIZE];
};

struct flight_record {
    uint64_t operations;          /* started so far */
    int64_t last_change;          /* when this rank last began or ended an operation or a phase */
    int64_t waiting_since;        /* 0: not waiting */
    struct record_op waiting;     /* the operation it waits in */
    char phase[RECORD_TEXT_SIZE]; /* what it does between operations: "computing", "saving a checkpoint" */
    int64_t step, micro_batch;    /* from 1; 0: none. trainer/pipeline.c sets micro_batch (recorder_micro_batch) */
    double waited_seconds;        /* in operations, since the start */
    int64_t ending;               /* 1: this rank is ending, and announces it */
    struct record_comm comms[RECORD_COMMS];
    struct record_op ring[RECORD_RING]; /* operation n is at n % RECORD_RING */
};

/* A communicator's member, 0 to size - 1, as a rank of the world; -1 if it is not recorded. */
int record_member(const struct record_comm *comm, int index);

/* Makes a torn or foreign record safe to read: texts are terminated, indices in range, ranks below `world`. */
void record_make_safe(struct flight_record *record, int world);

/* The latest operation; NULL before the first. */
const struct record_op *record_last(const struct flight_record *record);

/* ---- the file ---------------------------------------------------------------------------------------------------- */

struct record_file;

/* This process's record. Others map it until the caller closes *fd (process_share). NULL with CODE_IO. */
struct record_file *record_create(int *fd, struct error *err);

/* Maps the record of another process of this node, read-only; NULL with CODE_IO. */
struct record_file *record_map(const struct process *owner, int fd, struct error *err);
void record_close(struct record_file *file); /* may be NULL */

/* Copies the record and makes it safe, but for the ranks. False if the copy may be torn: in every try the writer was in
 * the middle of a change. A writer may be stopped there. */
bool record_copy(struct flight_record *out, const struct record_file *file);

/* ---- for the writer: recorder.c ---------------------------------------------------------------------------------- */

void record_write_begin(struct record_file *file);
/* Stores bytes [offset, offset + bytes) of `from` in the file; both are multiples of 8. */
void record_put(struct record_file *file, const struct flight_record *from, size_t offset, size_t bytes);
void record_write_end(struct record_file *file);

/* ---- for watchdogs: messages to the other ranks of the node ------------------------------------------------------ */

enum record_flag {
    RECORD_ALARM,    /* 1: this rank has raised the alarm */
    RECORD_ABORTING, /* the signal by which it is about to end; SIGABRT also if it has called exit */
    RECORD_FLAGS
};

void record_set_flag(struct record_file *file, enum record_flag flag, int value); /* also in a signal handler */
int record_flag(const struct record_file *file, enum record_flag flag);           /* 0: not set */

/* The cause of a hang in one line (hang_cause), as a rank passes it on. */
struct record_cause {
    char text[1024];
    bool aborted; /* the ranks that it names have aborted, and no other rank was lost */
};

void record_set_cause(struct record_file *file, const struct record_cause *cause); /* once */
bool record_get_cause(const struct record_file *file, struct record_cause *cause);

#endif

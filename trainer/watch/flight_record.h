/*
 * flight_record.h - the flight recorder's record: the current and latest operations of one rank, in shared memory,
 * where the other ranks of its host can read it even when it is stopped or dead. recorder.h writes it; the watchdog
 * reads it.
 *
 * One thread writes and never waits. Readers copy, and detect whether the writer was in the middle of a change (a
 * sequence lock: Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012). The file
 * consists of 64-bit words, each stored and loaded atomically, so that a copy may be torn but is never undefined
 * behaviour.
 *
 * Times are nanoseconds of the host's CLOCK_MONOTONIC.
 */
#ifndef MUSTER_TRAINER_WATCH_FLIGHT_RECORD_H
#define MUSTER_TRAINER_WATCH_FLIGHT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* A process of this host. The kernel reuses pids, but not with the same start time. */
struct process {
    int64_t pid;
    uint64_t started;   /* clock ticks after boot */
    uint64_t numbering; /* the inode of its pid namespace: each container has its own pids */
};

enum process_state {
    PROCESS_UNKNOWN, /* of another container, or /proc cannot be read */
    PROCESS_RUNNING, /* or asleep */
    PROCESS_STOPPED, /* by SIGSTOP, a terminal or a debugger */
    PROCESS_GONE,
};

/* All 0 where there is no /proc. */
struct process process_self(void);

/* GONE only if /proc would show the process and does not. */
enum process_state process_inspect(const struct process *process);

enum {
    RECORD_COMMS = 16,     /* communicators a rank can have at once; operations of further ones are not recorded */
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
    RECORD_SUM,
    RECORD_MAXIMUM,
    RECORD_BARRIER,
    RECORD_AGREEMENT, /* on whether all succeeded */
    RECORD_SPLIT,     /* into groups */
    RECORD_KINDS
};

extern const char *const record_kinds[RECORD_KINDS]; /* "reduce-scatter", ... */

/* Sends and receives, which are counted by peer; collectives are counted by communicator. */
bool record_is_transfer(int kind);

struct record_op {
    uint64_t number;   /* among all operations of this rank, from 1; 0: none */
    uint64_t sequence; /* among its communicator's collectives, or its sends to or receives from this peer; from 1 */
    int64_t entered;   /* time of its start */
    int64_t left;      /* time at which waiting for it ended; 0: not yet */
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

struct record_comm {
    uint64_t id;      /* the same on every member: a hash of name and members; 0: unused */
    uint64_t entered; /* collectives started */
    uint64_t left;    /* collectives waited for */
    int32_t size;     /* members, see record_members */
    int32_t npeers;
    struct record_peer peers[RECORD_PEERS];
    char name[RECORD_NAME_SIZE];
};

struct flight_record {
    uint64_t operations;          /* started so far */
    int64_t active;               /* when this rank last began or ended anything */
    int64_t waiting_since;        /* 0: not waiting */
    struct record_op waiting;     /* the operation it waits in */
    char phase[RECORD_TEXT_SIZE]; /* its work between operations: "computing", "saving a checkpoint" */
    int64_t step, micro_batch;    /* current ones, from 1; 0: none */
    double waited_seconds;        /* in operations, since the start */
    uint64_t ended;               /* 1: this rank is ending, and announces it */
    struct record_comm comms[RECORD_COMMS];
    struct record_op ring[RECORD_RING]; /* operation n is at n % RECORD_RING */
};

/* The latest operation; NULL before the first. */
const struct record_op *record_last(const struct flight_record *record);

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/*
 * A file in /dev/shm that only its owner may open, named after its process. The name is needed only until the host's
 * other ranks have mapped it; after record_unlink nothing is left behind, however the processes end.
 */
struct record_file;

/*
 * This process's own. Removes the files of processes that were killed before record_unlink. If /dev/shm is full or
 * missing it is private memory, which neighbours cannot read. NULL with CODE_IO when out of memory.
 */
struct record_file *record_create(int world, struct error *err);

/* The file's file system, by which ranks detect whether they share it; 0 for private memory. */
uint64_t record_device(const struct record_file *file);

/* Another's, to read; NULL with CODE_IO. */
struct record_file *record_map(const struct process *owner, int world, struct error *err);

void record_unlink(struct record_file *file);
void record_close(struct record_file *file); /* may be NULL; the owner's is unlinked too */

/* A copy. False if it may be torn: each try met the writer in the middle of a change, where it may be stopped. */
bool record_copy(struct flight_record *out, const struct record_file *file);

/* The members of a communicator, as ranks of the world in the communicator's order. */
void record_members(const struct record_file *file, int comm, int *members, int size);

/* ---- for the writer: recorder.c ---------------------------------------------------------------------------------- */

void record_begin(struct record_file *file);
/* Stores bytes [offset, offset + bytes) of `from` in the file; both are multiples of 8. */
void record_put(struct record_file *file, const struct flight_record *from, size_t offset, size_t bytes);
void record_end(struct record_file *file);
void record_put_members(struct record_file *file, int comm, const int *members, int size);

/* ---- for watchdogs: messages to the other ranks of the host ------------------------------------------------------ */

enum { RECORD_VERDICT_SIZE = 1024 };

void record_raise_alarm(struct record_file *file);
bool record_alarm(const struct record_file *file);
void record_set_aborting(struct record_file *file); /* may be called by a signal handler */
bool record_aborting(const struct record_file *file);
void record_set_verdict(struct record_file *file, const char *text); /* once */
bool record_verdict(const struct record_file *file, char text[static RECORD_VERDICT_SIZE]);

#endif

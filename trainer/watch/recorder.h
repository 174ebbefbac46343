/*
 * recorder.h - the flight recorder: a rank writes down what it does as it does it, so that others can say where it got
 * to when it no longer can. comm/comm.c records every operation; the engine says what operations are for
 * (comm_purpose), and what it does between them (recorder_phase).
 *
 * One recorder a process, used by the thread that communicates. Without one every function does nothing, so that tools
 * and tests need none. An operation costs some 110 ns in all: three readings of the clock and a few cache lines; no
 * system calls.
 */
#ifndef MUSTER_TRAINER_WATCH_RECORDER_H
#define MUSTER_TRAINER_WATCH_RECORDER_H

#include "common/error.h"
#include "trainer/watch/record.h"

/* Starts recording, for a world of so many ranks. NULL with CODE_IO when out of memory. */
struct record_file *recorder_start(int world, struct error *err);

/* Ends it; the file is closed. */
void recorder_stop(void);

/* Nanoseconds of the clock that records use. */
int64_t recorder_now(void);

/* ---- for the engine ---------------------------------------------------------------------------------------------- */

/* What this rank does from now on between its operations, such as "saving a checkpoint"; NULL is "computing". */
void recorder_phase(const char *what);

/* The step and micro-batch under way, from 1; 0 for none. */
void recorder_step(int64_t step, int64_t micro_batch);

/* Seconds spent waiting in operations since the start: what is left of a step's time is this rank's own. */
double recorder_waited_seconds(void);

/* This rank ends, for a reason that it knows: its process will be gone, and that is no loss to report. */
void recorder_ending(void);

/* ---- for comm/comm.c --------------------------------------------------------------------------------------------- */

/* A communicator's place in the record; {0} before the first operation. */
struct recorder_comm {
    uint64_t recorder; /* which one it is known to: a process may start several, one after the other */
    int slot;
};

/* Makes the communicator known, under this name; members are ranks of the world, in its order. */
void recorder_add_comm(struct recorder_comm *comm, const char *name, const int *members, int size);
void recorder_remove_comm(struct recorder_comm *comm);

/* Whether recorder_add_comm is due. */
bool recorder_wants(const struct recorder_comm *comm);

/*
 * An operation is started: *op is what the others below are given. peer is a rank of the world, for sends and receives.
 * what and of, both borrowed for the call and either may be NULL, make the purpose: "block 7 gradients".
 */
void recorder_enter(struct record_op *op, const struct recorder_comm *comm, enum record_kind kind, int peer,
                    const char *what, const char *of);
void recorder_wait(const struct record_op *op);  /* the rank now waits in it */
void recorder_leave(const struct record_op *op); /* and no longer: it is over */

#endif

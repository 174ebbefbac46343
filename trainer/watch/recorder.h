/*
 * recorder.h - the flight recorder: a rank records its operations as it starts and ends them, so that other ranks can
 * report its state when it is stopped or dead. trainer/comm records every operation; the engine names their purpose
 * (comm_purpose), and its work between them (recorder_phase).
 *
 * One recorder per process, used by the thread that communicates. Without one every function does nothing, so that
 * tools and tests need none. Recording an operation takes some 110 ns: three readings of the clock and a few cache
 * lines; no system calls.
 */
#ifndef MUSTER_TRAINER_WATCH_RECORDER_H
#define MUSTER_TRAINER_WATCH_RECORDER_H

#include "common/error.h"
#include "trainer/watch/flight_record.h"

/* Starts recording in a file as record_create's. NULL with CODE_IO when out of memory. */
struct record_file *recorder_start(int *fd, struct error *err);

/* Ends it; the file is closed. */
void recorder_stop(void);

/* Nanoseconds of the clock that records use. */
int64_t recorder_now(void);

/* ---- for the engine ---------------------------------------------------------------------------------------------- */

/* Names this rank's work between operations from now on, such as "saving a checkpoint"; NULL is "computing", or what
 * recorder_base has set in its place, such as "validating". recorder_base(NULL) is "computing" again. */
void recorder_phase(const char *what);
void recorder_base(const char *what);

/* The current step, from 1, and its micro-batch, from 1; 0 between micro-batches. recorder_step sets it to 0. */
void recorder_step(int64_t step);
void recorder_micro_batch(int64_t micro_batch);

/* Seconds spent waiting in operations since the start, without those in which the device was busy. The rest of a step's
 * time is this rank's own work. */
double recorder_waited_seconds(void);

/*
 * Where this rank's time has gone since the start, in seconds, all of it: work by its phase, and waiting in operations
 * while computing by the axis.
 */
enum recorder_share {
    SHARE_COMPUTING,
    SHARE_DATA,
    SHARE_VALIDATING,
    SHARE_REPORTING,
    SHARE_CLAIM,   /* of a save: the check of the claim */
    SHARE_SYNC,    /* the flush of the metrics */
    SHARE_SAVING,  /* the copy into the stage, or to checkpoint.dir */
    SHARE_PARTNER, /* the copy to the partner */
    SHARE_OTHER,
    SHARE_DP,
    SHARE_TP,
    SHARE_PP,
    SHARE_WORLD,
    RECORDER_SHARES
};

extern const char *const recorder_share_names[RECORDER_SHARES]; /* those of work are the phases */
void recorder_shares(double seconds[RECORDER_SHARES]);

/* Announces that this process is about to end, so that its end is not reported as a lost rank. */
void recorder_ending(void);

/* Raises the alarm of this node's watchdogs. */
void recorder_alarm(void);

/* ---- for trainer/comm -------------------------------------------------------------------------------------------- */

/* Registers a communicator; members are ranks of the world, in its order. *comm is its number in the record: 0 if it is
 * not registered, below 0 if the record is full. */
void recorder_add_comm(int *comm, const char *name, const int *members, int size);
void recorder_remove_comm(int *comm);

/* True if the communicator must be registered first. */
bool recorder_must_add_comm(int comm);

/*
 * Records the start of an operation in *op, for the two calls below. peer: a rank of the world, for sends and receives.
 * unit and data, each of which may be NULL or empty, make the purpose: "block 7" and "gradients" are "block 7
 * gradients". A rank that hangs in the start of an operation is not recorded as waiting: the ranks that wait for it
 * raise the alarm.
 */
void recorder_enter(struct record_op *op, int comm, enum record_kind kind, int peer, const char *unit,
                    const char *data);
void recorder_wait_begin(const struct record_op *op); /* the rank begins to wait for it */
void recorder_leave(const struct record_op *op);      /* the wait has ended, also by failure; or the start failed */

/* Within a wait. true: the device still does earlier work, and the time from now on counts as computing. false: it has
 * done it, and the time from now on counts as waiting. */
void recorder_device_busy(bool busy);

#endif

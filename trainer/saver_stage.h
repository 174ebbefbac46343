/*
 * saver_stage.h - the trainer's side of its node's stage: copies the rank's shard into the stage (ckpt_stage_shard).
 * The node's first rank also runs the muster-ckptd(8) that drains the stage.
 *
 * Nothing here communicates with other ranks; saver.c makes them agree. While a copy is under way, only
 * ckpt_stage_directory, ckpt_stage_has_drainer and ckpt_stage_updated may be called (ckpt/stage/stage.h).
 */
#ifndef MUSTER_TRAINER_SAVER_STAGE_H
#define MUSTER_TRAINER_SAVER_STAGE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "ckpt/stage/stage.h"

enum {
    SAVER_MOST_RESTARTS = 5, /* of a muster-ckptd that ends again and again */
    SAVER_SILENT = 5,        /* seconds */
};

/* Not to be moved while a copy is under way. */
struct saver_stage {
    struct ckpt_stage *handle;
    bool first; /* of the node's ranks */
    /* muster-ckptd, of the first rank */
    int cap;      /* MiB a second; 0: no limit */
    pid_t pid;    /* 0: not running */
    int restarts; /* in a row; 0 again when the last one is LONG_LIVED seconds ago */
    double restarted;
    double sign, looked;    /* its last sign that it moves, and clock_monotonic when that was looked for */
    double silent, kill_at; /* seconds without a new sign, and when it is killed for that */
    /* the copy */
    const struct ckpt_save *save; /* borrowed; NULL: none is under way */
    bool threaded;
    pthread_t thread;
    atomic_bool done;
    int result;
    struct error error;
};

/*
 * Open the node's stage; with config->first, as its first rank, also start muster-ckptd: the one beside this program,
 * else the one in PATH. It gets a session of its own, so that a terminal's ^C does not end the drain of the last save.
 */
struct saver_stage *saver_stage_open(const struct ckpt_stage_config *config, int cap, struct error *err);

/*
 * This rank stages no more: muster-ckptd drains what is left, removes the stage and ends. Wait up to so many seconds
 * for that, then free the struct.
 */
void saver_stage_close(struct saver_stage *stage, double seconds);

/* Waits for the copy under way, and leaves the stage as it is. NULL does nothing. */
void saver_stage_destroy(struct saver_stage *stage);

/*
 * Copy a shard into the stage (ckpt_stage_shard). in_thread: in a thread with all signals blocked. Otherwise, or if no
 * thread can be started, the copy is complete on return.
 */
void saver_stage_copy(struct saver_stage *stage, const struct ckpt_save *save, bool in_thread);
bool saver_stage_is_copying(const struct saver_stage *stage); /* false for NULL */
bool saver_stage_copy_done(const struct saver_stage *stage);  /* true if saver_stage_wait returns at once */

/* Wait for the copy. Returns what ckpt_stage_shard returned, with its *err. */
int saver_stage_wait(struct saver_stage *stage, struct error *err);

/* True while our muster-ckptd may still be restarted; or while it, or one of an earlier run, runs and has moved in the
 * last 3 * SAVER_SILENT seconds. */
bool saver_stage_has_drainer(struct saver_stage *stage);

/*
 * Call often. Restarts a muster-ckptd that has ended: SUPERVISE_RESTARTED. If none has moved for SAVER_SILENT seconds,
 * kills the one that runs, if any: SUPERVISE_KILLED; a later call restarts it. It can be killed at any time: only its
 * child waits for the file system. 0: neither, or too many restarts after short lives. -1: failed.
 */
enum { SUPERVISE_RESTARTED = 1, SUPERVISE_KILLED };
int saver_stage_supervise(struct saver_stage *stage, struct error *err);

#endif

/*
 * saver_stage.h - what a rank does in its node's stage: copies its shard into it, and, as the node's first rank, runs
 * the muster-ckptd(8) that drains it.
 *
 * Nothing here communicates with other ranks; saver.c makes them agree. While a copy is under way the stage may be
 * asked whether it is drained, and nothing else (ckpt/stage/stage.h).
 */
#ifndef MUSTER_TRAINER_SAVER_STAGE_H
#define MUSTER_TRAINER_SAVER_STAGE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "ckpt/stage/stage.h"

enum { SAVER_MOST_RESTARTS = 5 }; /* of a muster-ckptd that ends again and again */

/* Not to be moved while a copy is under way. */
struct saver_stage {
    struct ckpt_stage *ckpt;
    bool first; /* of the node's ranks */
    /* muster-ckptd, of the first rank */
    int cap;      /* MiB a second; 0: no limit */
    pid_t pid;    /* 0: not running */
    int restarts; /* each after a short life */
    double restarted;
    /* the copy */
    const struct ckpt_save *save; /* borrowed; NULL: none is under way */
    bool threaded;
    pthread_t thread;
    atomic_bool over;
    int result;
    struct error error;
};

/*
 * Open the node's stage; with config->adopt, as its first rank, also start muster-ckptd: the one beside this program,
 * else the one in PATH. It gets a session of its own: a terminal's ^C must not end what drains the last save.
 */
struct saver_stage *saver_stage_open(const struct ckpt_stage_config *config, int cap, struct error *err);

/*
 * This rank stages no more: muster-ckptd drains what is left, removes the stage and ends. Wait up to so many seconds
 * for that.
 */
void saver_stage_close(struct saver_stage *stage, double seconds);

/* Waits for the copy under way, and leaves the stage as it is. NULL is harmless. */
void saver_stage_destroy(struct saver_stage *stage);

/*
 * Copy a shard into the stage; beside: in a thread, to which no signal is delivered. Where no thread can be started,
 * and where not beside, the copy is over on return.
 */
void saver_stage_copy(struct saver_stage *stage, const struct ckpt_save *save, bool beside);
bool saver_stage_is_copying(const struct saver_stage *stage); /* NULL: not */
bool saver_stage_is_over(const struct saver_stage *stage);    /* saver_stage_wait would not wait */

/* Wait for the copy. Returns what ckpt_stage_shard returned, with its *err. */
int saver_stage_wait(struct saver_stage *stage, struct error *err);

/* Whether a muster-ckptd drains the stage: ours, or one of an earlier run that is still at work. */
bool saver_stage_is_drained(struct saver_stage *stage);

/* Restart a muster-ckptd that has ended: 1. 0: not needed, or no longer tried. -1: failed. */
int saver_stage_supervise(struct saver_stage *stage, struct error *err);

#endif

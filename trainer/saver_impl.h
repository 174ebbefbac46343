/*
 * saver_impl.h - a saver (saver.h), within the files saver*.c: the save that is due, the one before it while it is
 * copied, and what is known of earlier ones. comm_agree gives all ranks the error of the first that failed. CODE_IO and
 * CODE_DATA are logged, and training goes on. CODE_PEER: a rank is lost. CODE_CONFIG: another run owns checkpoint.dir, or
 * the stage has files of an unknown format.
 */
#ifndef MUSTER_TRAINER_SAVER_IMPL_H
#define MUSTER_TRAINER_SAVER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "ckpt/stage/stage.h"
#include "common/clock.h"
#include "trainer/run.h"

/* ---- saver_shard.c ----------------------------------------------------------------------------------------------- */

/* This rank's shard in a save. */
struct shard_save {
    struct ckpt_save save;           /* borrows from the engine and from this struct, which must not be moved */
    char attempt[CKPT_ATTEMPT_SIZE]; /* the name of this attempt, the same on all ranks */
    /* the copy into the stage */
    bool copying; /* from shard_save_copy to shard_save_wait */
    bool threaded;
    pthread_t thread;
    atomic_bool copied; /* shard_save_wait need not wait */
    struct ckpt_stage *stage;
    int result;
    struct error error;
};

/* The run's progress now, as a save records it. */
struct ckpt_progress shard_save_progress(const struct engine *engine);

/* `snapshot`: its progress; this waits for its transfer to the host. NULL: the present state. Collective.
 * shard_save_destroy comes also after a failure. */
int shard_save_create(struct engine *engine, const struct ckpt_progress *snapshot, struct shard_save *own,
                      struct error *err);
void shard_save_destroy(struct shard_save *own);

/*
 * Copies the shard into the stage (ckpt_stage_shard). in_thread: in a thread with all signals blocked; until
 * shard_save_wait, only ckpt_stage_directory and ckpt_stage_updated may then be called (ckpt/stage/stage.h). Otherwise,
 * or if no thread can be started, the copy is complete on return.
 */
void shard_save_copy(struct shard_save *own, struct ckpt_stage *stage, bool in_thread);

/* Waits for the copy. Returns what ckpt_stage_shard returned, with its *err. */
int shard_save_wait(struct shard_save *own, struct error *err);

/* The muster-ckptd(8) that drains the node's stage; only the node's first rank runs one. */
struct saver_ckptd {
    pid_t pid;    /* 0: not running */
    int input;    /* a socket, which shows it that this process has not ended; 0: not started yet */
    int restarts; /* in a row; 0 again when the last one is LONG_LIVED seconds ago */
    double restarted;
    struct standstill still; /* of the lock's time, which it sets */
    double kill_at;          /* when still.seconds is so much, it is killed */
};

/* A stage that an earlier run of the job has left on this node. A muster-ckptd of its own drains it, until this run
 * ends. */
struct saver_earlier {
    char path[4096];
    pid_t pid; /* 0: it has ended */
    int input; /* as in struct saver_ckptd */
};

/* Whether training goes on after a save; or it is the run's last; or there may also be little time. */
enum saver_moment { SAVER_TRAINING, SAVER_LAST, SAVER_STOPPING };

struct saver {
    struct run *run;
    struct engine *engine; /* engine, job and world belong to the run */
    const struct job *job;
    struct comm *world;
    struct ckpt_stage *stage; /* this node's; NULL: saves are written directly to checkpoint.dir */
    bool first;               /* this rank is the first of its node */
    struct saver_ckptd ckptd;
    struct saver_earlier *earlier; /* [nearlier], on the first rank */
    size_t nearlier;
    enum saver_moment moment;
    double full_since; /* clock_monotonic when the stage was first found full; 0: it has room */
    bool put_off;      /* the stage is full, and that was logged */
    /* The save under way. */
    bool has_snapshot;             /* its copy begins after the next step; shard_save.copying: has begun */
    struct ckpt_progress snapshot; /* the run's progress when it was taken */
    struct shard_save shard_save;  /* while it is copied */
    double waited;                 /* seconds that training waited for the copy */
    double waited_in_all;          /* seconds in saver_step */
    uint64_t begun; /* step of the last save that was begun: one is due if a multiple of checkpoint.every is newer */
    /* Steps; UINT64_MAX: none. */
    uint64_t dropped;          /* given up last, for room */
    uint64_t last_save;        /* staged, or written directly; at first, of the checkpoint that was resumed */
    uint64_t staged_step;      /* staged last; none after a save that was written directly */
    uint64_t committed;        /* committed last; at first, of the checkpoint that was resumed */
    double committed_at;       /* clock_monotonic of the last commit; at first, of the start */
    double uncommitted_logged; /* clock_monotonic of log_uncommitted's last line; 0: none */
    bool direct_logged, prune_logged, others_logged;
};

/* ---- saver_direct.c ---------------------------------------------------------------------------------------------- */

/* Saves the snapshot, or the present state where that is NULL, without a stage (engine_save). `started`: of the save, by
 * clock_monotonic. */
int saver_save_directly(struct saver *saver, const struct ckpt_progress *snapshot, double started, struct error *err);

/* Puts before *err of which step the checkpoint failed. Returns -1. */
int saver_name_failed(uint64_t step, struct error *err);

/* ---- saver_stage.c: the stage, and staged saves until they are committed ----------------------------------------- */

/*
 * Start a muster-ckptd for each stage that earlier runs have left on this node, and wait for them. Then make the node's
 * own stage and start its muster-ckptd: the one beside this program, else the one in PATH. It gets a session of its
 * own, so that a terminal's ^C does not end the drain of the last save. 0 also if the run continues without a stage
 * (saver_do_without).
 */
int saver_open_stage(struct saver *saver, struct error *err);

/*
 * This rank stages no more, and no copy is under way. Waits, up to so many seconds, until muster-ckptd has drained what
 * is left, removed the stage, and ended.
 */
void saver_close_stage(struct saver *saver, double seconds);

/* Continue without a stage; -1 if the run cannot go on: a rank is lost, or the stage has another release's files. */
int saver_do_without(struct saver *saver, struct error *err);

/* Log, once, that saves are not staged, and why. */
void saver_log_direct(struct saver *saver, const struct error *why);

/* Log if another job saves in this run's directory: the newest checkpoint there is of a step that this run has not
 * reached; they remove each other's. */
void saver_look_for_others(struct saver *saver, uint64_t newest);

/* Not collective: restarts a muster-ckptd that was killed or does not move, and logs what became of earlier saves. */
void saver_poll(struct saver *saver);

/*
 * Sets *proceed to true if the save need not wait any more: either the stage has room; or no muster-ckptd runs, and
 * then ckpt_stage_shard returns 1 and the save is written directly. All ranks get the same *proceed. With `wait`,
 * returns only when it is true.
 *
 * While the stage is full on some node, the ranks agree on the oldest step that a node can give up, and every node drops
 * it. The next one is looked for when no node has that step any more. A save is given up if its target fails or does not
 * answer; and while the run stops, if the stage stays full for some seconds, whatever the target does: the newest state
 * comes first. The save that muster-ckptd works on is kept, unless the last save of a run needs room and no other can be
 * given up (ckpt_stage_find_oldest).
 */
int saver_make_room(struct saver *saver, bool wait, bool *proceed, struct error *err);

/*
 * Waits until all saves in the stage have ended; before it is open, all in those of earlier runs. 0: they have; 1: one
 * is left, with the reason in err; -1: ranks cannot communicate, or muster-ckptd ended too often. In short operations,
 * so that no watchdog takes this for a hang.
 */
int saver_wait_for_staged(struct saver *saver, struct error *err);

#endif

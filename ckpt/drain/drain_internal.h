/* drain_internal.h - a drain under way. */
#ifndef MUSTER_CKPT_DRAIN_DRAIN_INTERNAL_H
#define MUSTER_CKPT_DRAIN_DRAIN_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "ckpt/drain/drain.h"
#include "ckpt/stage/stage_dir.h"
#include "common/clock.h"

/*
 * What the drainer knows of a save, from one pass to the next. Times are of clock_monotonic. The record of
 * a dropped save stays until a child has been started to abandon its attempt.
 */
struct drain_save {
    struct staged staged;             /* named as the attempt's directory; "" when it has ended */
    struct ckpt_save_status status;   /* the child reads it only of a dropped save, for its reason */
    bool dropped;                     /* it has ended, and its attempt is to be abandoned, for status.reason */
    double next_commit, commit_delay; /* when to try the next commit, and the delay before the one after it */
    struct standstill others;         /* of the attempt, which lacks other nodes' shards */
    double alone_since;               /* since when such shards are waited for after the run; 0: not yet */
    bool complete;                    /* the attempt was found complete, and another node commits it */
    double copy_began;                /* 0: not yet */
    uint64_t drained_bytes;           /* of shards that are in the target */
    double retry_at, retry_pause;     /* after a failure of the target: when to try again, and the last pause; 0 while
                                         it works */
    double failing_since, logged_at;  /* since when it has failed, and when that was logged last; 0 while it works */
    double lost_since;                /* since when its attempt has been missing or damaged; 0: it is not */
    dev_t target_device;              /* the checkpoint directory when the attempt was last opened: another one since
                                         then means that it was mounted anew */
    ino_t target_inode;
};

#define DRAIN_SAVES (STAGED_MOST + 16)

/*
 * What a function that works in the target returns; a child reports it. With DRAIN_FAILED, err->code says what
 * becomes of the save:
 *
 *   CODE_DATA    ends the save: the staged data is damaged, the attempt is lost, or another run has committed
 *                the step or owns the directory
 *   CODE_PEER    ends the save: another node has abandoned the attempt. (In the trainer CODE_PEER means a lost
 *                rank. A drainer's codes do not reach it.)
 *   other codes  the save stays in the stage and is tried again (retry_later). Every errno of the target is here
 */
enum drain_result {
    DRAIN_FAILED = -1,
    DRAIN_NOT_YET = 0, /* what can be done now is done */
    DRAIN_ALONE,       /* the run has ended, this node's shards are in the target, and the save is not committed: other
                          nodes' do not come, or the node that commits does not end */
    DRAIN_STOPPED,     /* `stop` was set, time is up, or another thread has failed */
    DRAIN_AGAIN,       /* in drain_shard.c: another drainer has removed the file that was written, or there may be
                          room for it now */
    DRAIN_COMMITTED,
    DRAIN_SUPERSEDED,
};

/* Memory that the drainer shares with its child process. While a child works on a save, the drainer changes no field of
 * it that the child uses. */
struct drain_shared {
    struct drain_save saves[DRAIN_SAVES];
    atomic_bool stop;         /* the child is to return soon */
    atomic_bool copying;      /* staged shards, at this moment */
    _Atomic uint64_t bytes;   /* copied by this child */
    atomic_bool reported;     /* `result` and `err` are there */
    enum drain_result result; /* of drain_work */
    struct error err;
    uint64_t newest;   /* committed step, after DRAIN_COMMITTED and DRAIN_SUPERSEDED */
    double cap_free;   /* when the cap lets the next block go */
    bool prune_failed; /* and that was logged */
};

/* The process that works on the target; at most one. */
struct drain_child {
    pid_t pid;       /* 0: none */
    int news;        /* a pipe from it: lines for the log, and an empty one when it has reported */
    char line[1400]; /* the line that is being read */
    size_t length;
    char name[FILE_NAME_SIZE]; /* the save whose result end_turn has yet to read; "": none */
    bool stopped, killed;      /* by a signal; by the drainer */
    struct standstill still;   /* of its processor time */
};

/* The process that drains a stage. It never waits for the target: its child does all work there, and gives back the slot
 * of each shard that it has copied. */
struct drainer {
    struct directory stage;
    struct ckpt_drain_options options;
    double deadline; /* of clock_monotonic; 0: none */
    int lock;
    /* of this pass over all saves */
    bool in_use;              /* a process holds `users`: it may still stage */
    bool last_try;            /* the run has ended: what cannot be drained now is left */
    int retrying;             /* saves that are left for a later pass because of a failure */
    bool progress;            /* a save ended */
    enum ckpt_drained result; /* of all passes: DAMAGED or OTHERS if a save ended so */
    bool more;                /* the stage has more saves than staged_list gives, and that was logged */
    struct status status;     /* the saves that have ended, `ended` of them; drainer_write_status appends the others */
    size_t ended;
    double status_written;
    struct drain_child child;
    struct drain_shared *shared;

    pthread_mutex_t mutex; /* in the child, of shared->cap_free and of abandoned_checked of its turn */
};

/* A save in its turn. */
struct drain_turn {
    struct drainer *drainer;
    struct drain_save *save;
    struct directory source;  /* in the stage */
    struct contents own;      /* of `source` */
    bool copies;              /* copies of another node's shards are to be drained: that node may be lost */
    struct directory target;  /* in the child: the checkpoint directory */
    struct directory partial; /* in it; closed (-1) until it is needed */
    double abandoned_checked; /* when keep_pace called drain_check_abandoned last */
    atomic_bool abort;        /* a thread has failed, the others stop */
};

/* Whether a process may still stage. With `once` the run counts as ended. */
static inline bool drainer_run_goes_on(const struct drainer *drainer)
{
    return drainer->in_use && !drainer->options.once;
}

/* Whether that failure ends the save. */
static inline bool drain_ends(const struct error *err)
{
    return err->code == CODE_DATA || err->code == CODE_PEER;
}

/*
 * A file calls those below it in this list, and none above: drain.c, reclaim.c, drain_save.c, drain_child.c,
 * drain_commit.c, drain_shard.c, drain_target.c, drain_state.c.
 */

/* ---- drain.c ----------------------------------------------------------------------------------------------------- */

/* NULL without memory. */
struct drainer *drainer_create(const struct ckpt_drain_options *options);
void drainer_destroy(struct drainer *drainer);

/* Open the stage and take its lock. If false, *result is what ckpt_drain returns: a stage that does not exist is done,
 * and one of another release is left as it is. */
bool drainer_open(struct drainer *drainer, const char *stage_dir, int *result, struct error *err);

void drainer_remove_stage(const struct drainer *drainer);

/* ---- drain_save.c ------------------------------------------------------------------------------------------------ */

/* Do for a save what can be done now. False if it has ended. */
bool drain_handle(struct drainer *drainer, const struct staged *staged);

/* Starts a child for an attempt to abandon, if no child is at work. True if there is one to abandon. If the target
 * fails, no marker is made, and the other nodes wait. */
bool drainer_abandon_next(struct drainer *drainer);

/* No save needs to wait for the end of its pause: the target works, or has a newer checkpoint. */
void drainer_end_pauses(struct drainer *drainer);

/* ---- drain_child.c ----------------------------------------------------------------------------------------------- */

/* Start the child: it calls drain_work, and ends. It is killed when this process ends. -1 if it cannot be started. */
int drain_child_start(struct drain_turn *turn, struct error *err);

/* Wait for so long, or until it has reported or ended. */
void drain_child_wait(struct drainer *drainer, double seconds);

/* True if the child has made no progress for some time, or cannot be killed: the target does not answer. It is not
 * killed for that alone. Progress is processor time: a system call that makes progress, however slow, takes some. */
bool drain_child_hangs(const struct drainer *drainer);

/* Ask it to end, which it does soon if the target answers, and then kill it. */
void drain_child_stop(struct drainer *drainer);

/* Kill it. On return it has ended, or is in a system call and will end with it. It does not touch the stage any more:
 * its save may be removed. No other child starts before it has ended. */
void drain_child_kill(struct drainer *drainer);

/* ---- drain_commit.c: in the child -------------------------------------------------------------------------------- */

/* What a child does: copies what the target lacks, tries to commit, and reports what becomes of the save. If that was
 * dropped, only abandons its attempt. */
void drain_work(struct drain_turn *turn);

/* ---- drain_shard.c: in the child --------------------------------------------------------------------------------- */

/*
 * Copy all complete staged shards in `from`, and their parts, some at the same time, and make them durable. Opens the
 * attempt's directory, and makes a missing one, unless `made` is marked.
 */
int drain_shards(struct drain_turn *turn, const struct directory *from, struct error *err);

/* ---- drain_target.c: in the child -------------------------------------------------------------------------------- */

/* -1 with CODE_PEER if the attempt was abandoned by another node (stage.h), with its reason. */
int drain_check_abandoned(struct drain_turn *turn, struct error *err);

/* -1 with CODE_DATA if another run owns the checkpoint directory and does not accept the save (attempt_check_claim). */
int drain_check_claim(struct drain_turn *turn, struct error *err);

/*
 * The attempt is missing or damaged in the target, as *err says: sets err->code and returns -1. CODE_DATA (it is to be
 * abandoned) if
 *  - it has been missing for LOST_SECONDS,
 *  - the checkpoint directory has the device and inode that it had when this drainer last opened the attempt's
 *    directory (otherwise, and in a drainer that has not opened it yet, its file system may not be mounted), and
 *  - a run uses the stage: it can save again.
 * Otherwise CODE_IO: it is tried again, and the staged data is kept.
 */
int drain_judge_missing(struct drain_turn *turn, struct error *err);

/* ---- drain_state.c ----------------------------------------------------------------------------------------------- */

/* Whether the drainer, or its child, is to end soon. */
bool drainer_must_stop(const struct drainer *drainer);

/*
 * Whether it waits for a target that fails. With `once`: only while the run goes on that started it; or if it has
 * `seconds` and not `require_unused`, as the epilog of the job that has just ended.
 */
bool drainer_waits(const struct drainer *drainer);

/* A line of the drainer's log, and one about a save. */
void drainer_log(const struct drainer *drainer, bool failure, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void drain_log(const struct drain_turn *turn, bool failure, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Write status.json; unless `now`, only if that was not done in the last fifth of a second. */
void drainer_write_status(struct drainer *drainer, bool now);

#endif

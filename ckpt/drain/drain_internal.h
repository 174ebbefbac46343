/* drain_internal.h - a drain under way. */
#ifndef MUSTER_CKPT_DRAIN_DRAIN_INTERNAL_H
#define MUSTER_CKPT_DRAIN_DRAIN_INTERNAL_H

#include <pthread.h>
#include <sys/stat.h>

#include "ckpt/drain/drain.h"
#include "ckpt/stage/stage_dir.h"

/* What the functions that copy and commit return, besides -1. */
enum {
    DRAIN_CONTINUE = 0, /* done as far as possible now; the generation has not ended */
    DRAIN_COMMITTED,
    DRAIN_INTERRUPTED, /* stop was set, or time is up */
    DRAIN_SUPERSEDED,  /* a newer step was committed */
    DRAIN_STALLED,     /* all shards of this node are in the target, and other nodes' shards do not come */
    DRAIN_AGAIN,       /* try again: another drainer removed our temporary file, or there may be room now; within
                          drain_shard.c */
};

/* What becomes of the generation at the end of its turn: the result of drain_retry and drain_end_*. */
enum turn_result { TURN_ENDED, TURN_LEFT };

/* What is remembered of a generation from one turn to the next. Times are of clock_monotonic. */
struct drain_progress {
    char name[FILE_NAME_SIZE];
    double next_commit, commit_delay; /* when to try the next commit, and the delay before the one after it */
    double next_gather;               /* when may_commit next looks at a save of many shards; 0: at once */
    double complete_since;            /* since when may_commit has found the attempt complete; 0: it has not */
    uint64_t activity;                /* the last result of measure_activity */
    double moved_at;                  /* when `activity` last changed */
    double next_look;                 /* when to call measure_activity again */
    double copy_began;                /* 0: not yet */
    uint64_t drained_bytes;           /* of shards that are in the target */
    double retry_at, retry_pause;    /* after a failure of the target: when to try again, and the last pause; 0 while it
                                         works */
    double failing_since, logged_at; /* since when it has failed, and when that was logged last; 0 while it works */
    double lost_since;               /* since when its attempt has been gone or damaged, in a target that works; 0: it
                                         is not */
    struct stat target_dir;          /* the checkpoint directory that the attempt is in */
    bool stalled;                    /* DRAIN_STALLED was returned before */
    int checked_parts;               /* parts whose formats are known */
    bool unknown;                    /* it has a file of an unknown format, which was logged */
};

/* The one process that drains a stage. */
struct drainer {
    struct directory stage;
    struct ckpt_drain_options options;
    double deadline; /* of clock_monotonic; 0: none */
    int lock;
    int unknown;         /* generations of this pass that are of an unknown format */
    int retrying;        /* generations of this pass that are left for a later one because of a failure */
    bool ended;          /* a generation ended in this pass */
    bool damaged;        /* a generation ended because its data was */
    bool others_missing; /* a generation ended because other nodes' shards are missing, or one of them abandoned it */
    bool trainer_alive;  /* a process holds `users`: it may still stage */
    bool prune_failed;   /* and that was logged */
    bool more;           /* the stage has more generations than generation_list gives, and that was logged */
    struct drain_progress progress[STATUS_MOST];

    pthread_mutex_t mutex; /* of what follows, while threads copy (drain_shards) */
    struct status *status;
    double status_written;
    double cap_free; /* when the cap lets the next block go */
};

/* A generation in its turn. */
struct drain_turn {
    struct drainer *drainer;
    struct generation *generation;
    struct directory source;  /* in the stage */
    struct directory parent;  /* the checkpoint directory; closed (-1) until it is needed */
    struct directory partial; /* in it; likewise */
    struct status_generation *entry;
    struct drain_progress *progress;
    double abandoned_checked; /* when drain_pace called drain_check_abandoned last */
    bool abort;               /* under the mutex: a thread has failed, the others stop */
};

/*
 * All functions below set err->code by this rule:
 *
 *   CODE_DATA    ends the generation: the staged data is damaged, the attempt is lost, or another run has committed
 *                the step or owns the directory
 *   CODE_PEER    ends the generation: another node has abandoned the attempt. (In the trainer CODE_PEER means a lost
 *                rank. A drainer's codes do not reach it.)
 *   other codes  the generation stays in the stage and is tried again (drain_retry). Every errno of the target is here
 */

/* ---- drain.c ----------------------------------------------------------------------------------------------------- */

/*
 * Call before a block of `bytes` is copied. Counts the bytes in the status, waits as long as the cap requires, and
 * checks twice a second whether the attempt was abandoned. 0, DRAIN_INTERRUPTED or -1.
 */
int drain_pace(struct drain_turn *turn, uint64_t bytes, struct error *err);

/* ---- drain_shard.c ----------------------------------------------------------------------------------------------- */

/*
 * Copy all complete staged shards in `from`, and their parts, some at the same time, and make them durable. Opens the
 * target's directories. Makes missing ones, unless a mark `made` (stage.h) says that they existed. 0, DRAIN_INTERRUPTED
 * or -1.
 */
int drain_shards(struct drain_turn *turn, const struct directory *from, struct error *err);

/* ---- drain_commit.c ---------------------------------------------------------------------------------------------- */

/* DRAIN_COMMITTED if the step is committed and is ours; DRAIN_CONTINUE; -1 also if the committed step is another
 * run's. */
int drain_is_committed(struct drain_turn *turn, struct error *err);

/* Whether a newer step than this generation's is committed. */
bool drain_is_superseded(const struct drain_turn *turn);

/* Tries ckpt_commit if next_commit has passed. Returns as drain_is_committed, or DRAIN_SUPERSEDED or DRAIN_STALLED. */
int drain_commit(struct drain_turn *turn, struct error *err);

/*
 * How an attempt is abandoned (attempt.h): a drainer finds that the attempt can never be committed, because this node's
 * staged data is damaged or drain_judge_missing returns CODE_DATA. take_turn (drain.c) then calls drain_end_failed,
 * which calls drain_abandon. The other nodes' drainers find the marker by drain_check_abandoned, and end their
 * generations as failed.
 *
 * -1 with CODE_PEER if the attempt was abandoned by another node, with its reason.
 */
int drain_check_abandoned(struct drain_turn *turn, struct error *err);

/* -1 with CODE_DATA if another run owns the checkpoint directory and does not accept the save (ckpt/write/claim.h). */
int drain_check_claim(struct drain_turn *turn, struct error *err);

/*
 * The attempt is missing or damaged in the target, as *err says: sets err->code and returns -1. CODE_DATA (it is to be
 * abandoned) if
 *  - it has been missing for LOST_SECONDS,
 *  - the checkpoint directory has the device and inode that it had when this drainer last opened the attempt's
 *    directory (otherwise, and in a drainer that has not opened it yet, its file system may not be mounted), and
 *  - the trainer that staged the save runs and can save again.
 * Otherwise CODE_IO: it is tried again, and the staged data is kept.
 */
int drain_judge_missing(struct drain_turn *turn, struct error *err);

/* Abandons the attempt, so that other nodes do not wait for this node's shards. An earlier reason stays. */
void drain_abandon(struct drain_turn *turn, const char *why);

/* ---- drain_retry.c ----------------------------------------------------------------------------------------------- */

/* A line of the drainer's log, and one about this generation. */
void drainer_log(const struct drainer *drainer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void drain_log(const struct drain_turn *turn, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Write status.json; unless `now`, only if that was not done in the last fifth of a second. Takes the mutex. */
void drainer_write_status(struct drainer *drainer, bool now);

/* The drainer ends before the generations do: one log line with the steps and the reason. */
void drainer_log_left(struct drainer *drainer);

/* Sets the reason in status.json why it has not ended yet; "" removes it. A trainer takes a generation with a reason as
 * one in trouble (ckpt_stage_find_trouble): the target fails, or other nodes' shards do not come. */
void drain_set_reason(struct drain_turn *turn, const char *text);

/* The target failed: the generation stays, and is tried again after a pause that grows. TURN_LEFT. */
enum turn_result drain_retry(struct drain_turn *turn, const struct error *why);

/* The target works, or has a newer checkpoint: no generation needs to wait for the end of its pause. */
void drainer_end_pauses(struct drainer *drainer);

/* The target works again, if it failed before. */
void drain_recover(struct drain_turn *turn);

/* ---- drain_end.c ------------------------------------------------------------------------------------------------- */

/* Take the generation out of the stage: move its data files to .free, and remove the rest. */
void drain_remove(struct drain_turn *turn);

/* Write the generation's result to status.json, then drain_remove. All drain_end* but drain_end_stalled return
 * TURN_ENDED. drain_end_committed also prunes the target if this node has shard 0. */
enum turn_result drain_end(struct drain_turn *turn, enum status_state state, const char *reason);
enum turn_result drain_end_committed(struct drain_turn *turn);

/* Abandons the attempt. */
enum turn_result drain_end_failed(struct drain_turn *turn, const struct error *why);

/* The generation's ranks know that it failed, or are dead. Abandons the attempt, without an entry in status.json. */
enum turn_result drain_end_dropped(struct drain_turn *turn);

/* A newer save needs the memory, and the target fails: as drain_end_failed, unless it is committed. */
enum turn_result drain_end_replaced(struct drain_turn *turn);

/*
 * DRAIN_STALLED. The partial checkpoint stays: when the last shard is there, a node that still has the save commits it
 * (may_commit). Saves of the present run are still watched: TURN_LEFT. Those of an earlier run, and all with `once`,
 * are left to the other nodes: TURN_ENDED.
 */
enum turn_result drain_end_stalled(struct drain_turn *turn);

#endif

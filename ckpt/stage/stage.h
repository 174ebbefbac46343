/*
 * stage.h - saves in this node's memory until they are on the parallel filesystem: the protocol of a save.
 *
 * A *save* is one try to save one step; its attempt's name tells it from other tries. It has three phases: *stage*, one
 * copy of a rank's state into files of this node, in their final format and checksummed on the way, which is all of the
 * copying that training waits for; *drain*, which copies these files to the *target*, the checkpoint directory; and
 * *commit* (ckpt_commit). Drainers send no messages, to each other or to ranks: the directories hold all they know.
 * Each file has one kind of writer: R, a rank; F, the node's first rank; D, the one process that drains,
 * muster-ckptd(8) or the job's epilog (drain.h). It is renamed into place when it is complete. A mark is a symbolic
 * link whose target is its text: it can be made even if the memory is full.
 *
 *   <root>/muster-<uid>-<job>/                the stage: mode 0700; one a node and job, shared by the job's ranks there
 *     users                                R  held, shared, by every process that may stage
 *     run                                  F  mark: the name of the run that stages here; every run has its own
 *     lock                                 D  held (F_OFD_SETLK) by the one process that drains; its time is set five
 *                                             times a second, which shows that the process moves
 *     status.json                          D  where each save is, and what became of it, for ranks and people
 *     .slots/shard-00002-of-00004.*        R  slots: the memory of a rank's saves, which is used again
 *     step-00000100.ATTEMPT.partial/       R  a save
 *       target.json                        R  its target, its run and so on (struct staged_save of stage_dir.h)
 *       shard-00002-of-00004.safetensors   R  as in the checkpoint: a second name (hard link) of the slot that has it
 *       shard-00002-of-00004.json          R  its part of the manifest: written last, it means "complete"
 *       shard-00002-of-00004.drained       D  the part, renamed when data and part are durable in the target
 *       partner/                           R  the same, of shards of another node
 *       dropped                            F  mark: the run has given the save up, and why
 *       made                               D  mark: the attempt's directory was made in the target
 *
 * Where a save is (enum ckpt_save_state) follows from these files: *staged* if all shards of this node, `local` of
 * them, are complete; *drained* if all are .drained. Their slots then have no second name and are free.
 * When its step is committed, or a newer one is, or it can never be committed, D first writes that to status.json
 * (ckpt_stage_drop may ask it not to), and then removes the save's directory.
 *
 * The run that `run` names is *present* while a process holds `users`. Saves of other runs are left over: by a job that
 * was killed or has ended, or by an earlier run of a job that was restarted, which has the same id and so finds this
 * stage. Those that are complete are drained and committed. The others are removed, since no rank will complete them.
 * Draining them must not remove another attempt at the same step, which may be the present run's. A `dropped` of a run
 * that is not present has no effect: the save that it made room for may not exist. If no run is present, D drains
 * partner's copies, too, does not wait for other nodes' shards, and removes the stage when it is empty. So nobody need
 * tell it that a run has ended.
 *
 * A target that fails, with any errno, is tried again (drain.h). No answer for 10 seconds is a failure too: the save
 * that D works on is then *hanging*. status.json has the reason. It also has a reason if this node's shards are drained
 * and other nodes' have not arrived for some time (`idle` in drain.h). The trainer acts only when the next save finds
 * the stage full. Then the ranks agree on the oldest step that can go (saver_make_room), and F marks its save as
 * dropped. D frees its memory at once, then tries once to abandon the attempt. F drops a save on each node, too, if
 * some rank cannot stage its shard.
 *
 * An attempt that can never be committed (the save was dropped, a node's staged data is damaged, or what was drained is
 * removed or damaged) is *abandoned* on all nodes, so that none waits for it: ckpt/write/attempt.h has the protocol. D
 * looks for the marker step-N.ATTEMPT.abandoned in the target while it copies (twice a second), before and after it
 * makes the attempt's directory, and before each try to commit. If it finds the marker, its save ends as failed: "given
 * up by another node: why".
 *
 * D never makes the target: a run does, when it begins. It never makes an attempt's directory twice (`made`). If one is
 * missing, its file system may not be mounted. That counts as a failure of the target. drain_judge_missing says when an
 * attempt counts as removed instead.
 *
 * A stage of format 1 differs so: target.json names no run, there is no `run`, and the run gives a save up by an empty
 * file, `dropped` or `replaced`. Its other marks have no meaning any more.
 *
 * Only the root is opened by path; everything beneath it is opened by openat with O_NOFOLLOW.
 */
#ifndef MUSTER_CKPT_STAGE_STAGE_H
#define MUSTER_CKPT_STAGE_STAGE_H

#include "ckpt/ckpt.h"

struct ckpt_stage;

struct ckpt_stage_config {
    const char *root; /* a directory of this node: a RAM disk, or an NVMe disk */
    const char *job;  /* 1 to 64 letters, digits, '.', '_' and '-'; the trainer's is "JOBID.NODE.CHECKSUM", the
                         checksum of the checkpoint directory's path */
    int local;        /* shards of each save that this node stages; at least 1 */
    int max_staged;   /* saves a rank may have in memory at once; 0: 2 */
    uint64_t process; /* bytes of its own that each rank will hold: what is not resident yet is no room */
    int threads;      /* that copy; 0: 2 */
    int keep;         /* as ckpt_prune: done by the node that holds shard 0, after the commit */
    uint64_t keep_every;
    bool first; /* the node's first rank, which opens it before the others do: a new run begins */
};

/* "<root>/muster-<uid>-<job>". -1 with CODE_USAGE when the job's name is not one. */
int ckpt_stage_path(char *path, size_t size, const char *root, const char *job, struct error *err);

/*
 * Open the stage, making it if it is missing. NULL when it cannot be used: the root is missing or read-only, or the
 * name is not a directory of this user with mode 0700 (a link, say). The caller then saves with ckpt_write_shard and
 * logs that once. CODE_CONFIG with `first`: another release of muster staged files in a format that this one does not
 * know (json_fields.h); nothing was changed, and training must not begin.
 *
 * A process opens one stage at most. One thread at a time may call its functions, except ckpt_stage_directory,
 * ckpt_stage_has_drainer and ckpt_stage_updated, which any thread may call at any time.
 */
struct ckpt_stage *ckpt_stage_open(const struct ckpt_stage_config *config, struct error *err);
const char *ckpt_stage_directory(const struct ckpt_stage *stage);

/* Unmaps all files, and stages no more. When all ranks of the node have called it, the drainer removes the stage as
 * soon as all is drained. */
void ckpt_stage_destroy(struct ckpt_stage *stage);

/* ---- saving ------------------------------------------------------------------------------------------------------ */

/*
 * Make, reserve and map all files that saves like this one need (by shard, shards, tensors, kinds and pieces), so that
 * the first save is as fast as the others and none runs out of memory later. Optional; best done when everything else
 * is allocated. 0, or 1 when the file system, the node's memory or the job's memory limit (cgroup v2) leaves too
 * little: needed and free bytes are in err.
 */
int ckpt_stage_reserve(struct ckpt_stage *stage, const struct ckpt_save *save, struct error *err);

/*
 * Copy this rank's shard into the stage. When it returns the sources may change.
 *
 * 0: staged. 1: this node cannot stage the shard, err has the reason: max_staged saves of this rank are in memory
 * (ckpt_stage_has_room is false), the memory has too little space, or writing failed. The caller writes
 * directly to the checkpoint directory. -1: the save itself is wrong, or memory for tables is short. After 1 or -1 on
 * any rank, one rank of every node must ckpt_stage_drop the attempt; a direct write needs a new attempt's name.
 */
int ckpt_stage_shard(struct ckpt_stage *stage, const struct ckpt_save *save, struct error *err);

/* Whether this rank has a free slot, or fewer saves in memory than are allowed. */
bool ckpt_stage_has_room(const struct ckpt_stage *stage, int shard, int shards);

/*
 * The run gives up its saves of `step`; only that of `attempt` if it is not NULL. The drainer removes them, and their
 * files from the checkpoint directory. It reports them as failed, with the reason `why`; or not at all if that is
 * "": then the caller does. One rank a node suffices. A missing save is not a failure.
 */
int ckpt_stage_drop(struct ckpt_stage *stage, uint64_t step, const char *attempt, const char *why, struct error *err);

/* ---- where a save is, and what becomes of it --------------------------------------------------------------------- */

enum ckpt_save_state {
    CKPT_STAGING, /* not all local shards are complete */
    CKPT_STAGED,
    CKPT_DRAINING,
    CKPT_HANGING, /* the target has not answered for some time */
    CKPT_DRAINED, /* waits for other nodes */
    CKPT_UNKNOWN, /* has a file of an unknown format (json_fields.h); it is left as it is */
    /* it has ended: */
    CKPT_COMMITTED,
    CKPT_SUPERSEDED, /* a newer step was committed */
    CKPT_FAILED,
};

/* A save as the drainer sees it. */
struct ckpt_save_status {
    uint64_t step;
    char attempt[CKPT_ATTEMPT_SIZE];
    char dir[4096];
    enum ckpt_save_state state;
    uint64_t bytes_done, bytes_total; /* of this node's shards; total of those that are complete */
    double rate;                      /* bytes a second, of the drain */
    double started, ended;            /* seconds since 1970; `ended` is 0 while it is under way */
    uint64_t serial;                  /* 0 while it is under way; those that ended count from 1 */
    uint64_t newest;                  /* the newest step in the target when it was committed or superseded; or 0 */
    char reason[512]; /* why it failed or is unknown; otherwise why it has not ended yet: its target fails or does not
                         answer, or other nodes' shards do not come; "" if nothing fails */
};

/*
 * The next save that has ended since the last call (or since ckpt_stage_open): 1 and *ended; 0 if there is none.
 * Costs one stat when nothing has changed.
 */
int ckpt_stage_poll(struct ckpt_stage *stage, struct ckpt_save_status *ended, struct error *err);

/*
 * True if every save of this node has ended, except those of an unknown format. A caller waits for it when it has
 * opened the stage of an earlier run, before it searches for the newest checkpoint; and at the end of a run.
 */
bool ckpt_stage_is_empty(struct ckpt_stage *stage);

/* The oldest save that cannot be completed at present: it has a reason. False if there is none, or while any save is
 * *draining* without a reason. */
bool ckpt_stage_find_trouble(struct ckpt_stage *stage, struct ckpt_save_status *trouble);

/*
 * The save to give up for a save of `step`: the oldest of an earlier step that holds memory. False: none.
 *   failing   only a save with a reason, and none while any is *draining*
 *   any       if there is no other, the save that the drainer works on
 * Without `any` that save is kept: it is committed when a target that was slow, or did not answer, works again.
 */
bool ckpt_stage_find_oldest(struct ckpt_stage *stage, uint64_t step, bool failing, bool any,
                            struct ckpt_save_status *oldest);

/* When the drainer last showed that it runs, in seconds since 1970; it does so five times a second. */
double ckpt_stage_updated(const struct ckpt_stage *stage);

/* The process that drains it, or did last; 0 if that is not known. */
int ckpt_stage_drainer(struct ckpt_stage *stage);

/* Kills the process that drains the stage in `dir`, if that is a muster-ckptd which has it in its command line. */
void ckpt_stage_kill_drainer(const char *dir, int pid);

/* Whether this node still has a save of that step. */
bool ckpt_stage_has(const struct ckpt_stage *stage, uint64_t step);

/* Whether some process holds the lock. */
bool ckpt_stage_has_drainer(struct ckpt_stage *stage);

/* ---- partner copies: a shard is also kept on another node, in case its own node is lost -------------------------- */

/* A staged shard as it is sent: the file's bytes, and the text of its part. */
struct ckpt_staged_shard {
    const void *data;
    uint64_t bytes;
    const char *part;
    size_t part_bytes;
};

/* The shard that this rank staged last. Valid until its next ckpt_stage_shard, drained or not. -1 if there is none. */
int ckpt_stage_lend(const struct ckpt_stage *stage, struct ckpt_staged_shard *staged, struct error *err);

/*
 * Two calls keep a copy of another node's shard. First this rank must have staged its own shard of that save.
 *
 * ckpt_stage_borrow returns a buffer of `bytes` to receive into. NULL if there is no room, with the reason in err: this
 * step then has no copy. Uses dir, shard, shards, state.step and attempt of *save. There is one buffer at a time:
 * another ckpt_stage_borrow frees it.
 *
 * ckpt_stage_keep checks every block in the buffer against the checksums of `part`, and makes the copy complete. If the
 * save has ended meanwhile, it keeps nothing: the save can no longer be lost.
 *
 * A drainer copies partner's shards only with its option `partner` or when their node seems lost, and only those that
 * the target lacks. They are removed when the step is committed or superseded.
 */
void *ckpt_stage_borrow(struct ckpt_stage *stage, const struct ckpt_save *save, uint64_t bytes, struct error *err);
int ckpt_stage_keep(struct ckpt_stage *stage, const char *part, size_t part_bytes, struct error *err);

#endif

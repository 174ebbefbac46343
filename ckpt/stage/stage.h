/*
 * stage.h - saves in this node's memory until they are on the parallel file system.
 *
 *  1. A run makes a stage on each node, <root>/muster-<uid>-<job>-<run>. Its ranks hold the lock `users`.
 *  2. First a muster-ckptd(8) drains each stage that earlier runs of the job left. Only then is the newest checkpoint
 *     looked for.
 *  3. A rank copies its shard into a slot, memory that is used again, and checksums it on the way. Training waits for
 *     this copy alone.
 *  4. The slot gets a second name in the save's directory; then the shard's part of the manifest is written: the shard
 *     is staged. A copy of another node's shard is staged in the same way, in `partner`.
 *  5. The stage's muster-ckptd holds `lock`. Its child does all work in the target, the checkpoint directory, so that
 *     only the child waits for a target that hangs. The child makes the attempt's directory there, once.
 *  6. The child copies each staged shard there, syncs it, and writes its part. The part in the stage becomes .drained,
 *     and the slot is free.
 *  7. When all nodes' shards are there, one node commits: it renames the attempt to step-N (ckpt_commit). During the
 *     run that is the node of shard 0; after it, the first that makes the link `commit` in the attempt. If that node
 *     dies, the job's next start commits, or muster-ckpt recover. Drainers exchange no messages: each reads the target.
 *  8. muster-ckptd writes to status.json what became of the save, and removes it from the stage.
 *  9. A target that fails is tried again; one that gives no answer is waited for. If a later save finds no room
 *     meanwhile, the ranks agree on the oldest save that can go, and mark it `dropped`.
 * 10. An attempt that can never be committed is abandoned: a marker in the target tells the other nodes.
 * 11. When nobody holds `users`, the run has ended. Then partner's copies are drained too, incomplete saves are
 *     removed, and so is the stage when it is empty. muster-ckptd does this, or the job's epilog, or the job's next
 *     run.
 *
 * The files. R is a rank, F the node's first rank, D the process that drains. A file is renamed into place when it is
 * complete. A mark is a symbolic link whose target is its text: it can be made even if the memory is full.
 *
 *   users                                 R  held, shared, by every process that may stage
 *   format                                R  mark: the format of all files here, and the release
 *   lock                                  D  held by the one process that drains; its time, set many times a second,
 *                                            shows that the process moves
 *   status.json                           D  where each save is, and what became of it, for ranks and people
 *   .slots/shard-00002-of-00004.*         R  slots
 *   step-00000100.ATTEMPT.partial/        R  a save: one try to save one step
 *     target.json                         R  its target and so on (struct staged_save of stage_dir.h)
 *     shard-00002-of-00004.safetensors    R  as in the checkpoint
 *     shard-00002-of-00004.json           R  its part of the manifest
 *     shard-00002-of-00004.drained        D  the part, when data and part are durable in the target
 *     partner/                            R  the same, of shards of another node
 *     dropped                             F  mark: the run has given the save up, and why. After the run the
 *                                            mark is ignored: this save may be the newest
 *     made                                D  mark: the attempt's directory was made in the target
 *
 * Where a save is (enum ckpt_save_state) follows from these files: *staged* if all shards of this node, `local` of
 * them, are complete; *drained* if all are .drained. A stage of another release, by its `format`, is left as it is; no
 * run of the job begins then.
 *
 * D never makes the target: a run does, when it begins. It never makes an attempt's directory twice (`made`). If one is
 * missing, its file system may not be mounted. That counts as a failure of the target. drain_judge_missing says when an
 * attempt counts as removed instead. ckpt/write/attempt.h has the protocol of abandoned attempts; D looks for the
 * marker while it copies (twice a second), before and after it makes the attempt's directory, and before each try to
 * commit.
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
    const char *run;  /* the same for each rank of a run, and for no other run: struct ckpt_claim */
    int local;        /* shards of each save that this node stages; at least 1 */
    int max_staged;   /* saves a rank may have in memory at once; 0: 2 */
    uint64_t process; /* bytes of its own that each rank will hold: what it has yet to touch does not count as free */
    int threads;      /* that copy; 0: 2 */
    int keep;         /* as ckpt_prune: done by the node that holds shard 0, after the commit */
    uint64_t keep_every;
};

/* "<root>/muster-<uid>-<job>-<run>". -1 with CODE_USAGE when the job's name is not one. */
int ckpt_stage_path(char *path, size_t size, const char *root, const char *job, const char *run, struct error *err);

/* The names beneath the root of the stages that earlier runs of this job have left, malloc'ed. CODE_CONFIG: one is of
 * another release of muster, and in a format that this one does not know: training must not begin. */
struct ckpt_stage_name {
    char name[160];
};
int ckpt_stage_earlier(const struct ckpt_stage_config *config, struct ckpt_stage_name **names, size_t *count,
                       struct error *err);

/*
 * Open the stage, making it if it is missing. NULL when it cannot be used: the root is missing or read-only, say. The
 * caller then saves with ckpt_write_shard and logs that once.
 *
 * A process opens one stage at most. One thread at a time may call its functions, except ckpt_stage_directory and
 * ckpt_stage_updated, which any thread may call at any time.
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
    char reason[512];                 /* why it failed; otherwise why it has not ended yet: its target fails or does not
                         answer, or other nodes' shards do not come; "" if nothing fails */
};

/* The next save that has ended: 1 and *ended; 0 if there is none. Costs one stat when nothing has changed. */
int ckpt_stage_poll(struct ckpt_stage *stage, struct ckpt_save_status *ended, struct error *err);

/* True if every save of this node has ended. */
bool ckpt_stage_is_empty(struct ckpt_stage *stage);

/* The oldest save that cannot be completed at present: it has a reason. False if there is none, or while any save is
 * *draining* without a reason. */
bool ckpt_stage_find_trouble(struct ckpt_stage *stage, struct ckpt_save_status *trouble);

/* The same of the stage at `path`, of an earlier run. True also if no save has a reason and none is *draining*, as while
 * a process of that run still uses the stage. */
bool ckpt_stage_stands_still(const char *path, struct ckpt_save_status *trouble);

/*
 * The save to give up for a save of `step`: the oldest of an earlier step that holds memory. False: none.
 *   failing   only a save with a reason, and none while any is *draining*
 *   any       if there is no other, the save that the drainer works on
 * Without `any` that save is kept: it is committed when a target that was slow, or did not answer, works again.
 */
bool ckpt_stage_find_oldest(struct ckpt_stage *stage, uint64_t step, bool failing, bool any,
                            struct ckpt_save_status *oldest);

/* When the drainer last showed that it runs, in seconds since 1970. */
double ckpt_stage_updated(const struct ckpt_stage *stage);

/* Kills the process that drains the stage in `dir`, if that is a muster-ckptd which has it in its command line. */
void ckpt_stage_kill_drainer(const char *dir, int pid);

/* Whether this node still has a save of that step. */
bool ckpt_stage_has(const struct ckpt_stage *stage, uint64_t step);

/* The bytes of memory that the stage's slots have, used or not, and that its file system has left. Leaves what it cannot
 * find out. */
void ckpt_stage_memory(const struct ckpt_stage *stage, double *taken, double *left);

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

/*
 * stage.h - where a save waits in this node's memory until it is on the parallel filesystem.
 *
 * A save has three parts: *stage*, one copy of a rank's state into files of this node, in their final format and
 * checksummed on the way, which is the most that training waits for; *drain*, which copies these files to the
 * checkpoint directory (drain.h, run by muster-ckptd(8), or by whoever outlived the job); and *commit* (ckpt_commit).
 * Nobody talks to anybody: what lies in the directories is the state.
 *
 *   <root>/muster-<uid>-<job>/               the stage: 0700, ours; one a node and job, shared by the job's ranks there
 *     users                                  held, shared, by every process that may stage
 *     lock                                   held (F_OFD_SETLK) by the one process that drains
 *     closed                                 no more will be staged: drain what there is, remove the stage, end
 *     made                                   the checkpoint directory has been there: it is never made again
 *     status.json                            what the drainer does and did; see stage_status.h
 *     .free/shard-00002-of-00004.*.tmp       files of what is drained: their memory is used again
 *     step-00000100.ATTEMPT.partial/         a *generation*: one try to save one step
 *       target.json                          where it goes (struct target of stage_dir.h)
 *       shard-00002-of-00004.safetensors     as it will lie in the checkpoint
 *       shard-00002-of-00004.json            its part of the manifest: put there last, so it says "complete"
 *       shard-00002-of-00004.drained         the part's name when both are durable in the target; the data is gone then
 *       partner/                             the same, of shards of another node
 *       made, adopted, dropped, replaced     marks; see below
 *
 * A generation's life: *staged* (all `local` shards complete) -> *draining* -> *drained* (this node is done; its memory
 * is free again) -> *committed*, or *superseded* (a newer step was committed), or *failed*. Then its directory goes,
 * and status.json tells how it ended.
 *
 * A target that fails (any errno) ends nothing: the generation stays and is tried again (drain.h). One thing only costs
 * it its memory: the next save needs the room, and the trainer marks the oldest generation whose target fails
 * `replaced` (ckpt_stage_replace).
 *
 * An attempt that can never be committed (a node's staged data is damaged, or the generation was dropped or replaced)
 * is *abandoned*, because what the other nodes wrote would fill the disk for good: <dir>/step-N.ATTEMPT.partial is
 * renamed to step-N.ATTEMPT.abandoned, which needs no room, emptied, and left there as the sign, with the reason in it
 * (`why`, if there is room). Any other drainer looks for the sign while it copies (twice a second), before it makes the
 * directory and right after, and before each try to commit; when it is there, it drops its own copy and reports
 * "given up by another node: why". Abandoning against committing: both rename the one directory, one of them wins.
 * Signs go with the first commit of that or a later step.
 *
 * If a generation has made the directory (`made`) and does not find it, its file system may not be mounted: a target
 * that fails; the directory is not made again. The checkpoint directory likewise, by the stage's `made`.
 *
 * A restarted job has the same id and so finds the stage of its earlier life. The first rank on the node opens it with
 * `adopt`: generations that are complete here are marked `adopted` (drained and committed as they are; but they never
 * clear away another attempt at their step, which may be the new life's), the others `dropped` (and abandoned as above,
 * so that other nodes need not wait for them).
 *
 * When nobody holds `users` any more, the job's processes are dead: a drainer then drops incomplete generations itself
 * and drains partner's copies, whatever its options say. So the epilog need not know whether a trainer lives.
 *
 * Nothing is opened by path but the root: everything else beneath it by openat and O_NOFOLLOW.
 */
#ifndef MUSTER_CKPT_STAGE_H
#define MUSTER_CKPT_STAGE_H

#include "ckpt/ckpt.h"

struct ckpt_stage;

struct ckpt_stage_config {
    const char *root; /* NULL: /dev/shm. A directory of this node: a RAM disk, or an NVMe disk */
    const char *job;  /* NULL: $SLURM_JOB_ID, else "pid" and this process's session. 1 to 64 letters, digits, '.', '_'
                         and '-'; the trainer's is "JOBID.NODE.CHECKSUM", the last of the checkpoint directory */
    int local;        /* shards of each save that this node stages; at least 1 */
    int staged;       /* generations a rank may have in memory at once; 0: 2 */
    int threads;      /* that copy; 0: 2 */
    int keep;         /* as ckpt_prune: done by the node that holds shard 0, after the commit */
    uint64_t keep_every;
    bool adopt;      /* by one rank a node, before the others open it */
    const char *dir; /* NULL, or the checkpoint directory: if it is there now, the drainer never makes it */
};

/* "<root>/muster-<uid>-<job>", with the defaults above. -1 with CODE_USAGE when the job's name is not one. */
int ckpt_stage_path(char *path, size_t size, const char *root, const char *job, struct error *err);

/*
 * Open the stage, making it if it is not there, and take back `closed`. NULL when it cannot be used: the root is not
 * there or read-only, or what has that name is not a directory of ours with mode 0700 (a link say). The caller then
 * saves with ckpt_write_shard and says so once. CODE_CONFIG with `adopt`: another release of muster staged something in
 * a form that this one does not know (form.h); nothing was touched, and training must not begin. One a process; its functions are called from one thread at a time, but
 * for ckpt_stage_directory and ckpt_stage_is_drained, which any thread may call.
 */
struct ckpt_stage *ckpt_stage_open(const struct ckpt_stage_config *config, struct error *err);
const char *ckpt_stage_directory(const struct ckpt_stage *stage);

/* Unmaps what is mapped. The files, and with them what is not drained yet, stay. */
void ckpt_stage_destroy(struct ckpt_stage *stage);

/* No rank of this node will stage any more: the drainer ends when all is done, and removes the stage. */
int ckpt_stage_close(struct ckpt_stage *stage, struct error *err);

/* ---- saving ------------------------------------------------------------------------------------------------------ */

/*
 * Make, reserve and map all files that saves like this one need (only shard, shards, tensors, kinds and pieces are
 * looked at), so that the first save is as fast as the others and none runs out of memory later. Optional; best done
 * when all else is allocated. 0, or 1 when the file system, the node's memory or the job's memory limit (cgroup v2)
 * leaves too little: wanted and free bytes are in err.
 */
int ckpt_stage_reserve(struct ckpt_stage *stage, const struct ckpt_save *save, struct error *err);

/*
 * Copy this rank's shard into the stage. If this rank already has as many generations there as are allowed, waits until
 * one is drained: that bounds memory. When it returns the sources may change.
 *
 * 0: staged. 1: not possible here (no room; nobody drains, so no memory will come back), err says why: the caller
 * writes straight to the checkpoint directory. -1: the save itself is wrong, or memory for tables is short. After 1 or
 * -1 on any rank, every node must ckpt_stage_drop the attempt, and a straight write takes a new attempt's name.
 */
int ckpt_stage_shard(struct ckpt_stage *stage, const struct ckpt_save *save, struct error *err);

/* Whether ckpt_stage_shard of that shard would not have to wait for the drain. */
bool ckpt_stage_ready(const struct ckpt_stage *stage, int shard, int shards);

/*
 * The save has failed on some rank: the drainer forgets the generation and takes back what is in the target. One rank a
 * node suffices. A generation that is not there is fine.
 */
int ckpt_stage_drop(struct ckpt_stage *stage, uint64_t step, const char *attempt, struct error *err);

/* Likewise, but because a newer save needs the memory: its end is reported as failed, with why the target fails. */
int ckpt_stage_replace(struct ckpt_stage *stage, uint64_t step, const char *attempt, struct error *err);

/* ---- what became of it ------------------------------------------------------------------------------------------- */

enum ckpt_outcome { CKPT_COMMITTED, CKPT_SUPERSEDED, CKPT_FAILED };

struct ckpt_stage_news {
    uint64_t step;
    char attempt[CKPT_ATTEMPT_SIZE];
    enum ckpt_outcome outcome;
    uint64_t bytes;   /* of this node's shards */
    double seconds;   /* from when the first was staged to the end */
    char reason[512]; /* of a failure: what, where, how many bytes were wanted */
};

/*
 * The next generation that has ended since the last call (or since ckpt_stage_open): 1 and *news; 0 if there is none.
 * Costs one stat when nothing has changed.
 */
int ckpt_stage_poll(struct ckpt_stage *stage, struct ckpt_stage_news *news, struct error *err);

/*
 * Wait until every generation of this node has ended: 0. 1 after `seconds`, -1 if nobody drains for 5 seconds. Call it
 * after a restart's adoption, before the newest checkpoint is looked for; and at the end of a run.
 */
int ckpt_stage_wait(struct ckpt_stage *stage, double seconds, struct error *err);

/* A generation that the drainer cannot get rid of at present: its target fails, or other nodes' shards do not come. */
struct ckpt_stage_trouble {
    uint64_t step;
    char attempt[CKPT_ATTEMPT_SIZE];
    char reason[512];
};

/* The oldest of those; with `holding`, of those that hold memory. False when there is none. */
bool ckpt_stage_trouble(struct ckpt_stage *stage, bool holding, struct ckpt_stage_trouble *trouble);

/* Whether some process holds the lock. */
bool ckpt_stage_is_drained(struct ckpt_stage *stage);

/* ---- partner copies: a shard that also lies on a neighbour, should its own node be lost -------------------------- */

/* A staged shard as it is sent: the file's bytes, and the text of its part. */
struct ckpt_staged {
    const void *data;
    uint64_t bytes;
    const char *part;
    size_t part_bytes;
};

/* What this rank staged last. Valid until its next ckpt_stage_shard, drained or not. -1 if there is none. */
int ckpt_stage_lend(const struct ckpt_stage *stage, struct ckpt_staged *staged, struct error *err);

/*
 * Room for a copy of another node's shard: `bytes` to receive into, or NULL when there is none (err says why: this step
 * then has no copy). dir, shard, shards, state.step and attempt of *save are looked at. One at a time, finished by
 * ckpt_stage_keep, which checks every block against the part's checksums and makes the copy complete; a next call to
 * ckpt_stage_borrow without it takes the room back. This rank has staged its own shard of that save before: where the
 * generation has ended since, nothing is kept, for nothing can be lost any more. A drainer copies partner's shards only
 * when it is told to, and only what the target lacks; they go when the step is committed or superseded.
 */
void *ckpt_stage_borrow(struct ckpt_stage *stage, const struct ckpt_save *save, uint64_t bytes, struct error *err);
int ckpt_stage_keep(struct ckpt_stage *stage, const char *part, size_t part_bytes, struct error *err);

#endif

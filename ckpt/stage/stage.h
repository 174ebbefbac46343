/*
 * stage.h - saves in this node's memory until they are on the parallel filesystem.
 *
 * A save has three parts: *stage*, one copy of a rank's state into files of this node, in their final format and
 * checksummed on the way, which is all that training waits for; *drain*, which copies these files to the checkpoint
 * directory (drain.h, run by muster-ckptd(8) or the job's epilog); and *commit* (ckpt_commit). There are no messages:
 * the directories hold all state.
 *
 *   <root>/muster-<uid>-<job>/               the stage: mode 0700; one a node and job, shared by the job's ranks there
 *     users                                  held, shared, by every process that may stage
 *     lock                                   held (F_OFD_SETLK) by the one process that drains
 *     closed                                 no more saves follow: the drainer removes the stage when all is drained
 *     made                                   the checkpoint directory existed: it is never made again
 *     status.json                            the drainer's report; see stage_status.h
 *     .free/shard-00002-of-00004.*.tmp       files of drained shards: their memory is used again
 *     step-00000100.ATTEMPT.partial/         a *generation*: one try to save one step
 *       target.json                          its checkpoint directory and so on (struct target of stage_dir.h)
 *       shard-00002-of-00004.safetensors     as in the checkpoint
 *       shard-00002-of-00004.json            its part of the manifest: written last, it means "complete"
 *       shard-00002-of-00004.drained         the part, renamed once both are durable in the target; the data is removed
 *       partner/                             the same, of shards of another node
 *       made, adopted, dropped, replaced     marks; see below
 *
 * A generation's life: *staged* (all `local` shards complete) -> *draining* -> *drained* (this node is done; its memory
 * is free again) -> *committed*, or *superseded* (a newer step was committed), or *failed*. Then its directory is
 * removed, and status.json has the result.
 *
 * A failing target (any errno) does not end a generation: it stays and is tried again (drain.h). Only when the next
 * save needs its memory, the trainer marks the oldest generation whose target fails `replaced` (ckpt_stage_replace).
 *
 * An attempt that can never be committed (a node's staged data is damaged, or the generation was dropped or replaced)
 * is *abandoned*, because the other nodes' files would fill the disk for ever: <dir>/step-N.ATTEMPT.partial is renamed
 * to step-N.ATTEMPT.abandoned, which needs no room, emptied, and left as the sign, with the reason in it (`why`, if
 * there is room). Every other drainer checks for the sign while it copies (twice a second), before and after it makes
 * the directory, and before each try to commit; if it finds the sign, it drops its own copy and reports "given up by
 * another node: why". Abandoning and committing rename the same directory, so only one succeeds. The first commit of
 * that or a later step removes the signs.
 *
 * If a generation has made the directory (`made`) and does not find it, its file system may not be mounted: the target
 * fails, and the directory is not made again. Likewise the checkpoint directory, with the stage's `made`.
 *
 * A restarted job has the same id and so finds the stage of its earlier life. The first rank on the node opens it with
 * `adopt`: generations that are complete here are marked `adopted` (drained and committed as they are; but they never
 * remove another attempt at their step, which may be the new life's), the others `dropped` (and abandoned as above, so
 * that other nodes need not wait for them).
 *
 * When no process holds `users` any more, the job's processes are dead: a drainer then drops incomplete generations and
 * drains partner's copies, whatever its options are. So the epilog need not know whether a trainer is alive.
 *
 * Nothing is opened by path but the root: everything else beneath it by openat and O_NOFOLLOW.
 */
#ifndef MUSTER_CKPT_STAGE_STAGE_H
#define MUSTER_CKPT_STAGE_STAGE_H

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
 * Open the stage, making it if it is missing, and remove `closed`. NULL when it cannot be used: the root is missing or
 * read-only, or the name is not a directory of this user with mode 0700 (a link, say). The caller then
 * saves with ckpt_write_shard and logs that once. CODE_CONFIG with `adopt`: another release of muster staged files in a
 * form that this one does not know (json_fields.h); nothing was changed, and training must not begin. One a process.
 * One thread at a time may call its functions; any thread ckpt_stage_directory and ckpt_stage_is_drained.
 */
struct ckpt_stage *ckpt_stage_open(const struct ckpt_stage_config *config, struct error *err);
const char *ckpt_stage_directory(const struct ckpt_stage *stage);

/* Unmaps all files. The files stay, and with them the saves that are not drained yet. */
void ckpt_stage_destroy(struct ckpt_stage *stage);

/* No rank of this node will stage any more: the drainer ends when all is done, and removes the stage. */
int ckpt_stage_close(struct ckpt_stage *stage, struct error *err);

/* ---- saving ------------------------------------------------------------------------------------------------------ */

/*
 * Make, reserve and map all files that saves like this one need (by shard, shards, tensors, kinds and pieces), so that
 * the first save is as fast as the others and none runs out of memory later. Optional; best done when everything else
 * is allocated. 0, or 1 when the file system, the node's memory or the job's memory limit (cgroup v2) leaves too
 * little: wanted and free bytes are in err.
 */
int ckpt_stage_reserve(struct ckpt_stage *stage, const struct ckpt_save *save, struct error *err);

/*
 * Copy this rank's shard into the stage. If this rank already has as many generations there as are allowed, waits until
 * one is drained: that bounds memory. When it returns the sources may change.
 *
 * 0: staged. 1: not possible here (no room; no drainer, so no memory will be freed), err has the reason: the
 * caller writes straight to the checkpoint directory. -1: the save itself is wrong, or memory for tables is short.
 * After 1 or -1 on any rank, every node must ckpt_stage_drop the attempt, and a straight write takes a new attempt's
 * name.
 */
int ckpt_stage_shard(struct ckpt_stage *stage, const struct ckpt_save *save, struct error *err);

/* Whether ckpt_stage_shard of that shard would not have to wait for the drain. */
bool ckpt_stage_ready(const struct ckpt_stage *stage, int shard, int shards);

/*
 * The save has failed on some rank: the drainer drops the generation and removes its files from the target. One rank a
 * node suffices. A missing generation is no failure.
 */
int ckpt_stage_drop(struct ckpt_stage *stage, uint64_t step, const char *attempt, struct error *err);

/*
 * Likewise, because a newer save needs the memory: it is reported as failed, with the reason of the target's failure.
 */
int ckpt_stage_replace(struct ckpt_stage *stage, uint64_t step, const char *attempt, struct error *err);

/* ---- results ----------------------------------------------------------------------------------------------------- */

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
 * Wait until every generation of this node has ended: 0. 1 after `seconds`, -1 if there is no drainer for 5 seconds.
 * Call it after a restart's adoption, before searching for the newest checkpoint; and at the end of a run.
 */
int ckpt_stage_wait(struct ckpt_stage *stage, double seconds, struct error *err);

/* A generation that cannot be completed at present: its target fails, or other nodes' shards do not come. */
struct ckpt_stage_trouble {
    uint64_t step;
    char attempt[CKPT_ATTEMPT_SIZE];
    char reason[512];
    bool draining; /* it is being tried again right now */
};

/* The oldest of those; with `holding`, of those that hold memory. False when there is none. */
bool ckpt_stage_trouble(struct ckpt_stage *stage, bool holding, struct ckpt_stage_trouble *trouble);

/* Whether this node still has that generation. */
bool ckpt_stage_has(const struct ckpt_stage *stage, uint64_t step, const char *attempt);

/* Whether some process holds the lock. */
bool ckpt_stage_is_drained(struct ckpt_stage *stage);

/* ---- partner copies: a shard is also kept on another node, in case its own node is lost -------------------------- */

/* A staged shard as it is sent: the file's bytes, and the text of its part. */
struct ckpt_staged {
    const void *data;
    uint64_t bytes;
    const char *part;
    size_t part_bytes;
};

/* The shard that this rank staged last. Valid until its next ckpt_stage_shard, drained or not. -1 if there is none. */
int ckpt_stage_lend(const struct ckpt_stage *stage, struct ckpt_staged *staged, struct error *err);

/*
 * Room for a copy of another node's shard: `bytes` to receive into, or NULL when there is none (err has the reason:
 * this step then has no copy). Uses dir, shard, shards, state.step and attempt of *save. One at a time, finished by
 * ckpt_stage_keep, which checks every block against the part's checksums and makes the copy complete; another
 * ckpt_stage_borrow without it frees the room. This rank has staged its own shard of that save before: if the
 * generation has ended since, nothing is kept, since nothing can be lost any more. A drainer copies partner's shards
 * only with its option `partner` or when their node seems lost, and only those that the target lacks. They are removed
 * when the step is committed or superseded.
 */
void *ckpt_stage_borrow(struct ckpt_stage *stage, const struct ckpt_save *save, uint64_t bytes, struct error *err);
int ckpt_stage_keep(struct ckpt_stage *stage, const char *part, size_t part_bytes, struct error *err);

#endif

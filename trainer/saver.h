/*
 * saver.h - saves checkpoints: stages each in node memory, then drains and commits it in the background.
 *
 * A saver owns all state of a run's saves: which step is due, has a snapshot, is being copied, is staged and is
 * committed. A run calls
 *
 *     saver_create     before a checkpoint is loaded: drains and commits what an earlier run of the job has staged
 *     saver_reserve    when the state is loaded
 *     saver_step       after each training step
 *     saver_finish     at the end; or saver_settle, when the run gives up
 *     saver_destroy
 *
 * Each node has a stage (ckpt/stage/stage.h), which a muster-ckptd(8) drains. Where staging is not possible, saves are
 * written directly to checkpoint.dir, which is logged once.
 *
 * Training waits while the state is copied into the stage, because a step changes it. If the state is in GPU memory,
 * training continues during both the transfer to the host and the copy into the stage:
 *
 *     step k ends       a snapshot of the state is taken (zero_snapshot): its transfer to the host begins
 *     step k+1 ends     waits for the rest of the transfer; a thread begins to copy it into the stage
 *     step k+2 ... end  tests whether all ranks have finished their copies; if so, the save is staged
 *
 * All functions but saver_committed, saver_describe and saver_destroy are collective.
 */
#ifndef MUSTER_TRAINER_SAVER_H
#define MUSTER_TRAINER_SAVER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

struct ckpt_progress;
struct engine;
struct prometheus;
struct run;
struct saver;

/*
 * Open the stage of this node. What an earlier run has staged completely is drained and committed before this returns,
 * unless checkpoint.dir fails for checkpoint.last_seconds, other nodes' shards are missing, or the job's time limit is
 * near. NULL with CODE_IO when memory is short, with CODE_CONFIG when another release of muster has staged something in
 * a format that this one does not know. A stage that cannot be used is only logged. The run (run.h) is borrowed; its
 * engine has been created.
 */
struct saver *saver_create(struct run *run, struct error *err);

/*
 * Where checkpoint.every is set, take the memory that saves will be staged in, so that the first save is as fast as the
 * others and none runs out of memory. `resumed`: the run was resumed, so that checkpoint.dir has a checkpoint of the
 * present step.
 */
int saver_reserve(struct saver *saver, bool resumed, struct error *err);

/*
 * Save if a save is due, continue the save under way, and log the results of earlier ones. A save that fails is logged;
 * the next save that is due tries again. A save is put off while steps are skipped, because the parameters may be bad,
 * and while the stage has no room. If there is no room because checkpoint.dir cannot be written, the oldest staged save
 * is dropped (saver_impl.h describes how). -1: ranks cannot communicate, or a save failed with another code than
 * CODE_IO and CODE_DATA.
 */
int saver_step(struct saver *saver, struct error *err);

/*
 * Save the present state, unless its step is saved already, and wait until all is committed. If the stage is full,
 * gives up an older save whose target fails. With `stopping`, also one whose target is only slow. If the last staged
 * save ended without a commit, or no muster-ckptd runs, save once more, without the stage. Returns 0 when all is
 * committed; 1 when a save is left in the stage, because checkpoint.dir has failed for checkpoint.last_seconds or the
 * job's time limit is near, with the place and the reason in err; -1 when the save failed or ranks cannot communicate.
 * The stage is closed after 0 and 1.
 */
int saver_finish(struct saver *saver, bool stopping, struct error *err);

/* Complete the save under way, then wait until every staged save has ended: committed, superseded or failed (which is
 * logged). 0: all have ended. 1: a save is left in the stage, with the reason in err. -1: ranks cannot communicate,
 * muster-ckptd ended too often, or a save failed with another code than CODE_IO and CODE_DATA. Afterwards
 * saver_committed does not change. */
int saver_settle(struct saver *saver, struct error *err);

/* The newest step that rank 0 knows to be committed, else the one that was resumed from; UINT64_MAX: none. */
uint64_t saver_committed(const struct saver *saver);

/* What Prometheus gets to know of saves: the last five values. Not collective. */
void saver_describe(const struct saver *saver, struct prometheus *values);

/* What is not drained stays for muster-ckptd, the epilog or the job's next run. */
void saver_destroy(struct saver *saver);

/*
 * Without a stage: writes a checkpoint to checkpoint.dir and commits it before returning. The present state if
 * `snapshot` is NULL. Collective, with the same result on all ranks. After a failure earlier checkpoints stand, and
 * training can go on.
 */
int engine_save(struct engine *engine, const struct ckpt_progress *snapshot, struct error *err);

#endif

/*
 * saver.h - how a run's checkpoints come to be: staged in the memory of each node, and drained and committed behind
 * training by a muster-ckptd(8) a node (ckpt/stage/stage.h). Where staging is not possible a save goes straight to the
 * checkpoint directory, and the run is told so once.
 *
 * Training waits for the copy into the stage, for it changes what is copied. Where the state was captured before
 * (engine_capture), which is where it lies on a GPU, it goes on beside the copy:
 *
 *     step k ends       engine_capture: the transfer to the host begins
 *     step k+1 ends     saver_begin: waits for what is left of the transfer; a thread begins to copy
 *     step k+2 ... end  saver_end: whether all ranks' copies are over; if so, what comes after a copy is done
 *
 * Everything is collective but saver_poll, and what only asks. Errors of a save are the caller's to judge: earlier
 * checkpoints stand.
 */
#ifndef MUSTER_TRAINER_SAVER_H
#define MUSTER_TRAINER_SAVER_H

#include "trainer/engine.h"

struct saver;

/* What there is to say, a line each, on rank 0. */
typedef void saver_say(void *arg, const char *line);

/*
 * Open the stage of this node, which the job's first rank there does for what an earlier life of the job has left: what
 * is complete is drained and committed before this returns. hosts: rank r's host at hosts + r * stride. NULL with
 * CODE_IO when memory is short, with CODE_CONFIG when another release of muster staged there what this one does not
 * know; a stage that cannot be used is only said.
 */
struct saver *saver_create(struct engine *engine, const char *hosts, size_t stride, saver_say *say, void *arg,
                           struct error *err);

/* Take the memory that saves will be staged in now, so that the first one is no slower and none finds it gone. */
int saver_reserve(struct saver *saver, struct error *err);

/*
 * Whether saver_save would only copy: *ready, alike on all ranks. Else earlier saves fill the stage, still to be
 * drained. If the target of one fails, the oldest of those is dropped, and the stage has room soon.
 */
int saver_ready(struct saver *saver, bool *ready, struct error *err);

/*
 * Save what engine_capture began with, or else the present state. When it returns, the present state may change; but
 * until saver_end nothing may be captured, saved or reserved.
 */
int saver_begin(struct saver *saver, struct error *err);

/* Whether saver_end is still to be called: alike on all ranks. */
bool saver_is_busy(const struct saver *saver);

/*
 * 1: the save that was begun is staged on every rank. 0: none was begun, or, unless `wait`, the copy of some rank is
 * not over yet. Where there was no room it is the present state that was saved, straight, or none (-1) while steps are
 * skipped.
 */
int saver_end(struct saver *saver, bool wait, struct error *err);

/* Both at once, waiting. */
int saver_save(struct saver *saver, struct error *err);

/* The step of the last save that succeeded; UINT64_MAX for none. */
uint64_t saver_saved(const struct saver *saver);

/* After each step, on every rank: says what became of earlier saves, and starts anew a muster-ckptd that was killed. */
void saver_poll(struct saver *saver);

/* The newest step that is known on rank 0 to be committed; UINT64_MAX for none. */
uint64_t saver_committed(const struct saver *saver);

/*
 * Wait until all is drained, what was begun included: 0. 1 when something is left in the stage, err says why: the
 * target has failed for checkpoint.last_seconds, or the job's time is over.
 */
int saver_settle(struct saver *saver, struct error *err);

/* The same, and save once more, straight, if the last save failed. Then the stage is closed, with what is left in it.
 */
int saver_finish(struct saver *saver, struct error *err);

/* What is not drained stays for muster-ckptd, the epilog or the job's next life. */
void saver_destroy(struct saver *saver);

#endif

/* train.h - a whole run: restore, step until done or asked to stop, log, validate, save; and --evaluate. */
#ifndef MUSTER_TRAINER_TRAIN_H
#define MUSTER_TRAINER_TRAIN_H

#include "common/job.h"
#include "trainer/comm/comm.h"

/*
 * CODE_OK when batch.steps are done, CODE_STOPPED when stopped and saved; -1 with *err otherwise, after train_fail.
 * Collective.
 */
int train(const struct job *job, struct comm *world, struct error *err);

/*
 * --evaluate: loads the newest checkpoint of checkpoint.dir (of checkpoint.load if that is not set) and prints one line
 * of JSON on rank 0: the loss and the perplexity of all of data.valid, or of its first `batches` global batches (0: all).
 * Shows its progress where standard error is a terminal. Changes nothing. Returns as train does.
 */
int evaluate(const struct job *job, struct comm *world, long batches, struct error *err);

/*
 * --check: looks at what the first seconds of a run would refuse, in the data, tokenizers, checkpoints and paths that
 * this node sees. Writes nothing, claims nothing; a file system that does not answer is given up after seconds. Prints a
 * warning for what this node cannot see. -1 with the first thing that contradicts the job, with the run's own error.
 */
int check_job_files(const struct job *job, struct error *err);

/*
 * This rank has failed: notifies the other ranks (comm_world_fail) and reports the error. An error of all ranks is
 * reported by rank 0 only; after an error of one rank, that rank and rank 0 report it. err->code may change
 * (comm_world_fail).
 */
void train_fail(struct comm *world, struct error *err);

/*
 * A run is asked to stop and save by TERM, INT, HUP, USR1 and USR2 (repeats are harmless), a kill-switch file, and a
 * limit of minutes. One rank asked is enough: the ranks agree between steps.
 *
 * From this call on the signals stay pending until train reads them, between steps (HUP for ever where it was ignored,
 * as under nohup). SIGPIPE is ignored, so that a run outlives the reader of its log. To be called before there are
 * other threads, which inherit the mask.
 *
 * There is no handler, on purpose: a handler's frame is written below the stack pointer of the interrupted code, and
 * oneDNN before 3.11.2 (Debian 12 has 2.6.3) points that register into the heap while it multiplies fp32 matrices. The
 * frame, up to 12 KiB where there is AMX, then overwrites the heap (uxlfoundation/oneDNN, issue 4845).
 */
void train_block_signals(void);

#endif

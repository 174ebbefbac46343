/* train.h - a whole run: restore, step until done or asked to stop, log, validate, save. */
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
 * This rank has failed: notifies the other ranks (comm_world_fail) and reports the error. An error of all ranks is
 * reported by rank 0 only; after an error of one rank, that rank and rank 0 report it. err->code may change
 * (comm_world_fail).
 */
void train_fail(struct comm *world, struct error *err);

#endif

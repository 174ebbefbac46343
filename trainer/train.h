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
 * This rank has failed: tell the others (comm_world_fail), and the user. What befell all ranks rank 0 says for all; who
 * failed alone has told the others why, and they say the same. err->code may become another (comm_world_fail).
 */
void train_fail(struct comm *world, struct error *err);

#endif

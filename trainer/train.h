/* train.h - a whole run: restore, step until done or asked to stop, log, validate, save. */
#ifndef MUSTER_TRAINER_TRAIN_H
#define MUSTER_TRAINER_TRAIN_H

#include "common/job.h"
#include "trainer/comm/comm.h"

/* CODE_OK when batch.steps are done, CODE_STOPPED when stopped and saved; -1 with *err otherwise. Collective. */
int train(const struct job *job, struct comm *world, struct error *err);

#endif

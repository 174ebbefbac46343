/*
 * lr.h - the learning rate of a step. Pure.
 *
 * Warm-up is linear over the first warmup_steps; then, with t running from 0 to 1 between the end of the warm-up and
 * decay_steps:
 *   cosine    min + (lr - min) * (1 + cos(pi t)) / 2
 *   linear    min + (lr - min) * (1 - t)
 *   constant  lr
 *   wsd       lr until cooldown_steps before decay_steps, then along a line to min (warm-up, stable, decay;
 *             arXiv 2404.06395)
 * and min_lr after decay_steps (lr where constant).
 */
#ifndef MUSTER_TRAINER_OPTIM_LR_H
#define MUSTER_TRAINER_OPTIM_LR_H

#include "common/job.h"

/* step: 1 for the first optimizer step. */
double learning_rate(const struct job *job, long step);

#endif

/*
 * partner.h - copies of staged shards on the neighbouring node, so that a node that is lost for good takes no save with
 * it that had not been drained yet (checkpoint.partner). They travel over the job's own communicator.
 */
#ifndef MUSTER_TRAINER_PARTNER_H
#define MUSTER_TRAINER_PARTNER_H

#include "ckpt/stage/stage.h"
#include "trainer/comm/comm.h"
#include "trainer/nodes.h"

/*
 * Every rank has just staged `save`: sends it to its partner and keeps what it is sent. A neighbour that has no room
 * keeps no copy, which is no failure: *kept says whether this rank's shard has one. Collective.
 */
int partner_exchange(struct ckpt_stage *stage, const struct ckpt_save *save, struct comm *world,
                     const struct nodes *nodes, bool *kept, struct error *err);

#endif

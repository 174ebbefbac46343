/* judge_ring.h - the part of judge.h that decides which of two nodes is bad that could not talk. */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_JUDGE_RING_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_JUDGE_RING_H

#include "srun-plugin/preflight/judge.h"

/* After all else was judged: a pair with a node that is bad already explains itself. -1 for want of memory. */
int judge_ring(struct verdict *verdict, const struct record *records);

#endif

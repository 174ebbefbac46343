/*
 * plan.h - what the program under test saves, said by a few numbers: so that whoever looks at the directory afterwards
 * knows every value that must be in it.
 */
#ifndef MUSTER_TESTS_CRASH_PLAN_H
#define MUSTER_TESTS_CRASH_PLAN_H

#include "tests/unit/test_ckpt_world.h"

struct plan {
    int shards;
    uint64_t seed; /* of the model and of how it is split */
    bool large;    /* shards of several blocks */
    int keep;      /* checkpoints kept by ckpt_prune */
};

/* The model, and it split over plan->shards ranks (over `shards` if that is not 0). */
struct topology *plan_create(const struct plan *plan, int shards, struct world *world);

/* From now on the values are those of that step: no two steps have one in common. */
void plan_step(struct world *world, const struct plan *plan, uint64_t step);

#endif

#include "tests/crash/plan.h"

struct topology *plan_create(const struct plan *plan, int shards, struct world *world)
{
    uint64_t random = plan->seed;

    world_create(world, &random, plan->large);
    plan_step(world, plan, 0);
    return topology_create(world, shards ? shards : plan->shards, &random);
}

void plan_step(struct world *world, const struct plan *plan, uint64_t step)
{
    world->salt = (uint32_t)(plan->seed * 1000003 + step);
}

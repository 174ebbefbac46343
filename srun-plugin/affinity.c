#include "srun-plugin/affinity.h"

#include <sched.h>
#include <string.h>

/* The kernel's masks are arrays of long, and those of struct cpus are the same. */
_Static_assert(sizeof(long) == sizeof(uint64_t), "a mask of CPUs has words of 64 bits");

int affinity_get(struct cpus *cpus)
{
    *cpus = (struct cpus){0};
    return sched_getaffinity(0, sizeof *cpus, (cpu_set_t *)cpus) < 0 ? -1 : 0;
}

int affinity_set(const struct cpus *cpus)
{
    return sched_setaffinity(0, sizeof *cpus, (const cpu_set_t *)cpus);
}

int affinity_read(struct affinity *affinity, const struct cpus *every)
{
    struct cpus widest;

    if (affinity_get(&affinity->own) < 0)
        return -1;
    affinity->all = affinity->own;
    if (every && cpus_equal(&affinity->own, every))
        return 0;
    memset(&widest, 0xff, sizeof widest);
    if (affinity_set(&widest) == 0)
        affinity_get(&affinity->all);
    affinity_set(&affinity->own);
    return 0;
}

bool affinity_is_steps(const struct cpus *all, const struct node *node, uint32_t slurm_cpus, bool cpus_are_cores)
{
    unsigned count = cpus_count(all), cores = 0;

    for (size_t i = 0; i < node->core_count; i++)
        cores += cpus_intersect(&node->cores[i].cpus, all);
    return slurm_cpus > 0 && (cpus_are_cores && cores ? cores : count) <= slurm_cpus;
}

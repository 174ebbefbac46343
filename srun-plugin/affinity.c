#include "srun-plugin/affinity.h"

#include <sched.h>

static void from_mask(struct cpus *cpus, const cpu_set_t *mask, size_t size)
{
    *cpus = (struct cpus){0};
    for (unsigned cpu = 0; cpu < CPUS_MAX; cpu++)
        if (CPU_ISSET_S(cpu, size, mask))
            cpus_add(cpus, cpu);
}

int affinity_get(struct cpus *cpus)
{
    size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
    cpu_set_t *mask = CPU_ALLOC(CPUS_MAX);
    int rc = mask ? sched_getaffinity(0, size, mask) : -1;

    if (rc == 0)
        from_mask(cpus, mask, size);
    CPU_FREE(mask);
    return rc;
}

int affinity_set(const struct cpus *cpus)
{
    size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
    cpu_set_t *mask = CPU_ALLOC(CPUS_MAX);
    int rc = -1;

    if (mask) {
        CPU_ZERO_S(size, mask);
        for (int cpu = cpus_next(cpus, 0); cpu >= 0; cpu = cpus_next(cpus, (unsigned)cpu + 1))
            CPU_SET_S((size_t)cpu, size, mask);
        rc = sched_setaffinity(0, size, mask);
    }
    CPU_FREE(mask);
    return rc;
}

int affinity_read(struct affinity *affinity)
{
    struct cpus every = {0};

    if (affinity_get(&affinity->own) < 0)
        return -1;
    for (unsigned cpu = 0; cpu < CPUS_MAX; cpu++)
        cpus_add(&every, cpu);
    affinity->all = affinity->own;
    if (affinity_set(&every) == 0)
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

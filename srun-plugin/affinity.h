/*
 * affinity.h - which CPUs this process may run on, which the step has on this node, and setting the first.
 */
#ifndef MUSTER_SRUN_PLUGIN_AFFINITY_H
#define MUSTER_SRUN_PLUGIN_AFFINITY_H

#include <stdbool.h>
#include <stdint.h>

#include "srun-plugin/node.h"

struct affinity {
    struct cpus own; /* as Slurm left it */
    struct cpus all; /* all that the kernel lets this process run on, past its present binding: its cpuset */
};

/* The CPUs that this process may run on. -1 where the kernel says nothing. */
int affinity_get(struct cpus *own);

/*
 * Widens this process to its cpuset to see what that is, and narrows it again, unless it may run on all that there are
 * anyway: `every`, NULL if not known. -1 where the kernel says nothing.
 */
int affinity_read(struct affinity *affinity, const struct cpus *every);

/* -1 with errno; the CPUs outside its cpuset are left out by the kernel. */
int affinity_set(const struct cpus *cpus);

/*
 * Is `all` what Slurm gave the step, and not the CPUs of other jobs too? Without cgroups nothing confines a step. So it
 * is when it has no more CPUs than Slurm says the step has on the node (slurm_cpus), which may count cores
 * (cpus_are_cores) where the kernel counts hardware threads. Pure.
 */
bool affinity_is_steps(const struct cpus *all, const struct node *node, uint32_t slurm_cpus, bool cpus_are_cores);

#endif

/*
 * cpus.h - a set of CPUs or of NUMA nodes, by the kernel's numbers, its text "0-3,8", and the affinity of this process.
 *
 * A plain value: copy it with =, clear it with {0}. Numbers of CPUS_MAX and above are ignored.
 */
#ifndef MUSTER_SRUN_PLUGIN_NODE_CPUS_H
#define MUSTER_SRUN_PLUGIN_NODE_CPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define CPUS_MAX 4096

struct cpus {
    uint64_t word[CPUS_MAX / 64];
};

void cpus_add(struct cpus *set, unsigned cpu);
bool cpus_has(const struct cpus *set, unsigned cpu);
unsigned cpus_count(const struct cpus *set);
bool cpus_equal(const struct cpus *a, const struct cpus *b);
bool cpus_intersect(const struct cpus *a, const struct cpus *b); /* true if they share a CPU */
void cpus_and(struct cpus *set, const struct cpus *with);
void cpus_or(struct cpus *set, const struct cpus *with);

/* The smallest member that is not below `from`, or -1. */
int cpus_next(const struct cpus *set, unsigned from);

/* Reads the kernel's list format, without strides ("10-14:2"), which no kernel writes. "" is the empty set. */
int cpus_parse(struct cpus *set, const char *text, struct error *err);

/* Writes "0-3,8" to text; "-" for the empty set. A list that does not fit is cut and ends in "...". Returns text. */
char *cpus_format(const struct cpus *set, char *text, size_t size);

/* The CPUs that this process may run on. -1 if the kernel does not tell. */
int affinity_get(struct cpus *own);

/* -1 with errno. The kernel leaves out CPUs outside the process's cpuset. */
int affinity_set(const struct cpus *cpus);

struct affinity {
    struct cpus own; /* as Slurm left it */
    struct cpus all; /* the cpuset: all CPUs that this process could be bound to */
};

/*
 * Reads both. To find its cpuset, it widens the affinity of this process and restores it, unless the process may
 * already run on all CPUs of the machine: `every`, NULL if not known. -1 if the kernel does not tell.
 */
int affinity_read(struct affinity *affinity, const struct cpus *every);

#endif

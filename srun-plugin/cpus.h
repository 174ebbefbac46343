/*
 * cpus.h - a set of CPUs or of NUMA nodes, by the kernel's numbers, and its text "0-3,8".
 *
 * A plain value: copy it with =, clear it with {0}. Numbers of CPUS_MAX and above do not exist for it.
 */
#ifndef MUSTER_SRUN_PLUGIN_CPUS_H
#define MUSTER_SRUN_PLUGIN_CPUS_H

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
bool cpus_intersect(const struct cpus *a, const struct cpus *b); /* have they a CPU in common? */
void cpus_and(struct cpus *set, const struct cpus *with);
void cpus_or(struct cpus *set, const struct cpus *with);

/* The smallest member that is not below `from`, or -1. */
int cpus_next(const struct cpus *set, unsigned from);

/* Reads the kernel's list format, "0-3,8,10-14:2" not included (no kernel writes a stride). "" is the empty set. */
int cpus_parse(struct cpus *set, const char *text, struct error *err);

/* "0-3,8" into text; "-" for the empty set. What does not fit ends in "...". Returns text. */
char *cpus_format(const struct cpus *set, char *text, size_t size);

#endif

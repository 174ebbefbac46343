/* memory_limit.h - what the control groups of this process let it have of the machine's memory. */
#ifndef MUSTER_COMMON_MEMORY_LIMIT_H
#define MUSTER_COMMON_MEMORY_LIMIT_H

#include <stdint.h>

/* The least limit of its groups, of either version, such as that of a Slurm job; UINT64_MAX where there is none. */
uint64_t memory_limit(void);

#endif

/* memory_limit.h - what of the machine's memory this process may have: its control groups, of either version. */
#ifndef MUSTER_COMMON_MEMORY_LIMIT_H
#define MUSTER_COMMON_MEMORY_LIMIT_H

#include <stdint.h>

/* The least limit of its groups, such as that of a Slurm job, in bytes; UINT64_MAX where there is none. */
uint64_t memory_limit(void);

/* The least that one of its groups leaves now, pages of files that it would drop counted in; UINT64_MAX likewise. */
uint64_t memory_limit_left(void);

/* What the machine has left, UINT64_MAX where it does not tell. */
uint64_t memory_available(void);

#endif

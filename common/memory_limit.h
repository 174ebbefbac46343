/* memory_limit.h - the memory that this process may use: limits of its control groups (version 1 or 2), and Slurm's. */
#ifndef MUSTER_COMMON_MEMORY_LIMIT_H
#define MUSTER_COMMON_MEMORY_LIMIT_H

#include <stdint.h>

/* What the job asked for of this node in bytes (sbatch --mem or --mem-per-cpu), by Slurm's variables; 0: all of it, or
 * not known. */
uint64_t memory_asked(void);

/* In bytes, the lowest limit of its groups, or what the job asked for, which Slurm need not enforce. UINT64_MAX for
 * none. */
uint64_t memory_limit(void);

/* The least memory left in one of its groups, reclaimable file pages included; UINT64_MAX for no limit. */
uint64_t memory_limit_left(void);

/* This process's resident pages of its own, and those that it shares with others (MPI's, staged saves); both cannot be
 * reclaimed. 0 if unknown. */
uint64_t memory_own(void);
uint64_t memory_shared(void);

/* The machine's available memory; UINT64_MAX if unknown. */
uint64_t memory_available(void);

#endif

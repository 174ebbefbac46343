/*
 * srun_order.h - srun's part in the order of the ranks (order.h): before launch by a host file, after it by a map, and
 * what --muster-report says of it. What it cannot find out costs speed, never the run: then Slurm's order stays.
 */
#ifndef MUSTER_SRUN_PLUGIN_SRUN_ORDER_H
#define MUSTER_SRUN_PLUGIN_SRUN_ORDER_H

#include <stdbool.h>

#include "srun-plugin/layout.h"
#include "srun-plugin/report.h"
#include "srun-plugin/srun_line.h"

/*
 * Before srun reads its inputs: in an allocation, where nobody but Slurm's default says which node gets which rank, an
 * order that is better than Slurm's goes into a host file, by SLURM_HOSTFILE and SLURM_DISTRIBUTION=arbitrary. Not
 * where the command line has -N: Slurm 23.11.4 and later refuse it with that distribution (they accept SLURM_NNODES).
 * Not where it would move rank 0 away from the first node and `head_is_users` (MASTER_ADDR). job_file: NULL or "" for none.
 * topology: a file with the switches; NULL asks slurmctld. True when there is such an order.
 */
bool srun_order_begin(const struct srun_line *line, const char *job_file, bool head_is_users, const char *topology);

/* The step is there: drops the host file, which was in memory, and the variables that named it. */
void srun_order_clean(void);

/*
 * Of a step that Slurm has laid out by itself: MUSTER_RANK_MAP, where the job file's mesh runs better in another order
 * than Slurm's, and the user asked for none. Warns where an order of srun_order_begin did not come about. True when
 * MUSTER_RANK_MAP was set.
 */
bool srun_order_step(const struct layout *layout, const char *job_file, const char *topology);

/* The nodes by switch, their ranks, and the place of each in the mesh, after srun_order_step. */
void srun_order_report(const struct layout *layout, const char *job_file, const char *topology, bool json,
                       report_print *print);

#endif

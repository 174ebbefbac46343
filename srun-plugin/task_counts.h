/*
 * task_counts.h - counts by node as Slurm writes them in SLURM_TASKS_PER_NODE: "8(x3),4" is 8, 8, 8, 4. Pure.
 */
#ifndef MUSTER_SRUN_PLUGIN_TASK_COUNTS_H
#define MUSTER_SRUN_PLUGIN_TASK_COUNTS_H

#include "common/error.h"

/*
 * counts[nodes] from text; a single number is for all nodes. *all, if not NULL, becomes their sum. CODE_DATA unless
 * there is one number from 0 to 65535 for each node.
 */
int task_counts(const char *text, int *counts, int nodes, int *all, struct error *err);

#endif

/*
 * cluster_slurm.h - the switches that slurmctld knows, as text for cluster_create. One RPC: ask once, in srun.
 *
 * Slurm's structures changed with 23.11 and 25.05, and are opaque since; what it prints of them (`scontrol show
 * topology`) has stayed the same from 22.05 to 26.05, so that is what is read. Compiled only where libslurm's headers
 * are; its symbols are those that srun has already.
 */
#ifndef MUSTER_SRUN_PLUGIN_CLUSTER_SLURM_H
#define MUSTER_SRUN_PLUGIN_CLUSTER_SLURM_H

#include "common/error.h"

/*
 * To be freed; "" where Slurm knows no switches (topology/flat). NULL and *err when slurmctld does not answer: place
 * the ranks without switches then, nothing is lost but speed.
 */
char *cluster_slurm_text(struct error *err);

#endif

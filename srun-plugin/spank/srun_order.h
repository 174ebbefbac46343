/*
 * srun_order.h - how srun orders the ranks (order.h): by a host file before the step exists, else by a map, which
 * muster-train reads. An error costs speed only: then the rank order is unchanged.
 */
#ifndef MUSTER_SRUN_PLUGIN_SPANK_SRUN_ORDER_H
#define MUSTER_SRUN_PLUGIN_SPANK_SRUN_ORDER_H

#include <stdbool.h>

#include "srun-plugin/place/order.h"
#include "srun-plugin/spank/report.h"
#include "srun-plugin/spank/srun_line.h"
#include "srun-plugin/place/step_layout.h"
#include "srun-plugin/spank/step_plan.h"

/* Starts with job and topology; the rest is of zeros. */
struct srun_order {
    const struct job *job; /* NULL without a job file */
    const char *topology;  /* a file with the switches; NULL asks slurmctld */
    char *switches;        /* text for cluster.h, once read; NULL also if nobody tells */
    bool switches_read;
    bool user_places;    /* the user chose the nodes of ranks, or may have */
    struct order *order; /* of the host file, else of the map; NULL if Slurm's order is unchanged */
    int hostfile;        /* its descriptor while plan->by_hostfile and no step exists */
};

/*
 * Before srun reads its environment: inside an allocation, if nothing but Slurm's default chooses the node of each rank
 * and another order is better, write that order to a host file, set SLURM_HOSTFILE and SLURM_DISTRIBUTION=arbitrary,
 * and set plan->by_hostfile. Not if the command line has -N: Slurm 23.11.4 and later refuse it with that distribution
 * (they accept SLURM_NNODES). Not if rank 0 would leave the first node although the user set MASTER_ADDR
 * (`head_is_users`).
 */
void srun_order_begin(struct srun_order *state, const struct srun_line *line, bool head_is_users,
                      struct step_plan *plan);

/* srun has read the host file: close it, and remove the variables that name it. */
void srun_order_close(struct srun_order *state, const struct step_plan *plan);

/*
 * Once the layout is known: set MUSTER_RANK_MAP and plan->by_map if the job file's mesh runs better in another order
 * than Slurm's and the user asked for none. Warns if Slurm did not follow the host file.
 */
void srun_order_step(struct srun_order *state, const struct step_layout *layout, struct step_plan *plan);

/* The nodes by switch, their ranks, and the place of each in the mesh, after srun_order_step. */
void srun_order_report(struct srun_order *state, const struct step_layout *layout, const struct step_plan *plan,
                       bool json, report_print *print);

#endif

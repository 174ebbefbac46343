/*
 * report.h - helper of srun and slurmstepd: what --muster-report prints, as tables or as lines of JSON (spank_muster(8)
 * has the keys): srun's part, a node's, and rank 0's. Pure. Lines have less than 1,000 bytes; those of JSON more if a
 * value is full of control characters.
 */
#ifndef MUSTER_SRUN_PLUGIN_REPORT_H
#define MUSTER_SRUN_PLUGIN_REPORT_H

#include <stdio.h>

#include "srun-plugin/order/order.h"
#include "srun-plugin/order/slurmctld.h"
#include "srun-plugin/spank/rank_setup.h"

/* srun's part: nodes by switch, the ranks of each, and their place in the mesh. `order`: NULL if not known. */
void report_step(const struct step_layout *layout, const struct order *order, const struct handoff *handoff, bool json,
                 FILE *out);

#define REPORT_NODES 8 /* in larger steps, tables show only rank 0's node and nodes with problems */

/*
 * A node's part: its GPUs and NICs, and the binding of its ranks. Each line names the node, since lines of several
 * nodes arrive mixed. `ranks`: of the step on this node, "0,1,4" (SLURM_GTIDS); NULL if not known. `node`: NULL if it
 * could not be read.
 */
void report_node(const char *name, const char *ranks, const struct node *node, const struct rank_setup *setup,
                 bool json, FILE *out);

/* Every variable of a rank with its value and its source, and the notes of fabric profiles. */
void report_variables(const struct rank_setup *setup, bool json, FILE *out);

#endif

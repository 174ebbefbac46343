/*
 * report_node.h - a node's part of --muster-report: its GPUs and NICs, and what each of its ranks got. Each line names
 * the node, since those of several nodes come mixed. Pure but for `print`.
 */
#ifndef MUSTER_SRUN_PLUGIN_REPORT_NODE_H
#define MUSTER_SRUN_PLUGIN_REPORT_NODE_H

#include <stdbool.h>

#include "srun-plugin/spank/rank_plan.h"
#include "srun-plugin/spank/report.h"

#define REPORT_NODES 8 /* of larger steps only rank 0's node and those with something amiss say more than nothing */

struct report_node {
    const char *name;
    const char *ranks;       /* of the step that are here: "0,1,4" (SLURM_GTIDS); NULL if not known */
    const struct node *node; /* NULL where it could not be read */
    const struct rank_plan *plan;
    bool json;
};

bool report_node_is_due(const struct report_node *report);
void report_node(const struct report_node *report, report_print *print);

#endif

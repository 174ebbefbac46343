/*
 * report_node.h - a node's part of --muster-report: its GPUs and NICs, and the binding of its ranks. Each line names the
 * node, since lines of several nodes arrive mixed. Pure except for `print`.
 */
#ifndef MUSTER_SRUN_PLUGIN_REPORT_NODE_H
#define MUSTER_SRUN_PLUGIN_REPORT_NODE_H

#include <stdbool.h>

#include "srun-plugin/spank/rank_plan.h"
#include "srun-plugin/spank/report.h"

#define REPORT_NODES 8 /* in larger steps only rank 0's node and nodes with problems are reported */

struct report_node {
    const char *name;
    const char *ranks;       /* of the step on this node: "0,1,4" (SLURM_GTIDS); NULL if not known */
    const struct node *node; /* NULL if it could not be read */
    const struct rank_plan *plan;
    bool json;
};

bool report_node_is_due(const struct report_node *report);
void report_node(const struct report_node *report, report_print *print);

#endif

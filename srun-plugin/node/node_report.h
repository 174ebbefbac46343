/*
 * node_report.h - a node and the binding of its ranks as text tables. Pure except for `print`, which gets each line
 * without newline.
 */
#ifndef MUSTER_SRUN_PLUGIN_NODE_NODE_REPORT_H
#define MUSTER_SRUN_PLUGIN_NODE_NODE_REPORT_H

#include "srun-plugin/node/bind.h"

typedef void node_print(const char *line, void *arg);

/* The machine, its memory, GPUs and NICs, and its problems. */
void node_report(const struct node *node, node_print *print, void *arg);

/* Rank, GPU, NICs, cores and threads, and the notes of the binding. */
void bind_report(const struct node *node, const struct bind_plan *plan, node_print *print, void *arg);

#endif

/*
 * run.h - asks all nodes of a step, judges the answers, and logs which nodes are bad.
 *
 * A second srun starts muster-preflight beside the step (--overlap), in parallel on all nodes. Its time is bounded:
 * 20 s, and 1 s more for each 64 nodes.
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_RUN_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_RUN_H

#include "srun-plugin/preflight/judge.h"
#include "srun-plugin/preflight/preflight.h"

/*
 * Logs a line for each bad node, and one at the end. 0 and *verdict, to be destroyed by the caller, when the nodes were
 * asked; -1 and *err (CODE_IO) when no srun could be started, or it ended before any node had answered: then the nodes
 * are not the cause. When all of them are silent until time is over, all are bad.
 */
int preflight_run(const struct preflight *preflight, struct verdict **verdict, struct error *err);

/* The names of the bad nodes, separated by commas, to be freed. NULL without memory. */
char *preflight_bad_names(const struct step_layout *layout, const struct verdict *verdict);

/* A line to the user that begins with "muster: preflight: ". */
void preflight_log(const struct preflight *preflight, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif

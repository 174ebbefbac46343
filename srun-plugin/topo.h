/*
 * topo.h - the subcommands of muster-topo. Each gets argv from its own name on, prints to stdout, and returns the
 * program's exit code; errors are printed (error_report).
 */
#ifndef MUSTER_SRUN_PLUGIN_TOPO_H
#define MUSTER_SRUN_PLUGIN_TOPO_H

int topo_node(int argc, char **argv); /* node [--xml FILE] [--ranks N] [--json] [DIR] */
int topo_save(int argc, char **argv); /* save DIR */

#endif

/*
 * muster_topo.h - the commands of muster-topo. Each gets its arguments, with argv[0] the command's name, prints to
 * standard output, and returns 0, or -1 with *err.
 */
#ifndef MUSTER_SRUN_PLUGIN_MUSTER_TOPO_H
#define MUSTER_SRUN_PLUGIN_MUSTER_TOPO_H

#include "common/error.h"

int topo_place(int argc, char **argv, struct error *err);
int topo_node(int argc, char **argv, struct error *err);
int topo_save(int argc, char **argv, struct error *err);

#endif

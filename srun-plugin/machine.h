/*
 * machine.h - what hwloc sees of a machine, as a text of muster's own.
 *
 * hwloc and what it draws in cost half a millisecond to load, and its XML as much to read, on each node of each step.
 * So only machine_look needs it, and who reads a node (node.h) reads this text. One line each:
 *
 *     muster-machine 1               the form of the text; a text of another is none
 *     allowed 0-63                   CPUs that the process that looked may use
 *     cpus 0-63                      all there are
 *     numa 0 0 270000000000 0-31     NUMA node: the kernel's number, socket (-1: not known), bytes, CPUs
 *     core 0,32                      its hardware threads
 *     bridge -1 host                 PCI: the number of the bridge above, counting bridges and devices from 0, -1 for
 *     bridge 0 pci                   none; a host bridge, or one between PCI buses
 *     device 1 0 0302 10de:20b0 0000:07:00.0
 *                                    the same, NUMA node by its place above (-1: not one), class, ids, address
 *     end                            else it was cut short
 *
 * Lists of CPUs are the kernel's, "-" for none. Cores and NUMA nodes are in hwloc's order. Nothing else of hwloc's is
 * in it: no names of hosts, no serial numbers.
 */
#ifndef MUSTER_SRUN_PLUGIN_MACHINE_H
#define MUSTER_SRUN_PLUGIN_MACHINE_H

#include "common/error.h"

#define MACHINE_FORM "muster-machine 1"

/*
 * The text of a file of hwloc's XML, or of this machine where xml is NULL; to be freed. NULL and *err: CODE_DATA when
 * xml is none, CODE_IO when it cannot be read or hwloc cannot look, CODE_INTERNAL where there is no hwloc.
 *
 * Programs link hwloc for it (machine_hwloc.c). The plugin does not: it loads muster_hwloc.so, which lies beside it,
 * when this is called (machine_module.c). Without hwloc it is machine_no_hwloc.c.
 */
char *machine_look(const char *xml, struct error *err);

/* Writes what machine_look sees as hwloc's XML, for a snapshot. Not in the plugin. -1 and *err as above. */
int machine_save(const char *xml, const char *path, struct error *err);

#endif

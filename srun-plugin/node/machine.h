/*
 * machine.h - the hardware that hwloc sees, as a text of muster's own, and the copy of it that slurmd saves.
 *
 * hwloc is slow: it opens some twenty files for each CPU and reads the configuration space of each PCI device, which
 * takes 7 ms on a small virtual machine and a tenth of a second on a server with 256 CPUs and 500 devices. So slurmd
 * writes this text to a file when it starts, and steps read that. hwloc itself is loaded only where the text has to be
 * made (srun and most slurmstepds never need it). One line each:
 *
 *     muster-machine 1               the version of the format
 *     allowed 0-63                   CPUs that the process that called hwloc may use
 *     cpus 0-63                      all CPUs
 *     numa 0 0 270000000000 0-31     NUMA node: the kernel's number, socket (-1: not known), bytes, CPUs
 *     core 0,32                      its hardware threads
 *     bridge -1 host                 PCI: the number of the bridge above, counting bridges and devices from 0, -1 for
 *     bridge 0 pci                   none; a host bridge, or one between PCI buses
 *     device 1 0 0302 10de:20b0 0000:07:00.0
 *                                    the same; index of its NUMA node above (-1: none), class, ids, address
 *     end                            else the text was cut
 *
 * CPU lists are the kernel's, "-" for none. Cores and NUMA nodes are in hwloc's order. The text has no host names and
 * no serial numbers.
 */
#ifndef MUSTER_SRUN_PLUGIN_NODE_MACHINE_H
#define MUSTER_SRUN_PLUGIN_NODE_MACHINE_H

#include "common/error.h"

#define MACHINE_FORM "muster-machine 1"

/*
 * The text for a file of hwloc's XML, or for this machine if xml is NULL; the caller frees it. NULL and *err: CODE_DATA
 * for invalid XML, CODE_IO if it cannot be read or hwloc fails, CODE_INTERNAL if hwloc is not installed, or muster was
 * built without it. MUSTER_HWLOC names another libhwloc to load; slurmd and slurmstepd ignore it.
 */
char *machine_read(const char *xml, struct error *err);

/* Writes the topology as hwloc's XML, for a snapshot. -1 and *err as above. */
int machine_save(const char *xml, const char *path, struct error *err);

/* ---- the copy of slurmd ------------------------------------------------------------------------------------------ */

#define MACHINE_CACHE_DIR "/run/muster"
#define MACHINE_CACHE     "machine"

/*
 * Reads this machine and writes dir/machine-BOOT_ID, mode 0644, atomically; creates dir (0755). It holds what is fixed
 * while the machine runs: cores, memory, the PCI tree. Links, drivers and device files are read anew for each step. A
 * PCI device that is added later (a virtual function) has no known place until slurmd starts again. -1 with the errors
 * of machine_read, or CODE_IO, also if others may write to dir.
 */
int machine_cache_write(const char *dir, struct error *err);

/*
 * The same for a text of another kind, dir/KIND-BOOT_ID: what slurmd knows, and steps or epilogs do not. Paths in `kind`
 * keep several slurmd of one host apart; "/" becomes "_".
 */
int slurmd_cache_write(const char *dir, const char *kind, const char *text, struct error *err);

/*
 * The text of this boot; the caller frees it. NULL if there is none, or if the file or dir does not belong to root or
 * to this user, or others may write to one: a user could otherwise feed root a false machine.
 */
char *slurmd_cache_read(const char *dir, const char *kind);

#endif

/*
 * snapshot.h - saves the files that node_read reads of a machine, so that node_read can read them elsewhere.
 *
 * DIR/machine.xml is hwloc's export. Beside it are the files of sysfs and procfs under their own paths, as plain files,
 * and the three texts of sysfs.h. Of larger files (status, meminfo, the driver's list of GPUs) only the lines that
 * node_read needs are saved: no UUIDs of GPUs, and hardware addresses only in GIDs. machine.xml has the host's name,
 * and serial numbers if root wrote it; IP addresses are saved.
 */
#ifndef MUSTER_SRUN_PLUGIN_TOPO_SNAPSHOT_H
#define MUSTER_SRUN_PLUGIN_TOPO_SNAPSHOT_H

#include "common/error.h"

/* From root ("/" or another snapshot) to dir, which must be new or empty; else, or on I/O errors, -1 and *err. */
int snapshot_save(const char *root, const char *dir, struct error *err);

#endif

/*
 * snapshot.h - save what node_read reads of a machine, so that node_read can read it elsewhere.
 *
 * DIR/machine.xml is hwloc's export; beside it lie the files of sysfs and procfs under their own paths, as plain files,
 * and the three texts of sysfs.h. Of files that tell more than we read (status, meminfo, the driver's list of GPUs)
 * only the lines that we read are kept; UUIDs of GPUs are not, and hardware addresses only where a GID holds one.
 * machine.xml names the host, and root's own names serial numbers too; IP addresses are kept.
 */
#ifndef MUSTER_SRUN_PLUGIN_SNAPSHOT_H
#define MUSTER_SRUN_PLUGIN_SNAPSHOT_H

#include "common/error.h"

/* From root ("/" or another snapshot) to dir, which must be new or empty. -1 and *err when it is not, or on I/O errors.
 */
int snapshot_save(const char *root, const char *dir, struct error *err);

#endif

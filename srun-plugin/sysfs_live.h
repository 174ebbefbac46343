/*
 * sysfs_live.h - the facts of this machine that are in no file, as text in the form that sysfs.h describes. NULL where
 * the system does not tell; the caller frees the text.
 */
#ifndef MUSTER_SRUN_PLUGIN_SYSFS_LIVE_H
#define MUSTER_SRUN_PLUGIN_SYSFS_LIVE_H

#include <stdbool.h>

char *sysfs_live_addresses(bool ipv6); /* else of IPv4 alone, in a fraction of the time */
char *sysfs_live_shm(void);
char *sysfs_live_devices(void);

#endif

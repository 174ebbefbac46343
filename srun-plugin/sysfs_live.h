/*
 * sysfs_live.h - the facts of this machine that are in no file, as text in the form that sysfs.h describes. NULL where
 * the system does not tell; the caller frees the text.
 */
#ifndef MUSTER_SRUN_PLUGIN_SYSFS_LIVE_H
#define MUSTER_SRUN_PLUGIN_SYSFS_LIVE_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>

char *sysfs_live_addresses(void);
char *sysfs_live_shm(void);
char *sysfs_live_devices(void);

/* The interface that has an IPv4 address; asked through a socket, in a tenth of the time of a list of all. */
bool sysfs_live_interface(int fd, struct in_addr address, char interface[IF_NAMESIZE]);

#endif

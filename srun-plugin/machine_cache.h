/*
 * machine_cache.h - what hwloc sees of this machine, kept for as long as it runs.
 *
 * hwloc opens some twenty files for each CPU and reads each PCI device's configuration space, of which a word takes
 * microseconds: 7 ms on a small virtual machine, a tenth of a second on a server with 256 CPUs and 500 devices; and to
 * load hwloc takes half a millisecond. So slurmd writes the text of machine.h when it starts, as root, and node_read
 * takes it where it is there, without hwloc; it is never required.
 *
 * In it is what does not change while a machine runs: cores, memory, PCI tree. Links, drivers and device files are read
 * anew each time. A PCI device that was added later (a virtual function) is seen without its place until slurmd starts
 * again.
 */
#ifndef MUSTER_SRUN_PLUGIN_MACHINE_CACHE_H
#define MUSTER_SRUN_PLUGIN_MACHINE_CACHE_H

#include "common/error.h"

#define MACHINE_CACHE_DIR "/run/muster"

/*
 * Looks at this machine and writes dir/machine-BOOT_ID, mode 0644, in one step; makes dir (0755) where it is not.
 * -1 with machine_look's errors, or CODE_IO where that cannot be, as when others may write to dir.
 */
int machine_cache_write(const char *dir, struct error *err);

/*
 * The text of this boot; the caller frees it. NULL where there is none, or where the file or dir is not root's or our
 * own, or others may write to one: a user could otherwise tell root what the machine is.
 */
char *machine_cache_read(const char *dir);

#endif

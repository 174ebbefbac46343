/*
 * module.h - shared objects beside the plugin, which it loads where they are needed and nowhere else: most processes of
 * Slurm that load the plugin have no use for hwloc (machine_module.c) and libconfig (config_module.c), and what has to
 * be loaded before each rank of a job starts, its user waits for.
 */
#ifndef MUSTER_SRUN_PLUGIN_MODULE_H
#define MUSTER_SRUN_PLUGIN_MODULE_H

#include "common/error.h"

#define MODULE_CONFIG "muster_config.so"
#define MODULE_HWLOC  "muster_hwloc.so"

/*
 * The address of a symbol of `file`, one of these, which lies where the plugin lies, installed or not; where a
 * site has copied the plugin, where it was installed, if only root and the plugin's owner can have put it there. It
 * stays loaded: libraries that it draws in may not bear to be unloaded. NULL with CODE_INTERNAL.
 */
void *module_symbol(const char *file, const char *name, struct error *err);

/*
 * Whether a program may be started that nobody has named, since it is of the prefix that the plugin was built for: 0
 * where the plugin lies in that prefix, so that whoever loads the one trusts the other, or where only root and the
 * plugin's owner can have put the program there. Else -1 with CODE_INTERNAL.
 */
int module_trust(const char *program, struct error *err);

#endif

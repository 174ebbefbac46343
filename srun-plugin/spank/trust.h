/*
 * trust.h - helper of all contexts: decides which files of its installation prefix the plugin may use without a path in
 * plugstack.conf.
 *
 * A plugin in its prefix trusts the whole prefix, as the process that loads it does. A plugin that was copied elsewhere
 * may have been built for a user's directory, or for one in /tmp that was removed since. It uses only files that only
 * root and the plugin's owner can write.
 */
#ifndef MUSTER_SRUN_PLUGIN_SPANK_TRUST_H
#define MUSTER_SRUN_PLUGIN_SPANK_TRUST_H

#include <limits.h>

#include "common/error.h"

/* 0 if a program of the prefix may be started; else -1 with CODE_INTERNAL. */
int trust_program(const char *program, struct error *err);

/*
 * The directory of the fabric profiles that muster ships: `fabric` beside the plugin, for a site that copied both, else
 * the installed one, if it is trusted. -1 with CODE_INTERNAL.
 */
int trust_profiles(char path[PATH_MAX], struct error *err);

#endif

/*
 * option.h - srun --muster-preflight[=exclude], from the step's layout to srun's exit code: the one call of the plugin.
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_OPTION_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_OPTION_H

#include <stdbool.h>

#include "srun-plugin/layout.h"

struct preflight_wish {
    bool on, exclude;
    bool own_job;         /* srun allocates the job itself, and ends it when it ends */
    const char *program;  /* muster-preflight */
    const char *job_file; /* "" for none */
};

/* The option's argument, NULL for none: 0, or -1 for one that there is not. */
int preflight_option(struct preflight_wish *wish, const char *argument);

/* To be called before srun reads its inputs or right after, while its environment is the user's. */
void preflight_look_around(struct preflight_wish *wish);

/*
 * Nothing where it is not on. Returns where all nodes are good, or could not be asked, with a warning. Else the step is
 * ended, and the process with it: 76 (CODE_PEER) where other nodes would do, 74 (CODE_IO) where all nodes are bad in
 * the same way.
 */
void preflight_option_run(const struct preflight_wish *wish, const struct layout *layout,
                          void (*log)(const char *line));

#endif

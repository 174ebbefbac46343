/*
 * option.h - srun --muster-preflight[=exclude], from the step's layout to srun's exit code: the one call of the plugin.
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_OPTION_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_OPTION_H

#include <stdbool.h>
#include <stdint.h>

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
 * 0 where it is not on, all nodes are good, or they could not be asked, with a warning. Else what srun shall end with:
 * 76 (CODE_PEER) where other nodes would do, 74 (CODE_IO) where all nodes are bad in the same way.
 *
 * No call of Slurm's API completes a step that was created and not launched: its CPUs are held until the job ends. So
 * where the job goes on without this step, the step is launched all the same, and its tasks end with that code before
 * they become the user's program: this returns, with PREFLIGHT_REFUSED in the environment for task_init to find
 * (preflight_refusal). Where the job ends with the step, the process ends here.
 */
int preflight_option_run(const struct preflight_wish *wish, const struct layout *layout, void (*log)(const char *line));

#define PREFLIGHT_REFUSED "SLURM_MUSTER_REFUSED" /* "JOB.STEP CODE" */

/* What a task of this step shall end with, by the value of PREFLIGHT_REFUSED in its environment, "" for unset; 0 where
 * it shall run. A value of another step, whose srun this step's was started beneath, counts for nothing. */
int preflight_refusal(const char *value, uint32_t job_id, uint32_t step_id);

#endif

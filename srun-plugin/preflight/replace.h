/*
 * replace.h - after bad nodes were found, in srun: gives the job back to the queue to come again on others.
 *
 * A job is a script's (sbatch) or a user's who sits before it (salloc, srun): only the former can be requeued. And
 * slurmctld takes an exclude list for pending jobs only, while the end of the run, that the requeue begins, is the end
 * of this srun too. So: requeue, and at once, with TERM and the like blocked, exclude. slurmctld gives steps KillWait
 * (30 s by default) between TERM and KILL, and a requeued job does not start before it is off its old nodes.
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_REPLACE_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_REPLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

/* Ends a job that this very srun has allocated. -1 and *err where slurmctld says no. */
int replace_end_job(uint32_t job_id, struct error *err);

/*
 * Requeues the job, to run on nodes other than `bad` ("n1,n3") and those that it excludes already. -1 and *err, which
 * says why it could not be; if the exclusion is what failed, the job is requeued all the same, and *requeued tells.
 */
int replace_nodes(uint32_t job_id, const char *bad, bool *requeued, struct error *err);

#endif

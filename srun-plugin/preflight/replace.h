/*
 * replace.h - requeues the job of this srun to run again without its bad nodes.
 *
 * Only jobs of sbatch can be requeued. slurmctld accepts an exclude list for pending jobs only, but the requeue also ends
 * this srun. So: requeue, and at once, with TERM and the like blocked, exclude. slurmctld waits KillWait (30 s by default)
 * between TERM and KILL, and a requeued job does not start before it has left its old nodes.
 */
#ifndef MUSTER_SRUN_PLUGIN_PREFLIGHT_REPLACE_H
#define MUSTER_SRUN_PLUGIN_PREFLIGHT_REPLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

/* Ends a job that this srun has allocated. -1 and *err if slurmctld refuses. */
int replace_end_job(uint32_t job_id, struct error *err);

/*
 * Requeues the job, to run without `bad` ("n1,n3") and the nodes that it excludes already. -1 and *err if that fails; if
 * only the exclusion failed, the job is requeued and *requeued is true.
 */
int replace_nodes(uint32_t job_id, const char *bad, bool *requeued, struct error *err);

#endif

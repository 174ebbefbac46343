#include "srun-plugin/preflight/replace.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include "common/clock.h"

enum { TRIES = 20 }; /* at a quarter of a second: the requeue has to arrive in slurmctld's tables */

/*
 * Slurm's calls name a job by its number until 25.05, some of them by a step's id from 25.11 on, and all from 26.05
 * on.
 */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
static slurm_step_id_t name_job(uint32_t job_id)
{
    slurm_step_id_t id = SLURM_STEP_ID_INITIALIZER;

    id.job_id = job_id;
    return id;
}
#endif

static int complete_job(uint32_t job_id, uint32_t code)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
    slurm_step_id_t id = name_job(job_id);

    return slurm_complete_job(&id, code);
#else
    return slurm_complete_job(job_id, code);
#endif
}

static void address_job(job_desc_msg_t *change, uint32_t job_id)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
    change->step_id = name_job(job_id);
#else
    change->job_id = job_id;
#endif
}

static int load_job(job_info_msg_t **answer, uint32_t job_id)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
    return slurm_load_job(answer, name_job(job_id), SHOW_ALL);
#else
    return slurm_load_job(answer, job_id, SHOW_ALL);
#endif
}

static int requeue_job(uint32_t job_id)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
    return slurm_requeue(name_job(job_id), 0);
#else
    return slurm_requeue(job_id, 0);
#endif
}

static int explain_refusal(struct error *err, const char *what)
{
    return error_set(err, CODE_INTERNAL, "%s: %s", what, slurm_strerror(errno));
}

int replace_end_job(uint32_t job_id, struct error *err)
{
    return complete_job(job_id, CODE_PEER << 8) == SLURM_SUCCESS ? 0 : explain_refusal(err, "the job cannot be ended");
}

/* The job's exclude list and `bad`, to be freed. NULL and *err if the job cannot be requeued. */
static char *list_exclusion(uint32_t job_id, const char *bad, struct error *err)
{
    job_info_msg_t *answer = NULL;
    const slurm_job_info_t *job;
    char *list = NULL;

    if (load_job(&answer, job_id) != SLURM_SUCCESS || answer->record_count < 1) {
        explain_refusal(err, "slurmctld does not answer about the job");
        slurm_free_job_info_msg(answer);
        return NULL;
    }
    job = &answer->job_array[0];
    if (!job->batch_flag)
        error_set(err, CODE_USAGE, "only sbatch's jobs can be requeued: give --exclude=%s to the next job", bad);
    else if (!job->requeue)
        error_set(err, CODE_USAGE, "the job may not be requeued (sbatch --requeue): give --exclude=%s to the next job",
                  bad);
    else if (asprintf(&list, "%s%s%s", job->exc_nodes ? job->exc_nodes : "",
                      job->exc_nodes && job->exc_nodes[0] ? "," : "", bad) < 0) {
        error_set(err, CODE_IO, "no memory for a list of nodes");
        list = NULL;
    }
    slurm_free_job_info_msg(answer);
    return list;
}

/* The signals of the requeue would end srun before the exclusion. */
static void block_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGCONT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

static int exclude_nodes(uint32_t job_id, char *list, struct error *err)
{
    job_desc_msg_t change;

    for (int i = 0; i < TRIES; i++) {
        slurm_init_job_desc_msg(&change);
        address_job(&change, job_id);
        change.exc_nodes = list;
        if (slurm_update_job(&change) == SLURM_SUCCESS)
            return 0;
        clock_sleep(0.25);
    }
    return explain_refusal(err, "slurmctld does not exclude them");
}

int replace_nodes(uint32_t job_id, const char *bad, bool *requeued, struct error *err)
{
    char *list = list_exclusion(job_id, bad, err);
    int status = -1;

    *requeued = false;
    if (!list)
        return -1;
    block_signals();
    if (requeue_job(job_id) != SLURM_SUCCESS) {
        explain_refusal(err, "slurmctld does not requeue the job");
    } else {
        *requeued = true;
        status = exclude_nodes(job_id, list, err);
    }
    free(list);
    return status;
}

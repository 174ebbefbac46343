/* slurmd.c - context slurmd: its start, and Slurm's side of the epilog, both as root. */
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "srun-plugin/node/machine.h"
#include "srun-plugin/spank/epilog.h"
#include "srun-plugin/spank/plugin.h"
#include "srun-plugin/spank/trust.h"

/* The settings of this node's epilog. The caller adds the job. */
static struct epilog describe_epilog(const struct site *site)
{
    return (struct epilog){
        .roots = site->stage,
        .ckptd = site->ckptd ? site->ckptd : CKPTD_PATH,
        .trust = site->ckptd ? NULL : trust_program,
        .keep = strcmp(site->stage_keep, "0") != 0 ? site->stage_keep : NULL,
        .seconds = epilog_timeout_fit(site->epilog_seconds, epilog_timeout_read(getenv("SLURM_CONF")), NULL)};
}

/* Which directories the epilog searches, for step_node: to a job the same paths may be others (namespace/linux). */
static int save_stages(const struct site *site, struct error *err)
{
    char kind[NAME_MAX], text[ENV_VALUE_SIZE];

    plugin_name_stages(site, kind);
    if (!job_stage_describe(site->stage, text, sizeof text))
        return error_set(err, CODE_USAGE, "stage=%s is too long", site->stage);
    return slurmd_cache_write(MACHINE_CACHE_DIR, kind, text, err);
}

void slurmd_start(const struct site *site)
{
    struct epilog leftover;
    struct error err;

    if (machine_cache_write(MACHINE_CACHE_DIR, &err) < 0) /* so that no srun waits while hwloc reads a large machine */
        slurm_info("muster: each srun --muster reads this machine again: %s", err.text);
    plugin_warn_of_timeout(site->epilog_seconds);
    if (save_stages(site, &err) < 0)
        slurm_info("muster: jobs in containers do not know which stages the epilog finds: %s", err.text);
    leftover = describe_epilog(site);
    if (leftover.keep && leftover.seconds > 0)
        epilog_start(&leftover, plugin_print);
}

/* For jobs without --muster too: the directories tell whether there is something to drain. */
void slurmd_epilog(const struct site *site, spank_t spank)
{
    const char *first =
        getenv("SLURM_HET_JOB_ID"); /* tasks of a heterogeneous job have it; slurmd the component's own */
    struct epilog epilog = describe_epilog(site);

    epilog.het_job_id = first ? (uint32_t)strtoul(first, NULL, 10) : 0;
    if (spank_get_item(spank, S_JOB_ID, &epilog.job_id) == ESPANK_SUCCESS &&
        spank_get_item(spank, S_JOB_UID, &epilog.uid) == ESPANK_SUCCESS)
        epilog_drain(&epilog, plugin_print);
}

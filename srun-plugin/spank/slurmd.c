/* slurmd.c - context slurmd: its start, and Slurm's side of the epilog, both as root. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>

#include "srun-plugin/node/machine.h"
#include "srun-plugin/spank/epilog.h"
#include "srun-plugin/spank/plugin.h"
#include "srun-plugin/spank/trust.h"

/* Which directories the epilog searches, for step_node: to a job the same paths may be others (namespace/linux). */
static int save_stages(const struct site *site, struct error *err)
{
    char kind[NAME_MAX], text[ENV_VALUE_SIZE];

    snprintf(kind, sizeof kind, SLURMD_STAGES, site->stage);
    if (!job_stage_describe(site->stage, text, sizeof text))
        return error_set(err, CODE_USAGE, "stage=%s is too long", site->stage);
    return slurmd_cache_write(MACHINE_CACHE_DIR, kind, text, err);
}

/* SLURM_CONF, which slurmd sets in each of its processes, names the cluster. */
static void name_timeout(char kind[NAME_MAX])
{
    const char *conf = getenv("SLURM_CONF");

    snprintf(kind, NAME_MAX, "timeout%s", conf ? conf : "");
}

static int save_timeout(struct error *err)
{
    char kind[NAME_MAX], text[16];

    name_timeout(kind);
    snprintf(text, sizeof text, "%d", plugin_timeout());
    return slurmd_cache_write(MACHINE_CACHE_DIR, kind, text, err);
}

/*
 * slurm.conf's timeout. The epilog's own process has all of slurm.conf in memory up to Slurm 23.02 only (measured: in
 * 22.05, not in 24.05 to 26.05). In later releases slurmd initializes the plugin again when it is reconfigured, so what
 * it has saved is up to date.
 */
static int find_timeout(void)
{
    char kind[NAME_MAX], *saved = NULL;
    int timeout = plugin_timeout();

    name_timeout(kind);
    if (timeout == EPILOG_NO_TIMEOUT && (saved = slurmd_cache_read(MACHINE_CACHE_DIR, kind)))
        timeout = atoi(saved);
    free(saved);
    return timeout;
}

/* The settings of this node's epilog. The caller adds the job. */
static struct epilog describe_epilog(const struct site *site)
{
    return (struct epilog){.roots = site->stage,
                           .ckptd = site->ckptd ? site->ckptd : CKPTD_PATH,
                           .trust = site->ckptd ? NULL : trust_program,
                           .keep = strcmp(site->stage_keep, "0") != 0 ? site->stage_keep : NULL,
                           .prometheus = site->prometheus,
                           .seconds = epilog_timeout_fit(site->epilog_seconds, find_timeout(), NULL)};
}

void slurmd_start(const struct site *site)
{
    struct epilog leftover;
    struct error err;

    if (machine_cache_write(MACHINE_CACHE_DIR, &err) < 0) /* so that no srun waits while hwloc reads a large machine */
        slurm_info("muster: each srun --muster reads this machine again: %s", err.text);
    if (save_stages(site, &err) < 0)
        slurm_info("muster: jobs in containers do not know which stages the epilog finds: %s", err.text);
    if (save_timeout(&err) < 0)
        slurm_info("muster: the epilog does not know slurm.conf's timeout: %s", err.text);
    epilog_timeout_fit(site->epilog_seconds, plugin_timeout(), plugin_print);
    leftover = describe_epilog(site);
    if (leftover.keep && leftover.seconds > 0)
        epilog_start(&leftover, plugin_print);
}

/* For jobs without --muster too: the directories tell whether there is something to drain. */
void slurmd_job_ended(const struct site *site, spank_t spank)
{
    const char *first = getenv("SLURM_HET_JOB_ID"); /* what all tasks of a heterogeneous job have as SLURM_JOB_ID */
    struct epilog epilog = describe_epilog(site);

    epilog.het_job_id = first ? (uint32_t)strtoul(first, NULL, 10) : 0;
    if (spank_get_item(spank, S_JOB_ID, &epilog.job_id) == ESPANK_SUCCESS &&
        spank_get_item(spank, S_JOB_UID, &epilog.uid) == ESPANK_SUCCESS)
        epilog_drain(&epilog, plugin_print);
}

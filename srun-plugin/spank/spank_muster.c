/*
 * spank_muster.c - the SPANK plugin: its options, the site's arguments and Slurm's callbacks. plugin.h is the map.
 *
 * Rules: without --muster nothing happens in a step, except that an srun, sbatch or salloc inside a step of srun
 * --muster unsets what that step has set: its RANK is not that of the inner tasks. Every callback returns 0 even after
 * an error, since Slurm drains a node whose plugin fails in init or user_init. No file of a user is opened as root.
 * See spank(8) and doc/spank_muster.8.scd.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "common/text.h"
#include "srun-plugin/spank/plugin.h"

SPANK_PLUGIN(spank_muster, 1)

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
extern int slurm_spank_init_failure_mode;
int slurm_spank_init_failure_mode = ESPANK_JOB_FAILURE; /* a plugin that cannot start costs the job, not the node */
#endif

#define EPILOG_MOST 86400 /* seconds */

enum option_value { OPTION_JOB, OPTION_REPORT, OPTION_PREFLIGHT };

static struct plugin plugin = {
    .site = {.stage = "/dev/shm", .stage_keep = "24h", .epilog_seconds = 60, .fabric = FABRIC_SITE_DIR}};

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* Whether an option has the one argument that it may have, or none. */
static bool is_allowed(const char *option, const char *argument, const char *allowed)
{
    if (!argument || strcmp(argument, allowed) == 0)
        return true;
    slurm_spank_log("muster: --%s=%s is unknown: give --%s or --%s=%s", option, argument, option, option, allowed);
    return false;
}

/* May come several times: from the environment of the batch job, from the command line, twice in slurmstepd. */
static int on_option(int value, const char *argument, int remote)
{
    struct request *request = &plugin.request;
    /* "(null)" is how sbatch and salloc write an option without a value into the environment of the job. */
    const char *given = argument && argument[0] && strcmp(argument, "(null)") != 0 ? argument : NULL;

    if (value == OPTION_REPORT && !remote && !is_allowed("muster-report", given, "json"))
        return -1;
    if (value == OPTION_PREFLIGHT && !remote && !is_allowed("muster-preflight", given, "exclude"))
        return -1;
    request->on = true;
    if (value == OPTION_PREFLIGHT) {
        request->preflight = true;
        request->exclude |= given != NULL;
    } else if (value == OPTION_REPORT) {
        request->report = true;
        request->json = given != NULL;
    } else if (given) { /* `srun --muster` inside a job of `sbatch --muster=FILE` keeps FILE */
        snprintf(request->file, sizeof request->file, "%s", given);
    }
    return 0;
}

static struct spank_option options[] = {
    {(char *)"muster", (char *)"[JOB.cfg]",
     (char *)"place and bind the ranks, set RANK, MASTER_ADDR, NCCL_... unless the user did; check the job "
             "file",
     2, OPTION_JOB, on_option},
    {(char *)"muster-report", (char *)"[json]",
     (char *)"the same, and print nodes, ranks, every variable, and where its value comes from", 2, OPTION_REPORT,
     on_option},
    {(char *)"muster-preflight", (char *)"[exclude]",
     (char *)"the same, and check all nodes before any task starts; end with 76 where one is bad, and with =exclude "
             "requeue the job without it",
     2, OPTION_PREFLIGHT, on_option},
};

/* slurmd, srun, sbatch and salloc log what they do not use; a step would only log it again. */
static void check_site(struct site *site, const char *seconds)
{
    double age;
    long number;

    for (const char *part = site->stage; part; part = strchr(part, ':') ? strchr(part, ':') + 1 : NULL)
        if (part[0] != '/')
            slurm_error("muster: plugstack.conf: stage=%s: each directory must begin with /; \"%.*s\" is not used",
                        site->stage, (int)strcspn(part, ":"), part);
    if (strcmp(site->stage_keep, "0") != 0 &&
        (!isalpha((unsigned char)site->stage_keep[strspn(site->stage_keep, "0123456789.")]) ||
         !text_to_seconds(site->stage_keep, &age))) {
        slurm_error(
            "muster: plugstack.conf: stage_keep=%s: must be 0 or an age with its unit, such as 24h; 24h is used",
            site->stage_keep);
        site->stage_keep = "24h";
    }
    if (!seconds)
        return;
    if (text_to_long(seconds, 0, EPILOG_MOST, &number))
        site->epilog_seconds = (int)number;
    else
        slurm_error("muster: plugstack.conf: epilog_seconds=%s: must be a number of seconds, 0 to %d; %d is used",
                    seconds, EPILOG_MOST, site->epilog_seconds);
}

/* The arguments after the plugin's path in plugstack.conf. */
static void read_site(int argc, char *argv[])
{
    struct site *site = &plugin.site;
    const char *seconds = NULL;
    const struct {
        const char *key;
        const char **value;
    } keys[] = {{"stage=", &site->stage},          {"stage_keep=", &site->stage_keep}, {"ckptd=", &site->ckptd},
                {"topology=", &site->topology},    {"profiles=", &site->profiles},     {"fabric=", &site->fabric},
                {"preflight=", &site->preflight},  {"machine=", &site->machine},       {"epilog_seconds=", &seconds},
                {"prometheus=", &site->prometheus}};
    const size_t count = sizeof keys / sizeof keys[0];

    for (int i = 0; i < argc; i++) {
        size_t k = 0;

        while (k < count && strncmp(argv[i], keys[k].key, strlen(keys[k].key)) != 0)
            k++;
        if (k < count)
            *keys[k].value = argv[i] + strlen(keys[k].key);
        else
            slurm_error(
                "muster: plugstack.conf: %s is unknown; known are stage=, stage_keep=, ckptd=, epilog_seconds=, "
                "topology=, profiles=, fabric=, preflight=, machine= and prometheus=",
                argv[i]);
    }
    if (spank_context() != S_CTX_REMOTE)
        check_site(site, seconds);
}

/* ---- callbacks --------------------------------------------------------------------------------------------------- */

int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
    spank_context_t context = spank_context();

    if (context == S_CTX_SLURMD || context == S_CTX_REMOTE)
        unsetenv("MUSTER_HWLOC"); /* root loads the installed library only, whatever its environment names */
    if (context != S_CTX_LOCAL && context != S_CTX_REMOTE && context != S_CTX_ALLOCATOR && context != S_CTX_SLURMD)
        return 0;
    read_site(argc, argv);
    if (context == S_CTX_SLURMD) {
        slurmd_start(&plugin.site);
        return 0;
    }
    if (context != S_CTX_REMOTE)
        env_forget_outer();
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS)
            slurm_error("muster: Slurm did not accept the option --%s", options[i].name);
    if (context == S_CTX_LOCAL)
        srun_begin(&plugin);
    return 0;
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char *argv[])
{
    (void)argc, (void)argv;
    if (plugin.request.on && spank_context() == S_CTX_LOCAL)
        srun_check(&plugin);
    if (plugin.request.on && spank_context() == S_CTX_ALLOCATOR)
        sbatch_check(&plugin);
    if (plugin.request.on && spank_context() == S_CTX_REMOTE)
        step_start_launcher(&plugin, spank);
    return 0;
}

int slurm_spank_local_user_init(spank_t spank, int argc, char *argv[])
{
    (void)argc, (void)argv;
    if (plugin.request.on)
        srun_step(&plugin, spank);
    return 0;
}

int slurm_spank_user_init(spank_t spank, int argc, char *argv[])
{
    (void)argc, (void)argv;
    if (plugin.request.on)
        step_node(&plugin, spank);
    return 0;
}

int slurm_spank_task_init(spank_t spank, int argc, char *argv[])
{
    (void)argc, (void)argv;
    if (plugin.request.on)
        step_task(&plugin, spank);
    return 0;
}

int slurm_spank_exit(spank_t spank, int argc, char *argv[])
{
    (void)spank, (void)argc, (void)argv;
    if (plugin.request.on && spank_context() == S_CTX_LOCAL)
        srun_end(&plugin);
    return 0;
}

int slurm_spank_job_epilog(spank_t spank, int argc, char *argv[])
{
    read_site(argc, argv);
    slurmd_job_ended(&plugin.site, spank);
    return 0;
}

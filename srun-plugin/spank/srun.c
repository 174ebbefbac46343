/* srun.c - context srun, with sbatch and salloc. The tasks inherit what it changes in its own environment. It sends a
 * few RPCs to slurmctld (order/slurmctld.h), whose number does not depend on the number of ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/slurm.h>

#include "srun-plugin/preflight/preflight.h"
#include "srun-plugin/spank/epilog.h"
#include "srun-plugin/spank/plugin.h"
#include "srun-plugin/spank/trust.h"

/* ---- the job file ------------------------------------------------------------------------------------------------ */

static int add_variable(const char *name, const char *value, int line, void *variables, struct error *err)
{
    return file_variables_add(variables, name, value, line, err);
}

/* The handoff's part that comes from the job file. */
static int fill_job(struct handoff *handoff, const struct job_file *file, struct error *err)
{
    char *text;

    if (!realpath(file->path, handoff->job_file)) /* the tasks' working directory may be another */
        return error_errno(err, CODE_IO, "%s", file->path);
    if (job_each_variable(&file->parsed, add_variable, &handoff->variables, err) < 0 ||
        !(text = handoff_text(handoff, err)))
        return error_prefix(err, "%s", file->path);
    free(text);
    return 0;
}

/*
 * Reads the job file into the handoff, without muster-train's --set, which the plugin does not see. No other function
 * of the plugin reads the file. srun_begin calls read_job first, if srun_line knows all options of the command line.
 * Later srun_check calls it for the file that srun's own option parser found; if that is the same file, nothing
 * happens.
 */
static void read_job(struct plugin *plugin, const char *path)
{
    struct job_file *file = &plugin->srun.file;

    if (file->path[0] && strcmp(file->path, path) == 0)
        return;
    if (plugin->srun.job)
        job_destroy(&file->parsed);
    job_destroy(&plugin->srun.chosen);
    handoff_clear(&plugin->handoff);
    plugin->srun.job = NULL;
    snprintf(file->path, sizeof file->path, "%s", path);
    if (job_load(&file->parsed, path, NULL, 0, &file->err) < 0)
        return;
    if (file->parsed.parallel.mesh == MESH_AUTO && plugin->site.machine) /* srun_order.c adds the choice, if it can */
        snprintf(plugin->handoff.mesh, sizeof plugin->handoff.mesh, "%s", plugin->site.machine);
    if (fill_job(&plugin->handoff, file, &file->err) == 0)
        plugin->srun.job = &file->parsed;
    else
        job_destroy(&file->parsed);
}

/* Whether srun has read a job file that is wrong. */
static bool is_wrong(const struct plugin *plugin)
{
    return plugin->srun.file.path[0] && !plugin->srun.job;
}

static void refuse_job_file(const struct error *err)
{
    slurm_spank_log("muster: %s", err->text);
    exit((int)err->code); /* SPANK has no way to choose srun's exit code. No task was launched yet. */
}

static void warn_of_job_file(const struct error *err)
{
    slurm_spank_log("muster: warning: %s; srun will refuse this job file as it is", err->text);
}

/* The job may wait in the queue for days; until it runs, its file may be corrected, or be in another directory. */
void sbatch_check(struct plugin *plugin)
{
    if (!plugin->request.file[0])
        return;
    read_job(plugin, plugin->request.file);
    if (is_wrong(plugin))
        warn_of_job_file(&plugin->srun.file.err);
}

/* ---- before srun reads its options ------------------------------------------------------------------------------- */

/* An option of the job's, as sbatch and salloc hand it to the sruns inside; NULL if it was not given. */
static const char *outer_option(const char *option)
{
    char name[128];

    snprintf(name, sizeof name, "SLURM_SPANK__SLURM_SPANK_OPTION_spank_muster_%s", option);
    return getenv(name);
}

/* The job file that srun_check will find; NULL for none. Slurm passes on an option without a value as "(null)". */
static const char *choose_job_file(const struct srun_line *line)
{
    const char *outer = outer_option("muster");

    if (line->file)
        return line->file;
    return outer && outer[0] && strcmp(outer, "(null)") != 0 ? outer : getenv("MUSTER_JOB");
}

void srun_begin(struct plugin *plugin)
{
    struct srun_line *line = &plugin->srun.line;
    const char *file;
    struct error err;

    if (srun_line_own(line, &err) < 0)
        slurm_spank_log("muster: warning: srun's command line cannot be read: %s; ranks are neither ordered nor bound",
                        err.text);
    if (!line->muster && !outer_option("muster") && !outer_option("muster_report") && !outer_option("muster_preflight"))
        return;
    plugin->handoff.user_binds =
        line->binds || getenv("SLURM_CPU_BIND") || getenv("SLURM_HINT") || getenv("SLURM_THREADS_PER_CORE");
    file = line->known ? choose_job_file(line) : NULL;
    if (file && file[0])
        read_job(plugin, file);
    if (!is_wrong(plugin))
        srun_order_begin(plugin);
}

/* ---- the options are known --------------------------------------------------------------------------------------- */

/*
 * srun sets SLURM_CPUS_PER_TASK only if it was given --cpus-per-task, and else leaves sbatch's value there. It has read
 * its environment by now. This removes sbatch's value: if the variable exists again in srun_step, srun has set it.
 */
static void hide_outer_cpus(struct plugin *plugin)
{
    const char *value = getenv("SLURM_CPUS_PER_TASK");

    if (!value || strlen(value) >= sizeof plugin->srun.outer_cpus)
        return;
    strcpy(plugin->srun.outer_cpus, value);
    unsetenv("SLURM_CPUS_PER_TASK");
}

static void restore_outer_cpus(struct plugin *plugin)
{
    const char *outer = plugin->srun.outer_cpus;

    if (!outer[0] || getenv("SLURM_CPUS_PER_TASK"))
        return;
    setenv("SLURM_CPUS_PER_TASK", outer, 1);
    plugin->handoff.cpus_inherited = true;
}

static void hand_over(const struct handoff *handoff)
{
    struct error err;
    char *text = handoff_text(handoff, &err);

    if (!text || setenv(HANDOFF_NAME, text, 1) < 0)
        slurm_spank_log("muster: warning: %s; the nodes get no handoff", text ? "no memory" : err.text);
    free(text);
}

void srun_check(struct plugin *plugin)
{
    const char *outer = getenv("MUSTER_JOB");

    hide_outer_cpus(plugin);
    plugin->srun.own_job = !getenv("SLURM_JOB_ID") && !getenv("SLURM_JOBID") && !plugin->srun.line.has_jobid;
    if (!plugin->request.file[0] && outer)
        snprintf(plugin->request.file, sizeof plugin->request.file, "%s", outer);
    if (plugin->request.file[0])
        read_job(plugin, plugin->request.file);
    /*
     * With LaunchParameters=use_interactive_step, salloc's shell runs in a hidden `srun --interactive`. If that srun
     * ends, so does the job. srun_check refuses a wrong job file only in an srun that cannot be salloc's interactive
     * step. In the others srun_step decides, since it knows the step's id. (After an option that srun_line.h does not
     * know, --interactive may be an argument of the program.) srun_step is the worse place: if srun ends there, the
     * CPUs of the step are held until the job ends.
     */
    if (is_wrong(plugin) && !(plugin->srun.line.interactive && getenv("SLURM_JOB_ID")))
        refuse_job_file(&plugin->srun.file.err);
    if (plugin->srun.job)
        setenv("MUSTER_JOB", plugin->handoff.job_file, 1);
    hand_over(&plugin->handoff); /* all that the other components of a heterogeneous step get */
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

/* The address of rank 0's node, and of one other; the node's name if slurmctld does not give the address. */
static void fill_addresses(struct handoff *handoff, struct step_layout *layout)
{
    struct error err;

    if (step_layout_ask_rank0_node(layout, &err) < 0)
        slurm_spank_log("muster: warning: %s; MASTER_ADDR is its name", err.text);
    snprintf(handoff->master_address, sizeof handoff->master_address, "%s", layout->master_address);
    handoff->cpus_are_cores = layout->cpus_are_cores;
    handoff->rank0_node = (unsigned)layout->rank0_node;
    step_layout_find_peer(layout, handoff->peer, sizeof handoff->peer);
}

/* Ports are tested only if rank 0 runs on this host: a port that is free here says nothing about other hosts. Slurm's
 * name of a node need not be the host's: inside a job, SLURMD_NODENAME has it. */
static void fill_port(struct handoff *handoff, const struct step_layout *layout)
{
    const char *rank0 = layout->hosts->names[layout->rank0_node], *node = getenv("SLURMD_NODENAME");
    char host[HOSTNAME_SIZE] = "";

    gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = '\0';
    if (strcmp(host, rank0) == 0 || (node && strcmp(node, rank0) == 0))
        handoff->port = port_choose(layout->job_id, layout->step_id, port_is_free, NULL);
}

/* Returns the exit code for srun if a node is bad, else 0. */
static unsigned check_nodes(const struct plugin *plugin, const struct step_layout *layout)
{
    const char *program = plugin->site.preflight;
    const struct preflight preflight = {
        .program = program ? program : PREFLIGHT_PATH,
        .layout = layout,
        .job = plugin->srun.job,
        .exclude = plugin->request.exclude,
        .own_job = plugin->srun.own_job,
        .log = plugin_print,
    };
    struct error err = {.text = "the step is heterogeneous"};

    if (!getenv("SLURM_HET_SIZE") && (program || trust_program(PREFLIGHT_PATH, &err) == 0))
        return (unsigned)preflight_step(&preflight);
    slurm_spank_log("muster: preflight: warning: the nodes were not checked: %s", err.text);
    return 0;
}

static void fill_step(struct plugin *plugin, uint32_t job_id, uint32_t step_id)
{
    struct handoff *handoff = &plugin->handoff;
    struct error err;
    struct step_layout *layout = step_layout_create(job_id, step_id, &err);

    if (!layout) {
        slurm_spank_log("muster: warning: %s; MASTER_ADDR is the first node's name", err.text);
        return;
    }
    fill_addresses(handoff, layout);
    fill_port(handoff, layout);
    srun_order_step(plugin, layout);
    if (plugin->request.report) {
        srun_order_report(plugin, layout);
        epilog_timeout_fit(plugin->site.epilog_seconds, plugin_timeout(), plugin_print);
    }
    if (plugin->request.preflight)
        handoff->exit_code = check_nodes(plugin, layout);
    step_layout_destroy(layout);
}

void srun_step(struct plugin *plugin, spank_t spank)
{
    uint32_t job_id, step_id;
    bool known = spank_get_item(spank, S_JOB_ID, &job_id) == ESPANK_SUCCESS &&
                 spank_get_item(spank, S_JOB_STEPID, &step_id) == ESPANK_SUCCESS;
    bool has_ranks = !known || step_id < SLURM_MAX_NORMAL_STEP_ID;

    srun_order_close(plugin);
    restore_outer_cpus(plugin);
    if (is_wrong(plugin) && has_ranks)
        refuse_job_file(&plugin->srun.file.err);
    if (is_wrong(plugin))
        warn_of_job_file(&plugin->srun.file.err);
    if (!has_ranks)
        return;
    plugin->handoff.step_known = true;
    if (known)
        fill_step(plugin, job_id, step_id);
    else
        slurm_spank_log("muster: warning: Slurm does not give the step's id; MASTER_ADDR is the first node's name");
    hand_over(&plugin->handoff);
}

/* Ends srun with the exit code of preflight. The tasks' exit code is not enough: on a dead node no task starts, and
 * srun would return a code of its own. */
void srun_end(const struct plugin *plugin)
{
    if (!plugin->handoff.exit_code)
        return;
    fflush(NULL);
    _exit((int)plugin->handoff.exit_code);
}

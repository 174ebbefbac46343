/*
 * spank_srun.c - what the plugin does in srun, sbatch and salloc (plugin.h). Its only tools are srun's own environment,
 * which the tasks inherit, and short calls to slurmctld: one for the switches, one for the layout, one or two for
 * addresses, for any number of ranks.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "srun-plugin/spank/env.h"
#include "srun-plugin/spank/epilog.h"
#include "srun-plugin/spank/port.h"
#include "srun-plugin/spank/trust.h"
#include "srun-plugin/preflight/preflight.h"
#include "srun-plugin/spank/report.h"
#include "srun-plugin/spank/plugin.h"

/* ---- the job file ------------------------------------------------------------------------------------------------ */

struct variable_sink {
    struct step_plan *plan;
    struct error *err;
    int rc;
};

static void add_variable(const char *name, const char *value, int line, void *arg)
{
    struct variable_sink *sink = arg;

    if (sink->rc == 0)
        sink->rc = step_plan_add(sink->plan, name, value, line, sink->err);
}

/* The plan's part that comes from the job file. */
static int plan_job(struct step_plan *plan, const struct job_once *once, struct error *err)
{
    struct variable_sink sink = {.plan = plan, .err = err};
    char *text = NULL;

    if (!realpath(once->path, plan->job_file)) /* the tasks' working directory may be another */
        return error_errno(err, CODE_IO, "%s", once->path);
    if (job_each_variable(&once->job, add_variable, &sink, err) < 0 || sink.rc < 0 ||
        !(text = step_plan_text(plan, err)))
        return error_prefix(err, "%s", once->path);
    free(text);
    return 0;
}

/*
 * Reads the job file into the plan. This is the one place of the plugin that does: srun_check finds what srun_begin has
 * read, unless srun understood its command line otherwise than srun_line.h.
 */
static void read_job(struct plugin *plugin, const char *path)
{
    struct job_once *once = &plugin->srun.job;

    if (once->read && strcmp(once->path, path) == 0)
        return;
    if (once->good)
        job_destroy(&once->job);
    step_plan_clear(&plugin->plan);
    *once = (struct job_once){.read = true};
    snprintf(once->path, sizeof once->path, "%s", path);
    if (job_load(&once->job, path, NULL, 0, &once->err) < 0)
        return;
    once->good = plan_job(&plugin->plan, once, &once->err) == 0;
    if (!once->good)
        job_destroy(&once->job);
}

static void refuse_job_file(const struct error *err)
{
    slurm_spank_log("muster: %s", err->text);
    exit((int)err->code); /* SPANK has no way to choose srun's exit code. No task was launched yet. */
}

static void warn_of_job_file(const struct error *err)
{
    slurm_spank_log("muster: warning: %s; srun will refuse it like this", err->text);
}

/* The job may wait in the queue for days; until it runs, its file may be corrected, or be in another directory. */
void sbatch_check(struct plugin *plugin)
{
    if (!plugin->request.file[0])
        return;
    read_job(plugin, plugin->request.file);
    if (!plugin->srun.job.good)
        warn_of_job_file(&plugin->srun.job.err);
}

/* ---- before srun reads its options ------------------------------------------------------------------------------- */

/* An option of the job's, as sbatch and salloc hand it to the sruns inside; NULL if it was not given. */
static const char *option_of_job(const char *option)
{
    char name[128];

    snprintf(name, sizeof name, "SLURM_SPANK__SLURM_SPANK_OPTION_spank_muster_%s", option);
    return getenv(name);
}

static bool is_requested(const struct srun_line *line)
{
    return line->muster || option_of_job("muster") || option_of_job("muster_report") ||
           option_of_job("muster_preflight");
}

/* As srun_check will find it; "(null)" is how Slurm passes an option without value on. NULL for none. */
static const char *find_job_file(const struct srun_line *line)
{
    const char *outer = option_of_job("muster");

    if (line->file)
        return line->file;
    return outer && outer[0] && strcmp(outer, "(null)") != 0 ? outer : getenv("MUSTER_JOB");
}

/* Whether the user set a variable, and not an srun --muster around this one. */
static bool is_users(const char *name)
{
    const char *value = getenv(name), *record = getenv("MUSTER_SET");

    return value && !(record && env_was_set(record, name, value));
}

static const struct job *known_job(const struct plugin *plugin)
{
    return plugin->srun.job.good ? &plugin->srun.job.job : NULL;
}

void srun_begin(struct plugin *plugin)
{
    struct srun_line *line = &plugin->srun.line;
    struct srun_order *order = &plugin->srun.order;
    const char *file;
    struct error err;

    if (srun_line_own(line, &err) < 0)
        slurm_spank_log("muster: warning: srun's command line cannot be read: %s; ranks are neither ordered nor bound",
                        err.text);
    if (!is_requested(line))
        return;
    plugin->plan.user_binds =
        line->binds || getenv("SLURM_CPU_BIND") || getenv("SLURM_HINT") || getenv("SLURM_THREADS_PER_CORE");
    file = line->known ? find_job_file(line) : NULL;
    if (file && file[0]) {
        read_job(plugin, file);
        if (!plugin->srun.job.good)
            return;
    }
    *order = (struct srun_order){.job = known_job(plugin), .topology = plugin->site.topology};
    srun_order_begin(order, line, is_users("MASTER_ADDR"), &plugin->plan);
}

/* ---- the options are known --------------------------------------------------------------------------------------- */

/*
 * srun sets SLURM_CPUS_PER_TASK only if it was given --cpus-per-task, and else leaves sbatch's value there. It has read
 * its environment by now: with the variable removed, srun_step sees whether srun has set it.
 */
static void hide_outer_cpus(char *outer, size_t size)
{
    const char *value = getenv("SLURM_CPUS_PER_TASK");

    if (!value || strlen(value) >= size)
        return;
    snprintf(outer, size, "%s", value);
    unsetenv("SLURM_CPUS_PER_TASK");
}

static void restore_outer_cpus(struct plugin *plugin)
{
    const char *outer = plugin->srun.outer_cpus;

    if (!outer[0] || getenv("SLURM_CPUS_PER_TASK"))
        return;
    setenv("SLURM_CPUS_PER_TASK", outer, 1);
    plugin->plan.cpus_inherited = true;
}

static void hand_over(const struct step_plan *plan)
{
    struct error err;
    char *text = step_plan_text(plan, &err);

    if (!text || setenv(STEP_PLAN_NAME, text, 1) < 0)
        slurm_spank_log("muster: warning: %s; the nodes get no plan of the step", text ? "no memory" : err.text);
    free(text);
}

/*
 * With LaunchParameters=use_interactive_step, salloc's shell is that of a hidden `srun --interactive` in the job, whose
 * end would be the job's. Behind an option that srun_line.h does not know, --interactive may be the program's: then
 * srun_step, which knows the step's id, decides. It cannot decide every time: a step whose srun ends there holds its
 * CPUs until the job ends.
 */
static bool may_be_interactive(const struct srun_line *line)
{
    return line->interactive && getenv("SLURM_JOB_ID");
}

void srun_check(struct plugin *plugin)
{
    struct job_once *once = &plugin->srun.job;
    const char *outer = getenv("MUSTER_JOB");

    hide_outer_cpus(plugin->srun.outer_cpus, sizeof plugin->srun.outer_cpus);
    plugin->srun.own_job = !getenv("SLURM_JOB_ID") && !getenv("SLURM_JOBID") && !plugin->srun.line.job;
    if (!plugin->request.file[0] && outer)
        snprintf(plugin->request.file, sizeof plugin->request.file, "%s", outer);
    if (plugin->request.file[0])
        read_job(plugin, plugin->request.file);
    if (once->read && !once->good && !may_be_interactive(&plugin->srun.line))
        refuse_job_file(&once->err);
    plugin->srun.order.job = known_job(plugin);
    if (once->good)
        setenv("MUSTER_JOB", plugin->plan.job_file, 1);
    hand_over(&plugin->plan); /* all that the other components of a heterogeneous step get */
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

/* The address of rank 0's node, and of one other; the node's name if slurmctld does not give the address. */
static void plan_addresses(struct step_plan *plan, struct step_layout *layout)
{
    struct error err;

    if (step_layout_find_head(layout, &err) < 0)
        slurm_spank_log("muster: warning: %s; MASTER_ADDR is its name", err.text);
    snprintf(plan->head, sizeof plan->head, "%s", layout->head);
    plan->cpus_are_cores = layout->cpus_are_cores;
    plan->head_node = (unsigned)(step_layout_node_of_rank_0(layout) - layout->nodes);
    step_layout_find_peer(layout, plan->peer, sizeof plan->peer);
}

/* That a port is free here matters only if rank 0 will listen here. */
static void plan_port(struct step_plan *plan, const struct step_layout *layout)
{
    char host[STEP_NODE_NAME_SIZE] = "";

    gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = '\0';
    if (strcmp(host, step_layout_node_of_rank_0(layout)->name) == 0)
        plan->port = port_choose(layout->job_id, layout->step_id, port_is_free, NULL);
}

/*
 * slurm.conf as srun has it in memory: configless, it has no file of it. Slurm's headers declare the type only. Weak:
 * without it the plugin still loads.
 */
extern slurm_conf_t slurm_conf __attribute__((weak));

static void warn_of_timeout(int epilog_seconds)
{
    int timeout = NO_VAL16; /* Slurm's value for none */
    char warning[512];

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
    if (&slurm_conf)
        timeout = slurm_conf.epilog_timeout;
#else
    if (&slurm_conf)
        timeout = slurm_conf.prolog_epilog_timeout;
#endif
    epilog_timeout_fit(epilog_seconds, timeout < NO_VAL16 ? timeout : EPILOG_NO_TIMEOUT, warning, sizeof warning);
    if (warning[0])
        plugin_print(warning);
}

/* Returns the exit code for srun if a node is bad, else 0. */
static unsigned check_nodes(const struct plugin *plugin, const struct step_layout *layout)
{
    const char *program = plugin->site.preflight;
    const struct preflight preflight = {
        .program = program ? program : PREFLIGHT_PATH,
        .layout = layout,
        .job = known_job(plugin),
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

static void plan_step(struct plugin *plugin, uint32_t job_id, uint32_t step_id)
{
    struct srun_order *order = &plugin->srun.order;
    struct step_plan *plan = &plugin->plan;
    struct error err;
    struct step_layout *layout = step_layout_create(job_id, step_id, &err);

    if (!layout) {
        slurm_spank_log("muster: warning: %s; MASTER_ADDR is the first node's name", err.text);
        return;
    }
    plan_addresses(plan, layout);
    plan_port(plan, layout);
    srun_order_step(order, layout, plan);
    if (plugin->request.report) {
        srun_order_report(order, layout, plan, plugin->request.json, plugin_print);
        warn_of_timeout(plugin->site.epilog_seconds);
    }
    if (plugin->request.preflight)
        plan->refused = check_nodes(plugin, layout);
    step_layout_destroy(layout);
}

void srun_step(struct plugin *plugin, spank_t spank)
{
    const struct job_once *once = &plugin->srun.job;
    uint32_t job_id, step_id;
    bool known = spank_get_item(spank, S_JOB_ID, &job_id) == ESPANK_SUCCESS &&
                 spank_get_item(spank, S_JOB_STEPID, &step_id) == ESPANK_SUCCESS;
    bool has_ranks = !known || step_id < SLURM_MAX_NORMAL_STEP_ID;

    srun_order_close(&plugin->srun.order, &plugin->plan);
    restore_outer_cpus(plugin);
    if (once->read && !once->good && has_ranks)
        refuse_job_file(&once->err);
    if (once->read && !once->good)
        warn_of_job_file(&once->err);
    if (!has_ranks)
        return;
    plugin->plan.complete = true;
    if (known)
        plan_step(plugin, job_id, step_id);
    else
        slurm_spank_log("muster: warning: Slurm does not give the step's id; MASTER_ADDR is the first node's name");
    hand_over(&plugin->plan);
}

/* On a dead node not even a task that ends at once can be started; srun would end with a code of its own. */
void srun_end(const struct plugin *plugin)
{
    if (!plugin->plan.refused)
        return;
    fflush(NULL);
    _exit((int)plugin->plan.refused);
}

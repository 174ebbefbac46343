/*
 * spank_step.c - what the plugin does in slurmstepd (plugin.h says when). It reads the node once, before the tasks are
 * forked; each task then plans for its own rank (rank_plan.h) and applies that to itself, as the user.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "common/error.h"
#include "common/job.h"
#include "srun-plugin/layout.h"
#include "srun-plugin/plugin.h"
#include "srun-plugin/rank_plan.h"
#include "srun-plugin/report.h"
#include "srun-plugin/report_node.h"

/* Found by step_look; the tasks have a copy, as forks of slurmstepd. */
static struct look look;
static struct handoff handoff;

/* ---- what Slurm says --------------------------------------------------------------------------------------------- */

/* A value that does not fit is cut, and is set all the same. */
static bool look_up(const char *name, char *value, size_t size, void *arg)
{
    spank_err_t rc = spank_getenv((spank_t)arg, name, value, (int)size);

    return rc == ESPANK_SUCCESS || rc == ESPANK_NOSPACE;
}

/* The whole of a value, however long, to be freed; NULL when it is not set. */
static char *look_up_whole(spank_t spank, const char *name)
{
    spank_err_t rc = ESPANK_NOSPACE;
    char *value = NULL;

    for (int size = ENV_VALUE_SIZE; rc == ESPANK_NOSPACE && size < INT_MAX / 2; size *= 2) {
        free(value);
        value = malloc((size_t)size);
        if (!value)
            return NULL;
        rc = spank_getenv(spank, name, value, size);
    }
    if (rc == ESPANK_SUCCESS)
        return value;
    free(value);
    return NULL;
}

/* Items that this Slurm does not have stay 0. */
static uint32_t item(spank_t spank, spank_item_t which)
{
    uint32_t value = 0;

    return spank_get_item(spank, which, &value) == ESPANK_SUCCESS ? value : 0;
}

/* SPANK knows the step's only. Of a heterogeneous job all that matters is that there are more. */
static unsigned job_nodes(spank_t spank, unsigned step_nodes)
{
    char text[32];
    unsigned nodes = look_up("SLURM_JOB_NUM_NODES", text, sizeof text, spank) ? (unsigned)strtoul(text, NULL, 10) : 0;

    if (nodes < step_nodes)
        nodes = step_nodes;
    return look_up("SLURM_HET_SIZE", text, sizeof text, spank) ? nodes + 1 : nodes;
}

/* Batch scripts, salloc's interactive steps and the external step have no ranks. */
static bool has_ranks(spank_t spank)
{
    return item(spank, S_JOB_STEPID) < SLURM_MAX_NORMAL_STEP_ID;
}

/* ---- once a node ------------------------------------------------------------------------------------------------- */

/* Where srun could tell nothing, the first node's name is the best that is known. */
static void find_handoff(spank_t spank)
{
    char *text = look_up_whole(spank, HANDOFF_NAME), *nodes, components[32];

    handoff_read(text, &handoff);
    free(text);
    if (handoff.head[0])
        return;
    /* Of a heterogeneous step Slurm lets srun speak to one component, and names the nodes of all in the list. */
    if (look_up("SLURM_HET_SIZE", components, sizeof components, spank)) {
        if (item(spank, S_JOB_NODEID) == 0)
            plugin_print(
                "muster: warning: this component of a heterogeneous step has no MASTER_ADDR, and is not bound");
        return;
    }
    nodes = look_up_whole(spank, "SLURM_STEP_NODELIST"); /* of a large step, longer than any fixed size */
    if (nodes && layout_first_name(nodes, handoff.head, sizeof handoff.head) < 0)
        handoff.head[0] = '\0';
    free(nodes);
}

static void keep_silent(const char *line)
{
    (void)line;
}

void step_look(spank_t spank)
{
    uint32_t node = item(spank, S_JOB_NODEID);
    struct look_ask ask = {.handoff = &handoff, .describe = wish.report, .shipped = site.profiles, .site = site.fabric};

    if (!has_ranks(spank))
        return;
    find_handoff(spank);
    ask.head_is_here = node == handoff.head_node;
    ask.complain = node == 0 ? plugin_print : keep_silent; /* what the site did wrong is wrong on every node */
    look_around(&ask, &look);
}

/* ---- each task --------------------------------------------------------------------------------------------------- */

static struct task describe_task(spank_t spank)
{
    uint16_t node_cpus = 0;

    spank_get_item(spank, S_JOB_NCPUS, &node_cpus);
    return (struct task){
        .job_id = item(spank, S_JOB_ID),
        .step_id = item(spank, S_JOB_STEPID),
        .nodes = item(spank, S_JOB_NNODES),
        .node = item(spank, S_JOB_NODEID),
        .ranks = item(spank, S_JOB_TOTAL_TASK_COUNT),
        .rank = item(spank, S_TASK_GLOBAL_ID),
        .local_ranks = item(spank, S_JOB_LOCAL_TASK_COUNT),
        .local_rank = item(spank, S_TASK_ID),
        .cpus_per_task = item(spank, S_STEP_CPUS_PER_TASK),
        .cpus_inherited = handoff.cpus_inherited,
        .node_cpus = node_cpus,
        .head = look.head[0] ? look.head : NULL,
        .port = handoff.port,
        .mapped = handoff.mapped,
    };
}

/* The job file that srun checked; path is PATH_MAX. */
static const char *find_job_file(spank_t spank, char *path)
{
    char *outer = look_up_whole(spank, "MUSTER_JOB");
    const char *file = NULL;

    if (outer && strlen(outer) < PATH_MAX)
        file = strcpy(path, outer);
    else if (!outer && wish.file[0] && realpath(wish.file, path))
        file = path;
    free(outer);
    return file;
}

struct job_variables {
    struct fabric_givens givens;
    const char *file;
    struct error err;
    int rc;
};

static void add_job_variable(const char *name, const char *value, int line, void *arg)
{
    struct job_variables *variables = arg;
    const char *slash = strrchr(variables->file, '/');
    char source[PATH_MAX + 32];

    snprintf(source, sizeof source, "%s:%d", slash ? slash + 1 : variables->file, line);
    variables->rc |= fabric_givens_add(&variables->givens, name, value, source, &variables->err);
}

/* srun could read the file; a node may not see it, or see another. */
static void read_job_variables(const char *file, uint32_t rank, struct fabric_givens *givens)
{
    struct job_variables variables = {.file = file};
    struct job job;

    if (!file)
        return;
    if (job_load(&job, file, NULL, 0, &variables.err) < 0) {
        if (rank == 0)
            slurm_spank_log("muster: warning: %s; the ranks lack its variables", variables.err.text);
        return;
    }
    job_each_variable(&job, add_job_variable, &variables, &variables.err);
    job_destroy(&job);
    *givens = variables.givens;
}

static void read_nccl_conf(spank_t spank, struct fabric_givens *givens)
{
    char file[PATH_MAX], home[PATH_MAX];
    struct error ignored;

    fabric_conf_read(givens, look_up("NCCL_CONF_FILE", file, sizeof file, spank) ? file : NULL,
                     look_up("HOME", home, sizeof home, spank) ? home : NULL, &ignored);
}

static void set_variable(spank_t spank, uint32_t rank, const char *name, const char *value)
{
    if (spank_setenv(spank, name, value, 1) != ESPANK_SUCCESS)
        slurm_spank_log("muster: warning: rank %" PRIu32 ": Slurm did not set %s", rank, name);
}

/* srun cannot take it back from the tasks of its step, whose environment Slurm has copied by then. */
static void forget_outer_map(spank_t spank)
{
    static char record[ENV_VALUE_SIZE];
    char word[ENV_MAP_WORD];

    if (!handoff.mapped && look_up("MUSTER_RANK_MAP", word, sizeof word, spank) &&
        look_up("MUSTER_SET", record, sizeof record, spank) && env_was_set(record, "MUSTER_RANK_MAP", word))
        spank_unsetenv(spank, "MUSTER_RANK_MAP");
}

static void apply(spank_t spank, const struct rank_plan *plan)
{
    uint32_t rank = plan->task.rank;

    if (plan->binds && affinity_set(&plan->bind->ranks[plan->row].cpus) < 0)
        slurm_spank_log("muster: warning: rank %" PRIu32 ": the kernel did not bind it: %m", rank);
    for (size_t i = 0; i < plan->env->count; i++)
        if (plan->env->entries[i].source == ENV_MUSTER)
            set_variable(spank, rank, plan->env->entries[i].name, plan->env->entries[i].value);
    for (size_t i = 0; plan->fabric && i < plan->fabric->count; i++)
        if (fabric_sets(&plan->fabric->variables[i]))
            set_variable(spank, rank, plan->fabric->variables[i].name, plan->fabric->variables[i].value);
    spank_unsetenv(spank, HANDOFF_NAME); /* has arrived; an srun inside this step writes its own */
    if (handoff.ordered) {
        spank_unsetenv(spank, "SLURM_HOSTFILE");
        spank_unsetenv(spank, "SLURM_DISTRIBUTION");
    }
}

static void report(spank_t spank, const struct rank_plan *plan)
{
    char name[256], ranks[ENV_VALUE_SIZE];
    const struct report_node node = {
        .name = look_up("SLURMD_NODENAME", name, sizeof name, spank) ? name : "this node",
        .ranks = look_up("SLURM_GTIDS", ranks, sizeof ranks, spank) ? ranks : NULL,
        .node = look.node,
        .plan = plan,
        .json = wish.json,
    };

    if (plan->task.rank == 0 && plan->isolation != ISOLATION_NONE)
        plugin_print(plan->isolation_line);
    if (!wish.report)
        return;
    if (plan->task.local_rank == 0 && report_node_is_due(&node))
        report_node(&node, plugin_print);
    if (plan->task.rank == 0 && wish.json)
        report_variables_json(plan, plugin_print);
    else if (plan->task.rank == 0)
        report_variables(plan, plugin_print);
}

/* The srun of this step found a bad node (preflight/option.h): no program is to start. */
static void heed_preflight(spank_t spank)
{
    char text[64] = "";
    int code;

    if (!look_up(PREFLIGHT_REFUSED, text, sizeof text, spank))
        return;
    code = preflight_refusal(text, item(spank, S_JOB_ID), item(spank, S_JOB_STEPID));
    if (code)
        _exit(code);
    spank_unsetenv(spank, PREFLIGHT_REFUSED);
}

void step_task(spank_t spank)
{
    struct fabric_givens job = {0}, conf = {0};
    char job_file[PATH_MAX], library_path[ENV_VALUE_SIZE];
    struct rank_plan *plan;
    struct rank_ask ask;
    struct error err;

    if (!has_ranks(spank))
        return;
    heed_preflight(spank);
    forget_outer_map(spank);
    ask = (struct rank_ask){.task = describe_task(spank),
                            .look = &look,
                            .user_binds = handoff.user_binds,
                            .may_bind = handoff.here,
                            .cpus_are_cores = handoff.cpus_are_cores,
                            .job = &job,
                            .conf = &conf,
                            .files = fabric_find_file,
                            .environment = look_up,
                            .environment_arg = spank};
    ask.job_nodes = job_nodes(spank, ask.task.nodes);
    ask.task.job_file = find_job_file(spank, job_file);
    if (look_up("LD_LIBRARY_PATH", library_path, sizeof library_path, spank))
        ask.files_arg = library_path;
    ask.affinity_known = affinity_read(&ask.affinity, look.node ? &look.node->cpus : NULL) == 0;
    if (look.node) {
        node_read_own(look.node, "/");
        if (ask.affinity_known)
            look.node->allowed = ask.affinity.all;
    }
    read_job_variables(ask.task.job_file, ask.task.rank, &job);
    read_nccl_conf(spank, &conf);
    plan = rank_plan_create(&ask, &err);
    if (plan) {
        apply(spank, plan);
        report(spank, plan);
    } else {
        slurm_spank_log("muster: warning: rank %" PRIu32 ": %s; it has no variables of muster's", ask.task.rank,
                        err.text);
    }
    rank_plan_destroy(plan);
    fabric_givens_clear(&job);
    fabric_givens_clear(&conf);
}

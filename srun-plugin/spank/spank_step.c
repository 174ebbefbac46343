/*
 * spank_step.c - what the plugin does in slurmstepd (plugin.h). Once a node, before the tasks are forked, it reads the
 * node, what srun has handed over, and nccl.conf; each task then plans for its own rank (rank_plan.h) and applies that
 * to itself. All of it as the user.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "srun-plugin/spank/rank_plan.h"
#include "srun-plugin/spank/report.h"
#include "srun-plugin/spank/report_node.h"
#include "srun-plugin/spank/plugin.h"
#include "srun-plugin/place/step_layout.h"

/* ---- Slurm's items and variables --------------------------------------------------------------------------------------------- */

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
static uint32_t get_item(spank_t spank, spank_item_t which)
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
    return get_item(spank, S_JOB_STEPID) < SLURM_MAX_NORMAL_STEP_ID;
}

/* ---- once a node ------------------------------------------------------------------------------------------------- */

static void read_plan(spank_t spank, struct step_plan *plan)
{
    char *text = look_up_whole(spank, STEP_PLAN_NAME);
    struct error err;

    if (text && step_plan_read(text, plan, &err) < 0 && get_item(spank, S_JOB_NODEID) == 0) {
        error_tame(err.text);
        slurm_spank_log("muster: warning: %s", err.text);
    }
    free(text);
}

/* If srun could not tell it, the first node's name is the best that is known. */
static void find_head(spank_t spank, struct step_plan *plan)
{
    char *nodes, components[32];

    if (plan->head[0])
        return;
    /* Of a heterogeneous step Slurm lets srun speak to one component, and names the nodes of all in the list. */
    if (look_up("SLURM_HET_SIZE", components, sizeof components, spank)) {
        if (get_item(spank, S_JOB_NODEID) == 0)
            plugin_print(
                "muster: warning: this component of a heterogeneous step has no MASTER_ADDR, and is not bound");
        return;
    }
    nodes = look_up_whole(spank, "SLURM_STEP_NODELIST"); /* of a large step, longer than any fixed size */
    if (nodes && step_layout_first_name(nodes, plan->head, sizeof plan->head) < 0)
        plan->head[0] = '\0';
    free(nodes);
}

static void take_job_variables(struct plugin *plugin)
{
    const struct step_plan *plan = &plugin->plan;
    const char *slash = strrchr(plan->job_file, '/');
    char source[PATH_MAX + 32];
    struct error err = {0};

    for (size_t i = 0; i < plan->variable_count; i++) {
        const struct step_variable *variable = &plan->variables[i];

        snprintf(source, sizeof source, "%s:%d", slash ? slash + 1 : plan->job_file, variable->line);
        if (fabric_givens_add(&plugin->node.job, variable->name, variable->value, source, &err) < 0)
            slurm_spank_log("muster: warning: %s; the ranks lack %s", err.text, variable->name);
    }
}

static void read_nccl_conf(spank_t spank, struct fabric_givens *givens)
{
    char file[PATH_MAX], home[PATH_MAX];
    struct error ignored;

    fabric_conf_read(givens, look_up("NCCL_CONF_FILE", file, sizeof file, spank) ? file : NULL,
                     look_up("HOME", home, sizeof home, spank) ? home : NULL, &ignored);
}

static void print_nothing(const char *line)
{
    (void)line;
}

void step_node(struct plugin *plugin, spank_t spank)
{
    uint32_t node = get_item(spank, S_JOB_NODEID);
    struct node_view_request ask = {.plan = &plugin->plan,
                                    .describe = plugin->request.report,
                                    .profiles = plugin->site.profiles,
                                    .site = plugin->site.fabric};

    if (!has_ranks(spank))
        return;
    read_plan(spank, &plugin->plan);
    find_head(spank, &plugin->plan);
    take_job_variables(plugin);
    ask.head_is_here = node == plugin->plan.head_node;
    ask.warn = node == 0 ? plugin_print : print_nothing; /* what the site did wrong is wrong on every node */
    node_view_read(&ask, &plugin->node.view);
}

/* ---- each task --------------------------------------------------------------------------------------------------- */

static struct task describe_task(const struct plugin *plugin, spank_t spank)
{
    const struct step_plan *plan = &plugin->plan;
    uint16_t node_cpus = 0;

    spank_get_item(spank, S_JOB_NCPUS, &node_cpus);
    return (struct task){
        .job_id = get_item(spank, S_JOB_ID),
        .step_id = get_item(spank, S_JOB_STEPID),
        .nodes = get_item(spank, S_JOB_NNODES),
        .node = get_item(spank, S_JOB_NODEID),
        .ranks = get_item(spank, S_JOB_TOTAL_TASK_COUNT),
        .rank = get_item(spank, S_TASK_GLOBAL_ID),
        .local_ranks = get_item(spank, S_JOB_LOCAL_TASK_COUNT),
        .local_rank = get_item(spank, S_TASK_ID),
        .cpus_per_task = get_item(spank, S_STEP_CPUS_PER_TASK),
        .cpus_inherited = plan->cpus_inherited,
        .node_cpus = node_cpus,
        .head = plugin->node.view.head[0] ? plugin->node.view.head : NULL,
        .port = plan->port,
        .mapped = plan->by_map,
    };
}

/* The user may have named another one by srun --export. NULL for none. */
static char *find_job_file(const struct step_plan *plan, spank_t spank)
{
    char *file = look_up_whole(spank, "MUSTER_JOB");

    return file || !plan->job_file[0] ? file : strdup(plan->job_file);
}

static void set_variable(spank_t spank, uint32_t rank, const char *name, const char *value)
{
    if (spank_setenv(spank, name, value, 1) != ESPANK_SUCCESS)
        slurm_spank_log("muster: warning: rank %" PRIu32 ": Slurm did not set %s", rank, name);
}

/* srun cannot take it back from the tasks of its step, whose environment Slurm has copied by then. */
static void remove_outer_map(const struct step_plan *plan, spank_t spank)
{
    char record[ENV_VALUE_SIZE], start[ENV_MAP_WORD];

    if (!plan->by_map && look_up("MUSTER_RANK_MAP", start, sizeof start, spank) &&
        look_up("MUSTER_SET", record, sizeof record, spank) && env_was_set(record, "MUSTER_RANK_MAP", start))
        spank_unsetenv(spank, "MUSTER_RANK_MAP");
}

static void apply_plan(const struct rank_plan *plan, spank_t spank)
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
}

static void report_rank(const struct plugin *plugin, const struct rank_plan *plan, spank_t spank)
{
    char name[256], ranks[ENV_VALUE_SIZE];
    const struct report_node node = {
        .name = look_up("SLURMD_NODENAME", name, sizeof name, spank) ? name : "this node",
        .ranks = look_up("SLURM_GTIDS", ranks, sizeof ranks, spank) ? ranks : NULL,
        .node = plugin->node.view.node,
        .plan = plan,
        .json = plugin->request.json,
    };

    if (plan->task.rank == 0 && plan->isolation != ISOLATION_NONE)
        plugin_print(plan->isolation_line);
    if (!plugin->request.report)
        return;
    if (plan->task.local_rank == 0 && report_node_is_due(&node))
        report_node(&node, plugin_print);
    if (plan->task.rank == 0 && plugin->request.json)
        report_variables_json(plan, plugin_print);
    else if (plan->task.rank == 0)
        report_variables(plan, plugin_print);
}

void step_task(struct plugin *plugin, spank_t spank)
{
    const struct node_view *view = &plugin->node.view;
    char library_path[ENV_VALUE_SIZE], *job_file;
    struct rank_plan *plan;
    struct rank_ask ask;
    struct error err;

    spank_unsetenv(spank, STEP_PLAN_NAME); /* step_node has read it; an srun inside this step writes its own */
    if (!has_ranks(spank))
        return;
    if (plugin->plan.refused)
        _exit((int)plugin->plan.refused);
    if (plugin->plan.by_hostfile) {
        spank_unsetenv(spank, "SLURM_HOSTFILE");
        spank_unsetenv(spank, "SLURM_DISTRIBUTION");
    }
    remove_outer_map(&plugin->plan, spank);
    read_nccl_conf(spank, &plugin->node.conf); /* not in step_node: a file system that hangs must hold a task only */
    ask = (struct rank_ask){.task = describe_task(plugin, spank),
                            .view = view,
                            .user_binds = plugin->plan.user_binds,
                            .may_bind = plugin->plan.complete,
                            .cpus_are_cores = plugin->plan.cpus_are_cores,
                            .job = &plugin->node.job,
                            .conf = &plugin->node.conf,
                            .files = fabric_find_file,
                            .environment = look_up,
                            .environment_arg = spank};
    ask.job_nodes = job_nodes(spank, ask.task.nodes);
    ask.task.job_file = job_file = find_job_file(&plugin->plan, spank);
    if (look_up("LD_LIBRARY_PATH", library_path, sizeof library_path, spank))
        ask.files_arg = library_path;
    ask.affinity_known = affinity_read(&ask.affinity, view->node ? &view->node->cpus : NULL) == 0;
    if (view->node) {
        node_read_own(view->node, "/");
        if (ask.affinity_known)
            view->node->allowed = ask.affinity.all;
    }
    plan = rank_plan_create(&ask, &err);
    if (plan) {
        apply_plan(plan, spank);
        report_rank(plugin, plan, spank);
    } else {
        slurm_spank_log("muster: warning: rank %" PRIu32 ": %s; muster set none of its variables", ask.task.rank,
                        err.text);
    }
    rank_plan_destroy(plan);
    free(job_file);
}

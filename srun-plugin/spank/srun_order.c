/*
 * srun_order.c - helper of srun: orders the ranks (order.h). Before the step exists, a host file can do it; later only
 * a map, which muster-train reads. After an error the rank order is unchanged, which costs speed only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <slurm/slurm.h>

#include "common/memory_limit.h"
#include "common/mesh.h"
#include "plan/auto.h"
#include "plan/hostlist.h"
#include "srun-plugin/spank/plugin.h"
#include "srun-plugin/spank/report.h"

#define COUNTS_SIZE 4096

/* Without switches every node is as near as every other. */
static void read_switches(struct plugin *plugin)
{
    struct error err;

    if (plugin->srun.switches)
        return;
    plugin->srun.switches = plugin->site.topology ? switch_tree_read_text(plugin->site.topology, &err)
                                                  : switch_tree_slurm_text(getenv("SLURM_JOB_PARTITION"), &err);
    if (plugin->srun.switches)
        return;
    slurm_spank_log("muster: warning: %s; the ranks are placed as if there were no switches", err.text);
    plugin->srun.switches = strdup("");
}

/* The ranks of the step, and the most of a node. False if they cannot be counted: order_create says why. */
static bool count_ranks(const char *nodes, const char *tasks, struct auto_start *start)
{
    struct hostlist *list = hostlist_create(nodes, NULL);
    int *counts = list ? calloc((size_t)list->count + 1, sizeof *counts) : NULL;
    struct error ignored;
    bool counted = counts && hostlist_counts(tasks, counts, list->count, &start->ranks, &ignored) == 0;

    for (int i = 0; counted && i < list->count; i++)
        start->per_node = counts[i] > start->per_node ? counts[i] : start->per_node;
    free(counts);
    hostlist_destroy(list);
    return counted && start->per_node > 0;
}

/*
 * The job with its mesh. For parallel.mesh = "auto" that is a copy, with what is chosen for so many ranks on the nodes,
 * "8(x4)". If the machine is not known, or if nothing fits, the trainer decides: it knows its GPUs and --set.
 */
static const struct job *choose_mesh(struct plugin *plugin, const struct job *job, const char *nodes, const char *tasks)
{
    const char *machine = job && job->parallel.machine[0] ? job->parallel.machine : plugin->site.machine;
    struct auto_start start = {.machine = machine, .node_bytes = (double)memory_asked()};
    struct auto_choice choice = {.text = ""};
    struct job *chosen = &plugin->srun.chosen;
    struct error ignored;

    if (!job || job->parallel.mesh != MESH_AUTO || !machine || !count_ranks(nodes, tasks, &start))
        return job;
    if (chosen->text && plugin->srun.ranks == start.ranks && plugin->srun.per_node == start.per_node)
        return chosen;
    job_destroy(chosen);
    plugin->srun.ranks = start.ranks;
    plugin->srun.per_node = start.per_node;
    if (job_parse(chosen, job->text, plugin->srun.file.path, NULL, 0, &ignored) == 0 &&
        auto_choose(&choice, job, &start, &ignored) == 0 &&
        job_override(chosen, plugin->srun.file.path, choice.text, &ignored) < 0)
        choice.text[0] = '\0';
    auto_write(plugin->handoff.mesh, machine, &choice);
    return chosen->text ? chosen : job;
}

static struct order *make_order(struct plugin *plugin, const char *nodes, const char *tasks, const struct job *job,
                                struct error *err)
{
    struct order_request request = {
        .job = choose_mesh(plugin, job, nodes, tasks), .nodes = nodes, .tasks_per_node = tasks};

    read_switches(plugin);
    request.topology = plugin->srun.switches;
    request.where = plugin->site.topology ? plugin->site.topology : "slurmctld";
    return order_create(&request, err);
}

/* ---- before the step exists -------------------------------------------------------------------------------------- */

/* Batch scripts and interactive shells have the highest step ids, above SLURM_MAX_NORMAL_STEP_ID. */
static bool inside_a_step(void)
{
    const char *step = getenv("SLURM_STEP_ID");

    return step && strtoul(step, NULL, 10) < SLURM_MAX_NORMAL_STEP_ID;
}

static bool any_set(const char *const *names)
{
    for (; *names; names++)
        if (getenv(*names))
            return true;
    return false;
}

/*
 * The file is in memory: srun may end before the plugin is called again (a bad option, a signal), and would leave a
 * file on a disk behind. srun reads it in this process, before it starts another one, so the descriptor is still valid.
 * Returns the descriptor, or -1.
 */
static int write_hostfile(const struct order *order)
{
    char *text = order_hostfile(order, NULL);
    int fd = text ? memfd_create("muster-hosts", MFD_CLOEXEC) : -1;

    if (fd >= 0 && write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        close(fd);
        fd = -1;
    }
    free(text);
    return fd;
}

/* Whether the user has chosen the nodes of ranks. */
static bool user_places(const struct srun_line *line)
{
    static const char *const placing[] = {"SLURM_DISTRIBUTION",
                                          "SLURM_HOSTFILE",
                                          "SLURM_HET_SIZE",
                                          "SLURM_RELATIVE",
                                          "SLURM_NTASKS_PER_CORE",
                                          "SLURM_NTASKS_PER_GPU",
                                          "SLURM_NTASKS_PER_SOCKET",
                                          "SLURM_NTASKS_PER_TRES",
                                          "SLURM_SPREAD_JOB",
                                          "SLURM_SRUN_MULTI",
                                          "SLURM_CONSTRAINT",
                                          "MUSTER_RANK_MAP",
                                          NULL};

    return line->places || any_set(placing);
}

/*
 * Predicts how many ranks Slurm will start on each node of the job, into `counts`. False if it cannot, if the step may
 * not use all nodes of the job, or if there is only one node. Without a number of tasks Slurm starts one on each node;
 * if the CPUs or other resources of a task are given, it starts as many as have room, which is not predicted.
 */
static bool predict_counts(const struct srun_line *line, char *counts, size_t size)
{
    static const char *const sharing[] = {"SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", NULL};
    const char *nodes = getenv("SLURM_JOB_NUM_NODES"), *tasks = line->tasks ? line->tasks : getenv("SLURM_NTASKS");
    const char *each = line->tasks_per_node ? line->tasks_per_node : getenv("SLURM_NTASKS_PER_NODE");

    if (!tasks)
        tasks = getenv("SLURM_NPROCS");
    if (!tasks && !each && (line->shares || any_set(sharing)))
        return false;
    return line->known && !line->nodes && getenv("SLURM_JOB_NODELIST") && nodes && atoi(nodes) > 1 &&
           !inside_a_step() &&
           order_counts(atoi(nodes), tasks, each, getenv("SLURM_TASKS_PER_NODE"), counts, size) == 0;
}

void srun_order_begin(struct plugin *plugin)
{
    char counts[COUNTS_SIZE], path[64];
    struct error err;
    int fd;

    plugin->srun.user_places = user_places(&plugin->srun.line);
    if (plugin->srun.user_places || !predict_counts(&plugin->srun.line, counts, sizeof counts))
        return;
    plugin->srun.order = make_order(plugin, getenv("SLURM_JOB_NODELIST"), counts, plugin->srun.job, &err);
    if (!plugin->srun.order && !plugin->srun.job) /* with a job file srun_order_step tries again, and warns */
        slurm_spank_log("muster: warning: %s; the rank order is unchanged", err.text);
    if (!plugin->srun.order || plugin->srun.order->keeps_slurm_order ||
        (getenv("MASTER_ADDR") && plugin->srun.order->node_of[0] != 0) || (fd = write_hostfile(plugin->srun.order)) < 0)
        return;
    plugin->srun.hostfile = fd;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    setenv("SLURM_HOSTFILE", path, 1);
    setenv("SLURM_DISTRIBUTION", "arbitrary", 1);
    plugin->handoff.by_hostfile = true;
}

void srun_order_close(struct plugin *plugin)
{
    if (!plugin->handoff.by_hostfile)
        return;
    close(plugin->srun.hostfile);
    unsetenv("SLURM_HOSTFILE");
    unsetenv("SLURM_DISTRIBUTION");
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

static struct order *order_of_layout(struct plugin *plugin, const struct step_layout *layout, const struct job *job,
                                     struct error *err)
{
    struct order *order = NULL;
    char *counts = NULL;
    size_t size;
    FILE *out = open_memstream(&counts, &size);

    for (size_t i = 0; out && i < layout->node_count; i++)
        fprintf(out, "%s%d", i ? "," : "", layout->first[i + 1] - layout->first[i]);
    if (out && fclose(out) == 0)
        order = make_order(plugin, layout->list, counts, job, err);
    else
        error_set(err, CODE_IO, "no memory for %zu nodes", layout->node_count);
    free(counts);
    return order;
}

/* Whether each rank is on the node that the host file names for it. */
static bool is_followed(const struct order *order, const struct step_layout *layout)
{
    bool followed = (int)layout->rank_count == mesh_world(&order->mesh);

    for (uint32_t rank = 0; followed && rank < layout->rank_count; rank++)
        followed =
            strcmp(order->switch_tree->nodes[order->node_of[rank]], layout->hosts->names[layout->node_of[rank]]) == 0;
    return followed;
}

static bool set_map(const struct order *order, const struct step_layout *layout, struct error *err)
{
    int *map = error_calloc(layout->rank_count + 1, sizeof *map, err);
    char *text = NULL;

    if (map && order_rank_map(order, layout->node_of, map, err) == 0)
        text = rank_map_text(map, (int)layout->rank_count, err);
    if (text)
        setenv(RANK_MAP_NAME, text, 1);
    free(map);
    free(text);
    return text != NULL;
}

void srun_order_step(struct plugin *plugin, const struct step_layout *layout)
{
    struct error err;

    if (getenv("MUSTER_RANK_MAP")) /* the user's: env_forget_outer has removed that of a step around this one */
        return;
    unsetenv(RANK_MAP_NAME);
    if (plugin->handoff.by_hostfile) {
        if (!is_followed(plugin->srun.order, layout))
            slurm_spank_log(
                "muster: warning: Slurm did not place the ranks by the plugin's host file; this costs speed only");
        return;
    }
    order_destroy(plugin->srun.order);
    plugin->srun.order = NULL;
    if (!plugin->srun.job || plugin->srun.user_places || layout->node_count < 2)
        return;
    plugin->srun.order = order_of_layout(plugin, layout, plugin->srun.job, &err);
    if (plugin->srun.order && !plugin->srun.order->keeps_slurm_order)
        plugin->handoff.by_map = set_map(plugin->srun.order, layout, &err);
    if (!plugin->srun.order || (!plugin->srun.order->keeps_slurm_order && !plugin->handoff.by_map))
        slurm_spank_log("muster: warning: %s; the rank order is unchanged", err.text);
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

/* The order that the step has, with the mesh that goes with it; NULL if it is not known. */
static struct order *find_order(struct plugin *plugin, const struct step_layout *layout)
{
    struct error ignored;
    struct order *order = order_of_layout(plugin, layout, plugin->srun.job, &ignored);

    if (!order && plugin->srun.job) /* its mesh does not fit these ranks, as the trainer will say */
        order = order_of_layout(plugin, layout, NULL, &ignored);
    if (order)
        order_replace(order, layout->node_of);
    return order;
}

void srun_order_report(struct plugin *plugin, const struct step_layout *layout)
{
    /* With a map, the layout's ranks are Slurm's and not the mesh's. Then the order of srun_order_step stays. */
    struct order *made = plugin->handoff.by_map ? NULL : find_order(plugin, layout);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (out) {
        report_step(layout, made ? made : plugin->srun.order, &plugin->handoff, plugin->request.json, out);
        fclose(out);
    }
    plugin_print_lines(text);
    order_destroy(made);
}

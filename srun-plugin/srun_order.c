#include "srun-plugin/srun_order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "common/rank_map.h"
#include "srun-plugin/cluster_slurm.h"
#include "srun-plugin/env.h"
#include "srun-plugin/order.h"
#include "srun-plugin/place_apply.h"
#include "srun-plugin/report_step.h"

#define COUNTS_SIZE 4096

static struct {
    char *switches;      /* text for cluster.h, once it was asked for; NULL before, or where nobody tells */
    const char *where;   /* it is from */
    bool asked;          /* for the switches */
    bool user_places;    /* the user said which node gets which rank, or may have */
    struct order *order; /* what the host file says; else what the map leads to; NULL where Slurm's order stays */
    bool by_hostfile, by_map;
    int hostfile; /* its descriptor; -1 for none */
} state = {.hostfile = -1};

/* ---- what srun has at hand --------------------------------------------------------------------------------------- */

/* Asked for once an srun. Without switches every node is as near as every other. */
static void find_switches(const char *topology)
{
    struct error err;

    if (state.asked)
        return;
    state.asked = true;
    state.where = topology ? topology : "slurmctld";
    state.switches = topology ? cluster_read_text(topology, &err) : cluster_slurm_text(&err);
    if (!state.switches)
        slurm_spank_log("muster: warning: %s; the ranks are placed as if there were no switches", err.text);
}

/* What is wrong with it is srun_check's to say. */
static bool load_job(const char *file, struct job *job)
{
    struct error err;

    return file && file[0] && job_load(job, file, NULL, 0, &err) == 0;
}

static struct order *make_order(const char *nodes, const char *tasks, const char *job_file, const char *topology,
                                struct error *err)
{
    struct order_ask ask = {.nodes = nodes, .tasks = tasks};
    struct order *order;
    struct job job;

    find_switches(topology);
    ask.topology = state.switches;
    ask.where = state.where;
    ask.job = load_job(job_file, &job) ? &job : NULL;
    order = order_create(&ask, err);
    if (ask.job)
        job_destroy(&job);
    return order;
}

/* ---- before launch ----------------------------------------------------------------------------------------------- */

/* Slurm numbers the steps of batch scripts and interactive shells from the top. */
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
 * In memory: srun may end before anything of ours is called again (a bad option, a signal), and would leave a file
 * behind. It reads the list in this same process, before it starts any other.
 */
static bool write_hostfile(const struct order *order)
{
    struct error err;
    char *text = place_hostfile(order->cluster, order->nodes, mesh_world(&order->mesh), &err);
    int fd = text ? memfd_create("muster-hosts", MFD_CLOEXEC) : -1;

    if (fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text))
        state.hostfile = fd;
    else if (fd >= 0)
        close(fd);
    free(text);
    return state.hostfile >= 0;
}

bool srun_order_begin(const struct srun_line *line, const char *job_file, bool head_is_users, const char *topology)
{
    static const char *const placing[] = {"SLURM_DISTRIBUTION",      "SLURM_HOSTFILE",
                                          "SLURM_HET_SIZE",          "SLURM_RELATIVE",
                                          "SLURM_NTASKS_PER_CORE",   "SLURM_NTASKS_PER_GPU",
                                          "SLURM_NTASKS_PER_SOCKET", "SLURM_SPREAD_JOB",
                                          "SLURM_SRUN_MULTI",        NULL};
    const char *nodes = getenv("SLURM_JOB_NODELIST"), *count = getenv("SLURM_JOB_NUM_NODES");
    char counts[COUNTS_SIZE], path[64];
    struct error err;

    state.user_places = line->places || any_set(placing);
    if (!line->known || state.user_places || line->nodes || !nodes || !count || atoi(count) < 2 || inside_a_step() ||
        order_counts(atoi(count), line->tasks ? line->tasks : getenv("SLURM_NTASKS"),
                     line->tasks_a_node ? line->tasks_a_node : getenv("SLURM_NTASKS_PER_NODE"),
                     getenv("SLURM_TASKS_PER_NODE"), counts, sizeof counts) < 0)
        return false;
    state.order = make_order(nodes, counts, job_file, topology, &err);
    if (!state.order && !(job_file && job_file[0])) /* else srun_order_step tries again, and tells */
        slurm_spank_log("muster: warning: %s; the ranks stay as Slurm has them", err.text);
    if (!state.order || state.order->as_slurm || (head_is_users && state.order->nodes[0] != 0) ||
        !write_hostfile(state.order))
        return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", state.hostfile);
    setenv("SLURM_HOSTFILE", path, 1);
    setenv("SLURM_DISTRIBUTION", "arbitrary", 1);
    return state.by_hostfile = true;
}

void srun_order_clean(void)
{
    if (state.hostfile >= 0)
        close(state.hostfile);
    state.hostfile = -1;
    if (!state.by_hostfile)
        return;
    unsetenv("SLURM_HOSTFILE");
    unsetenv("SLURM_DISTRIBUTION");
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

/* "n1,n2" and "8,8" of a layout, to be freed; NULL without memory. */
static char *list_nodes(const struct layout *layout, bool counts)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    for (size_t i = 0; out && i < layout->count; i++) {
        if (counts)
            fprintf(out, "%s%zu", i ? "," : "", layout->nodes[i].count);
        else
            fprintf(out, "%s%s", i ? "," : "", layout->nodes[i].name);
    }
    if (out)
        fclose(out);
    return text;
}

static struct order *order_of_layout(const struct layout *layout, const char *job_file, const char *topology,
                                     struct error *err)
{
    char *nodes = list_nodes(layout, false), *counts = list_nodes(layout, true);
    struct order *order = NULL;

    if (nodes && counts)
        order = make_order(nodes, counts, job_file, topology, err);
    else
        error_set(err, CODE_IO, "no memory for %zu nodes", layout->count);
    free(nodes);
    free(counts);
    return order;
}

/* The node, by its place in the layout, of each of Slurm's ranks. */
static int *nodes_of_ranks(const struct layout *layout)
{
    int *nodes = calloc(layout->ranks ? layout->ranks : 1, sizeof *nodes);

    for (size_t i = 0; nodes && i < layout->count; i++)
        for (size_t r = 0; r < layout->nodes[i].count; r++)
            if (layout->nodes[i].ranks[r] < layout->ranks)
                nodes[layout->nodes[i].ranks[r]] = (int)i;
    return nodes;
}

/* Did each rank come to the node that the host file names for it? */
static bool came_about(const struct order *order, const struct layout *layout)
{
    if ((int)layout->ranks != mesh_world(&order->mesh))
        return false;
    for (size_t i = 0; i < layout->count; i++)
        for (size_t r = 0; r < layout->nodes[i].count; r++) {
            uint32_t rank = layout->nodes[i].ranks[r];

            if (rank >= layout->ranks || strcmp(order->cluster->nodes[order->nodes[rank]], layout->nodes[i].name) != 0)
                return false;
        }
    return true;
}

static bool set_map(const struct order *order, const struct layout *layout, struct error *err)
{
    int *slurms = nodes_of_ranks(layout), *map = calloc(layout->ranks ? layout->ranks : 1, sizeof *map);
    char *text = NULL;

    if (!slurms || !map)
        error_set(err, CODE_IO, "no memory for %u ranks", (unsigned)layout->ranks);
    else if (place_rank_map(order->cluster, order->nodes, slurms, (int)layout->ranks, map, err) == 0)
        text = rank_map_text(map, (int)layout->ranks, err);
    if (text)
        setenv("MUSTER_RANK_MAP", text, 1);
    free(slurms);
    free(map);
    free(text);
    return text != NULL;
}

/* A map that no srun --muster around this one has set. */
static bool map_is_users(void)
{
    const char *map = getenv("MUSTER_RANK_MAP"), *record = getenv("MUSTER_SET");
    char word[ENV_MAP_WORD];

    snprintf(word, sizeof word, "%s", map ? map : "");
    return map && !(record && env_was_set(record, "MUSTER_RANK_MAP", word));
}

bool srun_order_step(const struct layout *layout, const char *job_file, const char *topology)
{
    struct error err;

    if (map_is_users())
        return false;
    unsetenv("MUSTER_RANK_MAP"); /* of a step around this one */
    if (state.by_hostfile) {
        if (!came_about(state.order, layout))
            slurm_spank_log("muster: warning: Slurm laid the ranks out otherwise than it was asked to; this costs "
                            "speed, nothing else");
        return false;
    }
    order_destroy(state.order);
    state.order = NULL;
    if (!job_file || state.user_places || layout->count < 2)
        return false;
    state.order = order_of_layout(layout, job_file, topology, &err);
    if (!state.order)
        slurm_spank_log("muster: warning: %s; the ranks stay as Slurm has them", err.text);
    else if (!state.order->as_slurm) {
        state.by_map = set_map(state.order, layout, &err);
        if (!state.by_map)
            slurm_spank_log("muster: warning: %s; the ranks stay as Slurm has them", err.text);
    }
    return state.by_map;
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

/* The order that the step really has, with the mesh that goes with it; NULL where there is no telling. */
static struct order *order_in_truth(const struct layout *layout, const char *job_file, const char *topology)
{
    struct error ignored;
    struct order *order = order_of_layout(layout, job_file, topology, &ignored);
    int *slurms = nodes_of_ranks(layout);

    if (!order && job_file) /* its mesh does not go into these ranks, as the trainer will say */
        order = order_of_layout(layout, NULL, topology, &ignored);
    if (order && slurms)
        order_take(order, slurms);
    free(slurms);
    return order;
}

void srun_order_report(const struct layout *layout, const char *job_file, const char *topology, bool json,
                       report_print *print)
{
    struct report_step step = {.layout = layout, .by_hostfile = state.by_hostfile, .by_map = state.by_map};
    struct order *made = NULL;

    if (!state.by_map)
        made = order_in_truth(layout, job_file, topology);
    step.order = made ? made : state.order;
    if (json)
        report_step_json(&step, print);
    else
        report_step(&step, print);
    order_destroy(made);
}

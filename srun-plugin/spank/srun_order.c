#include "srun-plugin/spank/srun_order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "common/rank_map.h"
#include "srun-plugin/place/cluster.h"
#include "srun-plugin/spank/env.h"
#include "srun-plugin/place/order.h"
#include "srun-plugin/place/place.h"

#define COUNTS_SIZE 4096

/* Without switches every node is as near as every other. */
static void read_switches(struct srun_order *state)
{
    struct error err;

    if (state->switches_read)
        return;
    state->switches_read = true;
    state->switches = state->topology ? cluster_read_text(state->topology, &err) : cluster_slurm_text(&err);
    if (!state->switches)
        slurm_spank_log("muster: warning: %s; the ranks are placed as if there were no switches", err.text);
}

static struct order *make_order(struct srun_order *state, const char *nodes, const char *tasks, const struct job *job,
                                struct error *err)
{
    struct order_request request = {.job = job, .nodes = nodes, .tasks = tasks};

    read_switches(state);
    request.topology = state->switches;
    request.where = state->topology ? state->topology : "slurmctld";
    return order_create(&request, err);
}

/* ---- before the step exists -------------------------------------------------------------------------------------- */

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
 * In memory: srun may end before the plugin is called again (a bad option, a signal), and would leave a file behind.
 * srun reads the list in this process, before it starts another one. Returns the descriptor, or -1.
 */
static int write_hostfile(const struct order *order)
{
    char *text = place_hostfile(order->cluster, order->nodes, mesh_world(&order->mesh), NULL);
    int fd = text ? memfd_create("muster-hosts", MFD_CLOEXEC) : -1;

    if (fd >= 0 && write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        close(fd);
        fd = -1;
    }
    free(text);
    return fd;
}

/* The counts of ranks by node that Slurm will choose, into text; false if the plugin must not order the ranks. */
static bool may_order(struct srun_order *state, const struct srun_line *line, char *counts, size_t size)
{
    static const char *const placing[] = {"SLURM_DISTRIBUTION",      "SLURM_HOSTFILE",
                                          "SLURM_HET_SIZE",          "SLURM_RELATIVE",
                                          "SLURM_NTASKS_PER_CORE",   "SLURM_NTASKS_PER_GPU",
                                          "SLURM_NTASKS_PER_SOCKET", "SLURM_SPREAD_JOB",
                                          "SLURM_SRUN_MULTI",        NULL};
    const char *count = getenv("SLURM_JOB_NUM_NODES");

    state->user_places = line->places || any_set(placing);
    return line->known && !state->user_places && !line->nodes && getenv("SLURM_JOB_NODELIST") && count &&
           atoi(count) > 1 && !inside_a_step() &&
           order_counts(atoi(count), line->tasks ? line->tasks : getenv("SLURM_NTASKS"),
                        line->tasks_per_node ? line->tasks_per_node : getenv("SLURM_NTASKS_PER_NODE"),
                        getenv("SLURM_TASKS_PER_NODE"), counts, size) == 0;
}

void srun_order_begin(struct srun_order *state, const struct srun_line *line, bool head_is_users,
                      struct step_plan *plan)
{
    char counts[COUNTS_SIZE], path[64];
    struct error err;
    int fd;

    if (!may_order(state, line, counts, sizeof counts))
        return;
    state->order = make_order(state, getenv("SLURM_JOB_NODELIST"), counts, state->job, &err);
    if (!state->order && !state->job) /* with a job file srun_order_step tries again, and warns */
        slurm_spank_log("muster: warning: %s; the rank order is unchanged", err.text);
    if (!state->order || state->order->as_slurm || (head_is_users && state->order->nodes[0] != 0) ||
        (fd = write_hostfile(state->order)) < 0)
        return;
    state->hostfile = fd;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    setenv("SLURM_HOSTFILE", path, 1);
    setenv("SLURM_DISTRIBUTION", "arbitrary", 1);
    plan->by_hostfile = true;
}

void srun_order_close(struct srun_order *state, const struct step_plan *plan)
{
    if (!plan->by_hostfile)
        return;
    close(state->hostfile);
    unsetenv("SLURM_HOSTFILE");
    unsetenv("SLURM_DISTRIBUTION");
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

/* "n1,n2" and "8,8" of a layout, to be freed; NULL without memory. */
static char *list_nodes(const struct step_layout *layout, bool counts)
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

static struct order *order_of_layout(struct srun_order *state, const struct step_layout *layout, const struct job *job,
                                     struct error *err)
{
    char *nodes = list_nodes(layout, false), *counts = list_nodes(layout, true);
    struct order *order = NULL;

    if (nodes && counts)
        order = make_order(state, nodes, counts, job, err);
    else
        error_set(err, CODE_IO, "no memory for %zu nodes", layout->count);
    free(nodes);
    free(counts);
    return order;
}

/* The node, by its place in the layout, of each of Slurm's ranks. */
static int *nodes_of_ranks(const struct step_layout *layout)
{
    int *nodes = calloc(layout->ranks ? layout->ranks : 1, sizeof *nodes);

    for (size_t i = 0; nodes && i < layout->count; i++)
        for (size_t r = 0; r < layout->nodes[i].count; r++)
            if (layout->nodes[i].ranks[r] < layout->ranks)
                nodes[layout->nodes[i].ranks[r]] = (int)i;
    return nodes;
}

/* Whether each rank is on the node that the host file names for it. */
static bool is_followed(const struct order *order, const struct step_layout *layout)
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

static bool set_map(const struct order *order, const struct step_layout *layout, struct error *err)
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

/* Whether the user set MUSTER_RANK_MAP, and not an srun --muster around this one. */
static bool map_is_users(void)
{
    const char *map = getenv("MUSTER_RANK_MAP"), *record = getenv("MUSTER_SET");
    char start[ENV_MAP_WORD];

    snprintf(start, sizeof start, "%s", map ? map : "");
    return map && !(record && env_was_set(record, "MUSTER_RANK_MAP", start));
}

void srun_order_step(struct srun_order *state, const struct step_layout *layout, struct step_plan *plan)
{
    struct error err;

    if (map_is_users())
        return;
    unsetenv("MUSTER_RANK_MAP"); /* of a step around this one */
    if (plan->by_hostfile) {
        if (!is_followed(state->order, layout))
            slurm_spank_log("muster: warning: Slurm placed the ranks otherwise than in the plugin's host file; this "
                            "costs speed only");
        return;
    }
    order_destroy(state->order);
    state->order = NULL;
    if (!state->job || state->user_places || layout->count < 2)
        return;
    state->order = order_of_layout(state, layout, state->job, &err);
    if (state->order && !state->order->as_slurm)
        plan->by_map = set_map(state->order, layout, &err);
    if (!state->order || (!state->order->as_slurm && !plan->by_map))
        slurm_spank_log("muster: warning: %s; the rank order is unchanged", err.text);
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

/* The order that the step has, with the mesh that goes with it; NULL if it is not known. */
static struct order *find_order(struct srun_order *state, const struct step_layout *layout)
{
    struct error ignored;
    struct order *order = order_of_layout(state, layout, state->job, &ignored);
    int *slurms = nodes_of_ranks(layout);

    if (!order && state->job) /* its mesh does not fit these ranks, as the trainer will say */
        order = order_of_layout(state, layout, NULL, &ignored);
    if (order && slurms)
        order_replace(order, slurms);
    free(slurms);
    return order;
}

void srun_order_report(struct srun_order *state, const struct step_layout *layout, const struct step_plan *plan,
                       bool json, report_print *print)
{
    struct report_step step = {.layout = layout, .by_hostfile = plan->by_hostfile, .by_map = plan->by_map};
    struct order *made = NULL;

    if (!plan->by_map)
        made = find_order(state, layout);
    step.order = made ? made : state->order;
    if (json)
        report_step_json(&step, print);
    else
        report_step(&step, print);
    order_destroy(made);
}

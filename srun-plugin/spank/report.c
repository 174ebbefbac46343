#include "srun-plugin/spank/report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/mesh.h"
#include "common/text.h"

#define LINE_SIZE 1000 /* Slurm splits longer lines, and lines of other tasks come in between */

/* A line of a table, in which control characters of a user's variable make no other line. */
static void __attribute__((format(printf, 2, 3))) print_line(FILE *out, const char *format, ...)
{
    char line[LINE_SIZE];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    error_tame(line);
    fprintf(out, "%s\n", line);
}

/* The width of a column that holds this text, too. */
static int widen_column(int width, const char *text)
{
    int length = (int)strlen(text);

    return length > width ? length : width;
}

/* ---- the variables of a rank ------------------------------------------------------------------------------------- */

static const char *source_of(const struct env_variable *variable, char text[320])
{
    snprintf(text, 320, "%s%s%s", variable->source, variable->why[0] ? ": " : "", variable->why);
    return text;
}

static void print_variables(const struct env_list *env, FILE *out)
{
    int name = (int)strlen("variable"), value = (int)strlen("value");
    char source[320];

    for (size_t i = 0; i < env->count; i++) {
        name = widen_column(name, env->variables[i].name);
        if (strlen(env->variables[i].value) <= 32) /* one long path must not push every other line's last column away */
            value = widen_column(value, env->variables[i].value);
    }
    if (env->profile)
        print_line(out, "  fabric profile: %s", env->profile[0] ? env->profile : "none fits");
    for (size_t i = 0; i < env->note_count; i++)
        print_line(out, "  note: %s", env->notes[i]);
    print_line(out, "  %-*s  %-*s  source", name, "variable", value, "value");
    for (size_t i = 0; i < env->count; i++)
        if (strcmp(env->variables[i].name, "MUSTER_SET") != 0) /* it repeats the others */
            print_line(out, "  %-*s  %-*.400s  %s", name, env->variables[i].name, value, env->variables[i].value,
                       source_of(&env->variables[i], source));
}

static void write_variable(FILE *out, uint32_t rank, const struct env_variable *variable)
{
    char value[601], source[320];

    snprintf(value, sizeof value, "%s", variable->value);
    fprintf(out, "{\"muster\":\"variable\",\"rank\":%" PRIu32, rank);
    json_string_member(out, "name", variable->name);
    json_string_member(out, "value", value);
    if (strlen(variable->value) >= sizeof value)
        fputs(",\"cut\":true", out);
    json_string_member(out, "source", source_of(variable, source));
    fputs("}\n", out);
}

void report_variables(const struct rank_setup *setup, bool json, FILE *out)
{
    if (!json) {
        print_line(out, "muster: the environment of rank %" PRIu32, setup->task.rank);
        print_variables(&setup->env, out);
    }
    for (size_t i = 0; json && i < setup->env.count; i++)
        if (strcmp(setup->env.variables[i].name, "MUSTER_SET") != 0)
            write_variable(out, setup->task.rank, &setup->env.variables[i]);
}

/* ---- a node ------------------------------------------------------------------------------------------------------ */

static void print_tables(const struct node *node, const struct rank_setup *setup, FILE *out)
{
    if (!node || !setup->binding) {
        fputs("could not be read: no rank is bound and no fabric profile applies", out);
        return;
    }
    if (setup->task.rank == 0 || node->problem_count > 0) /* most nodes are like rank 0's */
        node_report(node, out);
    bind_report(node, setup->binding, out);
    if (setup->why_not_bound)
        fprintf(out, "no rank is bound: %s\n", setup->why_not_bound);
}

static void print_node(const char *name, const char *ranks, const struct node *node, const struct rank_setup *setup,
                       FILE *out)
{
    char *text = NULL, *line;
    size_t size;
    FILE *tables = open_memstream(&text, &size);

    print_line(out, "muster: node %s, rank%s %.600s", name, setup->task.local_ranks == 1 ? "" : "s",
               ranks ? ranks : "not known");
    if (tables) {
        print_tables(node, setup, tables);
        fclose(tables);
    }
    for (char *rest = text; (line = strsep(&rest, "\n"));)
        if (line[0])
            print_line(out, "  %.80s: %.900s", name, line);
    free(text);
}

static void begin_member(FILE *out, const char *kind, const char *node)
{
    fprintf(out, "{\"muster\":\"%s\"", kind);
    json_string_member(out, "node", node);
}

static void write_cpus(FILE *out, const char *key, const struct cpus *cpus)
{
    char text[1024];

    json_string_member(out, key, cpus_format(cpus, text, sizeof text));
}

static void write_rank(FILE *out, const char *name, const struct node *node, const struct bind_rank *rank, size_t row)
{
    begin_member(out, "rank", name);
    json_number_member(out, "local_rank", (long)row);
    json_string_member(out, "gpu", rank->gpu >= 0 ? node->gpus[rank->gpu].address : NULL);
    fputs(",\"nics\":[", out);
    for (size_t i = 0; i < rank->nic_count; i++) {
        fputs(i ? "," : "", out);
        json_quote(out, node_nic_name(&node->nics[rank->nics[i]]));
    }
    fputc(']', out);
    write_cpus(out, "cpus", &rank->cpus);
    write_cpus(out, "memory", &rank->mems);
    json_number_member(out, "threads", rank->threads);
    fputs("}\n", out);
}

static void write_texts(FILE *out, const char *kind, const char *name, char **texts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        begin_member(out, kind, name);
        json_string_member(out, "text", texts[i]);
        fputs("}\n", out);
    }
}

static void write_node(FILE *out, const char *name, const char *ranks, const struct node *node,
                       const struct rank_setup *setup)
{
    begin_member(out, "node", name);
    json_string_member(out, "ranks", ranks);
    json_string_member(out, "machine", node && node->title[0] ? node->title : NULL);
    json_string_member(out, "unbound", setup->why_not_bound);
    fputs("}\n", out);
    for (size_t row = 0; setup->binding && row < setup->binding->count; row++)
        write_rank(out, name, node, &setup->binding->ranks[row], row);
    if (node)
        write_texts(out, "problem", name, node->problems, node->problem_count);
    if (setup->binding)
        write_texts(out, "note", name, setup->binding->notes, setup->binding->note_count);
}

void report_node(const char *name, const char *ranks, const struct node *node, const struct rank_setup *setup,
                 bool json, FILE *out)
{
    bool has_notes = !node || node->problem_count > 0 || (setup->binding && setup->binding->note_count > 0);

    if (json)
        write_node(out, name, ranks, node, setup);
    else if (setup->task.nodes <= REPORT_NODES || setup->task.rank == 0 || has_notes)
        print_node(name, ranks, node, setup, out);
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

/* What crosses the topmost switch in a step of training, in this order and in Slurm's. */
static void describe_gain(const struct order *order, char *text, size_t size)
{
    int *slurms = calloc((size_t)mesh_world(&order->mesh), sizeof *slurms);
    uint64_t traffic[PLACE_LEVELS + 1];
    char ours[32], theirs[32], where[64];
    int depth = 0;

    text[0] = '\0';
    if (!slurms)
        return;
    place_in_order(order->switch_tree, &order->mesh, order->slots, NULL, slurms);
    place_traffic(order->switch_tree, &order->mesh, order->bytes, slurms, traffic);
    while (depth < order->switch_tree->levels && traffic[depth] == order->cost.traffic[depth])
        depth++;
    if (order->guessed)
        snprintf(text, size, ": node after node, switch by switch");
    else
        snprintf(text, size, ": %s a step %s instead of %s",
                 order_bytes_text(order->cost.traffic[depth], ours, sizeof ours),
                 order_depth_text(order->switch_tree, depth, where, sizeof where),
                 order_bytes_text(traffic[depth], theirs, sizeof theirs));
    free(slurms);
}

static void print_order(const struct order *order, const struct handoff *handoff, FILE *out)
{
    char gain[LINE_SIZE / 2] = "";

    if (handoff->by_hostfile || handoff->by_map)
        describe_gain(order, gain, sizeof gain);
    if (handoff->by_hostfile)
        print_line(out, "  order: by muster's host file%s", gain);
    else if (handoff->by_map)
        print_line(out, "  order: Slurm's for SLURM_PROCID, MUSTER_RANK_MAP's for the mesh (ranks below)%s", gain);
    else
        print_line(out, "  order: %s",
                   order && order->keeps_slurm_order
                       ? "Slurm's; no better order found"
                       : "Slurm's; not changed (the user's placement, -N, MASTER_ADDR, or an unknown option)");
}

/* "spine/leaf1" for a node of the layout; "-" without switches. */
static const char *path_of(const struct order *order, size_t node, char *path, size_t size)
{
    const char *name = order ? switch_tree_path_name(order->switch_tree, (int)node, path, size) : "";

    return name[0] ? name : "-";
}

static void print_nodes(const struct step_layout *layout, const struct order *order, FILE *out)
{
    char path[256];
    int names = (int)strlen("node"), paths = (int)strlen("switch");

    for (size_t i = 0; i < layout->node_count; i++) {
        names = widen_column(names, layout->hosts->names[i]);
        paths = widen_column(paths, path_of(order, i, path, sizeof path));
    }
    print_line(out, "  %-*s  %-*s  ranks", paths, "switch", names, "node");
    for (size_t i = 0; i < layout->node_count; i++) {
        const int *first = &layout->first[i];
        char *ranks = rank_map_text(&layout->ranks[*first], first[1] - *first, NULL);

        print_line(out, "  %-*s  %-*s  %.500s", paths, path_of(order, i, path, sizeof path), names,
                   layout->hosts->names[i], ranks ? ranks : "?");
        free(ranks);
    }
}

static void print_step(const struct step_layout *layout, const struct order *order, const struct handoff *handoff,
                       FILE *out)
{
    struct error ignored;

    print_line(out, "muster: job %" PRIu32 " step %" PRIu32 ": %" PRIu32 " rank%s on %zu node%s, rank 0 at %s",
               layout->job_id, layout->step_id, layout->rank_count, layout->rank_count == 1 ? "" : "s",
               layout->node_count, layout->node_count == 1 ? "" : "s", layout->master_address);
    print_order(order, handoff, out);
    if (!order || order->guessed) {
        print_nodes(layout, order, out);
    } else {
        fputs("  ", out);
        order_report_nodes(order, out, &ignored);
        if (order->switch_tree->node_count > 1)
            order_report_traffic(order, out, &ignored);
    }
}

static void write_switches(FILE *out, const struct switch_tree *switch_tree, int node)
{
    const char *comma = "";

    fputs(",\"switches\":[", out);
    for (int depth = 0; depth < switch_tree->levels; depth++) {
        int at = switch_tree->path[(size_t)node * (size_t)switch_tree->levels + (size_t)depth];

        if (at < 0 || !switch_tree->switches[at].name[0])
            continue;
        fputs(comma, out);
        json_quote(out, switch_tree->switches[at].name);
        comma = ",";
    }
    fputc(']', out);
}

/* The ranks of the mesh on a node, each as [rank, dp, tp, pp]. */
static void write_mesh_ranks(FILE *out, const struct order *order, int node)
{
    const char *comma = "";

    fputs(",\"mesh_ranks\":[", out);
    for (int rank = 0; rank < mesh_world(&order->mesh); rank++) {
        struct mesh_coords coords = mesh_coords(&order->mesh, rank);

        if (order->node_of[rank] != node)
            continue;
        fprintf(out, "%s{\"rank\":%d,\"dp\":%d,\"tp\":%d,\"pp\":%d}", comma, rank, coords.dp, coords.tp, coords.pp);
        comma = ",";
    }
    fputc(']', out);
}

static void write_step(FILE *out, const struct step_layout *layout, const struct order *order,
                       const struct handoff *handoff)
{
    const char *chosen = order && order->keeps_slurm_order ? "slurm" : "asked";

    if (handoff->by_hostfile || handoff->by_map)
        chosen = handoff->by_hostfile ? "hostfile" : "map";
    fputs("{\"muster\":\"step\"", out);
    json_number_member(out, "job", layout->job_id);
    json_number_member(out, "step", layout->step_id);
    json_number_member(out, "ranks", layout->rank_count);
    json_string_member(out, "head", layout->master_address);
    json_string_member(out, "order", chosen);
    if (order && !order->guessed)
        fprintf(out, ",\"mesh\":{\"dp\":%d,\"tp\":%d,\"pp\":%d}", order->mesh.dp, order->mesh.tp, order->mesh.pp);
    fputs(",\"nodes\":[", out);
    for (size_t i = 0; i < layout->node_count; i++) {
        fprintf(out, "%s{\"name\":", i ? "," : "");
        json_quote(out, layout->hosts->names[i]);
        fputs(",\"ranks\":[", out);
        for (int r = layout->first[i]; r < layout->first[i + 1]; r++)
            fprintf(out, "%s%d", r > layout->first[i] ? "," : "", layout->ranks[r]);
        fputc(']', out);
        if (order)
            write_switches(out, order->switch_tree, (int)i);
        if (order && !order->guessed)
            write_mesh_ranks(out, order, (int)i);
        fputc('}', out);
    }
    fputs("]}\n", out);
}

void report_step(const struct step_layout *layout, const struct order *order, const struct handoff *handoff, bool json,
                 FILE *out)
{
    if (json)
        write_step(out, layout, order, handoff);
    else
        print_step(layout, order, handoff, out);
}

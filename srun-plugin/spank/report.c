#include "srun-plugin/spank/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_write.h"
#include "srun-plugin/place/place_report.h"

#define LINE_SIZE 1000 /* Slurm breaks longer ones, and other tasks' lines come in between */

char *report_ranks(const uint32_t *ranks, size_t count, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t first = 0, last; first < count; first = last + 1) {
        char run[32];

        for (last = first; last + 1 < count && ranks[last + 1] == ranks[last] + 1; last++)
            ;
        if (first == last)
            snprintf(run, sizeof run, "%s%" PRIu32, first ? "," : "", ranks[first]);
        else
            snprintf(run, sizeof run, "%s%" PRIu32 "-%" PRIu32, first ? "," : "", ranks[first], ranks[last]);
        if (used + strlen(run) + sizeof "..." > size) {
            snprintf(text + used, size - used, "...");
            break;
        }
        used += (size_t)snprintf(text + used, size - used, "%s", run);
    }
    return text;
}

struct row {
    const char *name, *value;
    char source[320];
};

static struct row row_of_entry(const struct env_entry *entry)
{
    struct row row = {.name = entry->name, .value = entry->value};

    if (entry->source == ENV_USER)
        snprintf(row.source, sizeof row.source, "user");
    else
        snprintf(row.source, sizeof row.source, "muster: %s", entry->why);
    return row;
}

static struct row row_of_fabric(const struct fabric_variable *variable)
{
    struct row row = {.name = variable->name, .value = variable->value};

    if (variable->why && variable->why[0])
        snprintf(row.source, sizeof row.source, "%s: %s", variable->source, variable->why);
    else
        snprintf(row.source, sizeof row.source, "%s", variable->source);
    return row;
}

/* First muster's own, then the fabric's. rows is large enough for all. */
static size_t list_rows(const struct rank_plan *plan, struct row *rows)
{
    size_t count = 0;

    for (size_t i = 0; i < plan->env->count; i++)
        if (strcmp(plan->env->entries[i].name, "MUSTER_SET") != 0) /* which says again what all the others say */
            rows[count++] = row_of_entry(&plan->env->entries[i]);
    for (size_t i = 0; plan->fabric && i < plan->fabric->count; i++)
        rows[count++] = row_of_fabric(&plan->fabric->variables[i]);
    return count;
}

static struct row *make_rows(const struct rank_plan *plan, size_t *count)
{
    struct row *rows = calloc(plan->env->count + (plan->fabric ? plan->fabric->count : 0) + 1, sizeof *rows);

    *count = rows ? list_rows(plan, rows) : 0;
    return rows;
}

static void print_notes(const struct rank_plan *plan, report_print *print)
{
    char line[LINE_SIZE];

    if (!plan->fabric)
        return;
    snprintf(line, sizeof line, "  fabric profile: %s", plan->fabric->profile[0] ? plan->fabric->profile : "none fits");
    print(line);
    for (size_t i = 0; i < plan->fabric->note_count; i++) {
        snprintf(line, sizeof line, "  note: %s", plan->fabric->notes[i]);
        print(line);
    }
}

void report_variables(const struct rank_plan *plan, report_print *print)
{
    char line[LINE_SIZE];
    int name = (int)strlen("variable"), value = (int)strlen("value");
    size_t count;
    struct row *rows = make_rows(plan, &count);

    for (size_t i = 0; i < count; i++) {
        int length = (int)strlen(rows[i].name);

        name = length > name ? length : name;
        length = (int)strlen(rows[i].value);
        if (length <= 32) /* one long path must not push every other line's last column away */
            value = length > value ? length : value;
    }
    snprintf(line, sizeof line, "muster: the environment of rank %" PRIu32, plan->task.rank);
    print(line);
    print_notes(plan, print);
    snprintf(line, sizeof line, "  %-*s  %-*s  source", name, "variable", value, "value");
    print(line);
    for (size_t i = 0; i < count; i++) {
        snprintf(line, sizeof line, "  %-*s  %-*.400s  %s", name, rows[i].name, value, rows[i].value, rows[i].source);
        print(line);
    }
    free(rows);
}

static void write_variable(const struct rank_plan *plan, const struct row *row, FILE *out)
{
    char value[601];

    snprintf(value, sizeof value, "%s", row->value);
    fprintf(out, "{\"muster\":\"variable\",\"rank\":%" PRIu32, plan->task.rank);
    json_string_member(out, "name", row->name);
    json_string_member(out, "value", value);
    if (strlen(row->value) >= sizeof value)
        fputs(",\"cut\":true", out);
    json_string_member(out, "source", row->source);
    fputc('}', out);
}

void report_variables_json(const struct rank_plan *plan, report_print *print)
{
    size_t count, size;
    struct row *rows = make_rows(plan, &count);

    for (size_t i = 0; i < count; i++) {
        char *text = NULL;
        FILE *out = open_memstream(&text, &size);

        if (out)
            write_variable(plan, &rows[i], out);
        if (out && fclose(out) == 0)
            print(text);
        free(text);
    }
    free(rows);
}

/* ---- the step, for a person ---- */

static void print_with(const char *line, void *arg)
{
    char indented[LINE_SIZE + 2];

    snprintf(indented, sizeof indented, "%s%s", line[0] == ' ' ? "" : "  ", line);
    (*(report_print **)arg)(indented);
}

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
    place_in_order(order->cluster, &order->mesh, order->slots, NULL, slurms);
    place_traffic(order->cluster, &order->mesh, order->bytes, slurms, traffic);
    while (depth < order->cluster->levels && traffic[depth] == order->report.traffic[depth])
        depth++;
    if (order->guessed)
        snprintf(text, size, ": node after node, switch by switch");
    else
        snprintf(text, size, ": %s a step %s instead of %s",
                 place_bytes_text(order->report.traffic[depth], ours, sizeof ours),
                 place_depth_text(order->cluster, depth, where, sizeof where),
                 place_bytes_text(traffic[depth], theirs, sizeof theirs));
    free(slurms);
}

static void report_order(const struct report_step *step, report_print *print)
{
    char line[LINE_SIZE], gain[LINE_SIZE / 2] = "";

    if (step->by_hostfile || step->by_map)
        describe_gain(step->order, gain, sizeof gain);
    if (step->by_hostfile)
        snprintf(line, sizeof line, "  order: by muster's host file%s", gain);
    else if (step->by_map)
        snprintf(line, sizeof line, "  order: Slurm's for SLURM_PROCID, MUSTER_RANK_MAP's for the mesh (ranks below)%s",
                 gain);
    else if (step->order && step->order->as_slurm)
        snprintf(line, sizeof line, "  order: Slurm's; no better order found");
    else
        snprintf(line, sizeof line, "  order: as the user asked Slurm");
    print(line);
}

static void report_plain(const struct report_step *step, report_print *print)
{
    const struct step_layout *layout = step->layout;
    char line[LINE_SIZE], ranks[512], path[256] = "";
    int names = 4, paths = 6;

    for (size_t i = 0; i < layout->count; i++) {
        int length = (int)strlen(layout->nodes[i].name);

        names = length > names ? length : names;
        if (step->order)
            length = (int)strlen(cluster_path_name(step->order->cluster, (int)i, path, sizeof path));
        paths = step->order && length > paths ? length : paths;
    }
    snprintf(line, sizeof line, "  %-*s  %-*s  ranks", paths, "switch", names, "node");
    print(line);
    for (size_t i = 0; i < layout->count; i++) {
        const struct step_node *node = &layout->nodes[i];

        if (step->order)
            cluster_path_name(step->order->cluster, (int)i, path, sizeof path);
        snprintf(line, sizeof line, "  %-*s  %-*s  %s", paths, path[0] ? path : "-", names, node->name,
                 report_ranks(node->ranks, node->count, ranks, sizeof ranks));
        print(line);
    }
}

void report_step(const struct report_step *step, report_print *print)
{
    const struct step_layout *layout = step->layout;
    const struct order *order = step->order;
    char line[LINE_SIZE];
    struct error ignored;

    snprintf(line, sizeof line,
             "muster: job %" PRIu32 " step %" PRIu32 ": %" PRIu32 " rank%s on %zu node%s, rank 0 at %s", layout->job_id,
             layout->step_id, layout->ranks, layout->ranks == 1 ? "" : "s", layout->count,
             layout->count == 1 ? "" : "s", layout->head);
    print(line);
    report_order(step, print);
    if (!order || order->guessed) {
        report_plain(step, print);
    } else {
        const struct placement placement = {.cluster = order->cluster,
                                            .mesh = &order->mesh,
                                            .bytes = order->bytes,
                                            .slots = order->slots,
                                            .order = order->nodes,
                                            .report = &order->report};

        place_report_nodes(&placement, print_with, &print, &ignored);
        if (order->cluster->node_count > 1)
            place_report_traffic(&placement, print_with, &print, &ignored);
    }
}

/* ---- the step, for programs ---- */

static void write_numbers(FILE *out, const char *key, const uint32_t *numbers, size_t count)
{
    fprintf(out, ",\"%s\":[", key);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "%s%" PRIu32, i ? "," : "", numbers[i]);
    fputc(']', out);
}

static void write_switches(FILE *out, const struct cluster *cluster, int node)
{
    const char *comma = "";

    fputs(",\"switches\":[", out);
    for (int depth = 0; depth < cluster->levels; depth++) {
        int at = cluster->path[(size_t)node * (size_t)cluster->levels + (size_t)depth];

        if (at < 0 || !cluster->switches[at].name[0])
            continue;
        fputs(comma, out);
        json_quote(out, cluster->switches[at].name);
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
        struct mesh_place place = mesh_place(&order->mesh, rank);

        if (order->nodes[rank] != node)
            continue;
        fprintf(out, "%s{\"rank\":%d,\"dp\":%d,\"tp\":%d,\"pp\":%d}", comma, rank, place.dp, place.tp, place.pp);
        comma = ",";
    }
    fputc(']', out);
}

void report_step_json(const struct report_step *step, report_print *print)
{
    const struct step_layout *layout = step->layout;
    const struct order *order = step->order;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return;
    fprintf(out, "{\"muster\":\"step\",\"job\":%" PRIu32 ",\"step\":%" PRIu32 ",\"ranks\":%" PRIu32, layout->job_id,
            layout->step_id, layout->ranks);
    json_string_member(out, "head", layout->head);
    json_string_member(out, "order",
                       step->by_hostfile          ? "hostfile"
                       : step->by_map             ? "map"
                       : order && order->as_slurm ? "slurm"
                                                  : "asked");
    if (order && !order->guessed)
        fprintf(out, ",\"mesh\":{\"dp\":%d,\"tp\":%d,\"pp\":%d}", order->mesh.dp, order->mesh.tp, order->mesh.pp);
    fputs(",\"nodes\":[", out);
    for (size_t i = 0; i < layout->count; i++) {
        fprintf(out, "%s{\"name\":", i ? "," : "");
        json_quote(out, layout->nodes[i].name);
        write_numbers(out, "ranks", layout->nodes[i].ranks, layout->nodes[i].count);
        if (order)
            write_switches(out, order->cluster, (int)i);
        if (order && !order->guessed)
            write_mesh_ranks(out, order, (int)i);
        fputc('}', out);
    }
    fputs("]}", out);
    if (fclose(out) == 0)
        print(text);
    free(text);
}

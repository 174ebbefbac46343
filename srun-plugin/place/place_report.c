#include "srun-plugin/place/place_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/rank_map.h"

#define LINE_SIZE 1024

char *place_bytes_text(uint64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double number = (double)bytes;
    size_t unit = 0;

    for (; number >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++)
        number /= 1000.0;
    snprintf(text, size, "%.*f %s", unit == 0 || number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2, number, units[unit]);
    return text;
}

char *place_depth_text(const struct cluster *cluster, int depth, char *text, size_t size)
{
    if (depth == cluster->levels)
        snprintf(text, size, "within a node");
    else if (depth > 0)
        snprintf(text, size, "%d level%s below", depth, depth == 1 ? "" : "s");
    else
        snprintf(text, size, "across %s", *cluster->switches[0].name ? cluster->switches[0].name : "the top");
    return text;
}

void place_by_node(const struct placement *placement, int *first, int *ranks)
{
    int nodes = placement->cluster->node_count, world = mesh_world(placement->mesh);

    memset(first, 0, ((size_t)nodes + 1) * sizeof *first);
    for (int rank = 0; rank < world; rank++)
        first[placement->order[rank] + 1]++;
    for (int node = 0; node < nodes; node++)
        first[node + 1] += first[node];
    for (int rank = 0; rank < world; rank++)
        ranks[first[placement->order[rank]]++] = rank;
    for (int node = nodes; node > 0; node--) /* each now stands where the next one begins */
        first[node] = first[node - 1];
    first[0] = 0;
}

/* ---- nodes ---- */

static int by_number(const void *a, const void *b)
{
    return *(const int *)a < *(const int *)b ? -1 : *(const int *)a > *(const int *)b;
}

enum column { RANKS, STAGES, REPLICAS, COLUMNS };

/* Which ranks, stages or replicas a node has, as "0-3,8". */
static char *list_column(const struct mesh *mesh, const int *ranks, int count, enum column column, int *room,
                         struct error *err)
{
    int kept = 0;

    for (int i = 0; i < count; i++)
        room[i] = column == RANKS    ? ranks[i]
                  : column == STAGES ? mesh_place(mesh, ranks[i]).pp
                                     : mesh_place(mesh, ranks[i]).dp;
    qsort(room, (size_t)count, sizeof *room, by_number);
    for (int i = 0; i < count; i++)
        if (i == 0 || room[i] != room[i - 1])
            room[kept++] = room[i];
    return rank_map_text(room, kept, err);
}

static int print_node(const struct placement *placement, int node, int widths[2], const int *ranks, int count,
                      int *room, place_print *print, void *arg, struct error *err)
{
    char *columns[COLUMNS] = {NULL}, line[LINE_SIZE], path[256];
    int rc = -1;

    for (enum column column = RANKS; column < COLUMNS; column++) {
        columns[column] = list_column(placement->mesh, ranks, count, column, room, err);
        if (!columns[column])
            goto out;
    }
    snprintf(line, sizeof line, "  %-*s  %-*s  %-20s  %-10s  %s", widths[0],
             cluster_path_name(placement->cluster, node, path, sizeof path), widths[1], placement->cluster->nodes[node],
             count ? columns[RANKS] : "-", columns[STAGES], columns[REPLICAS]);
    print(line, arg);
    rc = 0;
out:
    for (enum column column = RANKS; column < COLUMNS; column++)
        free(columns[column]);
    return rc;
}

static int by_path(const void *a, const void *b, void *cluster)
{
    const struct cluster *tree = cluster;
    int left = *(const int *)a, right = *(const int *)b;
    const int *of_left = &tree->path[(size_t)left * (size_t)tree->levels];
    const int *of_right = &tree->path[(size_t)right * (size_t)tree->levels];

    for (int depth = 0; depth < tree->levels; depth++)
        if (of_left[depth] != of_right[depth])
            return of_left[depth] < of_right[depth] ? -1 : 1;
    return left < right ? -1 : left > right;
}

static void sort_nodes(const struct cluster *cluster, int *nodes, int widths[2])
{
    char path[256];

    widths[0] = (int)strlen("switch");
    widths[1] = (int)strlen("node");
    for (int node = 0; node < cluster->node_count; node++) {
        int path_width = (int)strlen(cluster_path_name(cluster, node, path, sizeof path));
        int name_width = (int)strlen(cluster->nodes[node]);

        nodes[node] = node;
        widths[0] = path_width > widths[0] ? path_width : widths[0];
        widths[1] = name_width > widths[1] ? name_width : widths[1];
    }
    qsort_r(nodes, (size_t)cluster->node_count, sizeof *nodes, by_path, (void *)(uintptr_t)cluster);
}

static void print_heading(const struct placement *placement, place_print *print, void *arg)
{
    const struct mesh *mesh = placement->mesh;
    const struct cluster *cluster = placement->cluster;
    char line[LINE_SIZE];

    snprintf(line, sizeof line, "%d ranks (dp %d, tp %d, pp %d) on %d nodes under %d switches%s", mesh_world(mesh),
             mesh->dp, mesh->tp, mesh->pp, cluster->node_count,
             cluster->switch_count - (*cluster->switches[0].name == 0),
             placement->report->exact ? "; no order is better" : "");
    print(line, arg);
    if (!placement->report->split_groups)
        return;
    snprintf(line, sizeof line, "  %d of %d tp groups do not fit a node: choose a tp that divides the ranks of a node",
             placement->report->split_groups, mesh->dp * mesh->pp);
    print(line, arg);
}

int place_report_nodes(const struct placement *placement, place_print *print, void *arg, struct error *err)
{
    const struct cluster *cluster = placement->cluster;
    size_t nodes = (size_t)cluster->node_count, world = (size_t)mesh_world(placement->mesh);
    int *first = calloc(2 * nodes + 1 + 2 * world, sizeof *first), rc = 0, widths[2];
    int *sorted = first + nodes + 1, *ranks = sorted + nodes, *room = ranks + world;
    char line[LINE_SIZE];

    if (!first)
        return error_errno(err, CODE_IO, "no memory for the table of %zu ranks", world);
    place_by_node(placement, first, ranks);
    sort_nodes(cluster, sorted, widths);
    print_heading(placement, print, arg);
    snprintf(line, sizeof line, "  %-*s  %-*s  %-20s  %-10s  %s", widths[0], "switch", widths[1], "node", "ranks", "pp",
             "dp");
    print(line, arg);
    for (size_t i = 0; i < nodes && rc == 0; i++)
        rc = print_node(placement, sorted[i], widths, &ranks[first[sorted[i]]], first[sorted[i] + 1] - first[sorted[i]],
                        room, print, arg, err);
    free(first);
    return rc;
}

/* ---- traffic ---- */

int place_report_traffic(const struct placement *placement, place_print *print, void *arg, struct error *err)
{
    const struct cluster *cluster = placement->cluster;
    int *nodes = calloc((size_t)cluster->node_count, sizeof *nodes);
    int *order = calloc((size_t)mesh_world(placement->mesh), sizeof *order);
    uint64_t slurm[PLACE_LEVELS + 1], sorted[PLACE_LEVELS + 1];
    char line[LINE_SIZE], depth_text[64], texts[3][32];

    if (!nodes || !order) {
        free(nodes);
        free(order);
        return error_errno(err, CODE_IO, "no memory for the traffic of %d ranks", mesh_world(placement->mesh));
    }
    place_in_order(cluster, placement->mesh, placement->slots, NULL, order);
    place_traffic(cluster, placement->mesh, placement->bytes, order, slurm);
    place_alphabetical(cluster, nodes);
    place_in_order(cluster, placement->mesh, placement->slots, nodes, order);
    place_traffic(cluster, placement->mesh, placement->bytes, order, sorted);
    print("  traffic of a step      this order  Slurm's order   sorted names", arg);
    for (int depth = 0; depth <= cluster->levels; depth++) {
        snprintf(line, sizeof line, "  %-20s  %11s  %13s  %13s",
                 place_depth_text(cluster, depth, depth_text, sizeof depth_text),
                 place_bytes_text(placement->report->traffic[depth], texts[0], sizeof texts[0]),
                 place_bytes_text(slurm[depth], texts[1], sizeof texts[1]),
                 place_bytes_text(sorted[depth], texts[2], sizeof texts[2]));
        print(line, arg);
    }
    free(nodes);
    free(order);
    return 0;
}

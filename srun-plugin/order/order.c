#include "srun-plugin/order/order.h"

#include <stdlib.h>
#include <string.h>

#include "common/mesh.h"
#include "common/text.h"
#include "plan/hostlist.h"

/* The ranks of a node if all nodes have as many; else 1. */
static int guess_group(const struct order *order)
{
    for (int node = 1; node < order->switch_tree->node_count; node++)
        if (order->slots[node] != order->slots[0])
            return 1;
    return order->slots[0] > 0 ? order->slots[0] : 1;
}

static int find_mesh(struct order *order, const struct order_request *request, int world, struct error *err)
{
    const struct job *job = request->job;
    struct mesh *mesh = &order->mesh;

    order->guessed = !job && !request->mesh;
    if (request->mesh)
        *mesh = *request->mesh;
    else
        *mesh = job ? (struct mesh){0, job->parallel.tp, job->parallel.pp} : (struct mesh){0, guess_group(order), 1};
    if (mesh->dp == 0)
        return mesh_fit(mesh, world, mesh->tp, mesh->pp, err);
    if (mesh->tp < 1 || mesh->pp < 1 || (long)mesh->dp * mesh->tp > world / mesh->pp)
        return error_set(err, CODE_CONFIG, "a mesh of dp %d, tp %d, pp %d does not fit %d slots", mesh->dp, mesh->tp,
                         mesh->pp, world);
    return 0;
}

static void find_bytes(struct order *order, const struct order_request *request)
{
    for (int axis = 0; axis < PLACE_AXES; axis++)
        order->bytes[axis] = 1;
    if (request->job)
        place_bytes(request->job, &order->mesh, order->bytes);
    for (int axis = 0; request->bytes && axis < PLACE_AXES; axis++)
        if (request->bytes[axis] != ORDER_BYTES_COMPUTED)
            order->bytes[axis] = request->bytes[axis];
}

/* Takes Slurm's order unless the new one costs less. `scratch` holds as many as order->node_of. */
static void settle_order(struct order *order, int *scratch)
{
    struct place_cost slurm_cost;

    place_keep_first(&order->mesh, order->node_of, scratch);
    place_in_order(order->switch_tree, &order->mesh, order->slots, NULL, scratch);
    place_weigh(order->switch_tree, &order->mesh, order->bytes, scratch, &slurm_cost);
    order->keeps_slurm_order = place_compare_costs(&slurm_cost, &order->cost, order->switch_tree->levels) == 0;
    if (!order->keeps_slurm_order)
        return;
    memcpy(order->node_of, scratch, (size_t)mesh_world(&order->mesh) * sizeof *scratch);
    order->cost.split_groups = slurm_cost.split_groups;
}

static int fill_order(struct order *order, const struct order_request *request, struct error *err)
{
    int world = 0, *scratch = NULL, rc = -1;

    order->switch_tree = switch_tree_create(request->nodes, request->topology, request->where, err);
    if (!order->switch_tree)
        return -1;
    order->slots = error_calloc((size_t)order->switch_tree->node_count, sizeof *order->slots, err);
    if (!order->slots ||
        hostlist_counts(request->tasks_per_node, order->slots, order->switch_tree->node_count, &world, err) < 0 ||
        find_mesh(order, request, world, err) < 0)
        return -1;
    world = mesh_world(&order->mesh);
    find_bytes(order, request);
    order->node_of = error_calloc((size_t)world, sizeof *order->node_of, err);
    scratch = error_calloc((size_t)world, sizeof *scratch, err);
    if (order->node_of && scratch)
        rc = place_ranks(order->switch_tree, &order->mesh, order->bytes, order->slots, order->node_of, &order->cost,
                         err);
    if (rc == 0)
        settle_order(order, scratch);
    free(scratch);
    return rc;
}

struct order *order_create(const struct order_request *request, struct error *err)
{
    struct order *order = error_calloc(1, sizeof *order, err);

    if (order && fill_order(order, request, err) == 0)
        return order;
    order_destroy(order);
    return NULL;
}

void order_destroy(struct order *order)
{
    if (!order)
        return;
    switch_tree_destroy(order->switch_tree);
    free(order->slots);
    free(order->node_of);
    free(order);
}

void order_replace(struct order *order, const int *node_of)
{
    size_t bytes = (size_t)mesh_world(&order->mesh) * sizeof *node_of;

    if (memcmp(order->node_of, node_of, bytes) == 0)
        return;
    memcpy(order->node_of, node_of, bytes);
    place_weigh(order->switch_tree, &order->mesh, order->bytes, order->node_of, &order->cost);
    order->keeps_slurm_order = false;
}

/* ---- for Slurm and for the trainer ------------------------------------------------------------------------------- */

char *order_hostfile(const struct order *order, struct error *err)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    for (int rank = 0; out && rank < mesh_world(&order->mesh); rank++)
        fprintf(out, "%s\n", order->switch_tree->nodes[order->node_of[rank]]);
    if (out && fclose(out) == 0)
        return text;
    error_errno(err, CODE_IO, "no memory for a host file of %d ranks", mesh_world(&order->mesh));
    free(text);
    return NULL;
}

void order_by_node(const int *node_of, int world, int nodes, int *first, int *ranks)
{
    memset(first, 0, ((size_t)nodes + 1) * sizeof *first);
    for (int rank = 0; rank < world; rank++)
        first[node_of[rank] + 1]++;
    for (int node = 0; node < nodes; node++)
        first[node + 1] += first[node];
    for (int rank = 0; rank < world; rank++)
        ranks[first[node_of[rank]]++] = rank;
    memmove(first + 1, first, (size_t)nodes * sizeof *first); /* each is where the next one begins */
    first[0] = 0;
}

int order_rank_map(const struct order *order, const int *slurm_nodes, int *map, struct error *err)
{
    int nodes = order->switch_tree->node_count, world = mesh_world(&order->mesh), rc = 0;
    int *scratch = calloc(2 * ((size_t)nodes + 1 + (size_t)world), sizeof *scratch);
    int *wanted = scratch, *given = wanted + nodes + 1, *ranks = given + nodes + 1, *slurm_ranks = ranks + world;

    if (!scratch)
        return error_errno(err, CODE_IO, "no memory for the order of %d ranks", world);
    order_by_node(order->node_of, world, nodes, wanted, ranks);
    order_by_node(slurm_nodes, world, nodes, given, slurm_ranks);
    for (int node = 0; node < nodes && rc == 0; node++)
        if (wanted[node + 1] != given[node + 1])
            rc = error_set(err, CODE_CONFIG, "Slurm has %d ranks on node %s, but the mesh has %d",
                           given[node + 1] - given[node], order->switch_tree->nodes[node],
                           wanted[node + 1] - wanted[node]);
    for (int i = 0; i < world && rc == 0; i++)
        map[slurm_ranks[i]] = ranks[i];
    free(scratch);
    return rc;
}

/* ---- before there is a step -------------------------------------------------------------------------------------- */

int order_counts(int nodes, const char *ntasks, const char *ntasks_per_node, const char *tasks_per_node, char *text,
                 size_t size)
{
    long all = 0, each = 0;
    struct error ignored;
    int sum = 0, *scratch;

    if (nodes < 1 || (ntasks && !text_to_long(ntasks, 1, PLACE_RANKS, &all)) ||
        (ntasks_per_node && !text_to_long(ntasks_per_node, 1, PLACE_RANKS, &each)) ||
        (all && each && all != each * nodes))
        return -1;
    if (!each && (!all || all == nodes))
        each = 1; /* srun's default, and the only way if there are as many ranks as nodes */
    if (each) {
        snprintf(text, size, "%ld(x%d)", each, nodes);
        return 0;
    }
    scratch = tasks_per_node ? calloc((size_t)nodes, sizeof *scratch) : NULL;
    if (!scratch || hostlist_counts(tasks_per_node, scratch, nodes, &sum, &ignored) < 0 || sum != all ||
        strlen(tasks_per_node) >= size)
        sum = 0;
    free(scratch);
    if (!sum)
        return -1;
    snprintf(text, size, "%s", tasks_per_node);
    return 0;
}

char *order_bytes_text(uint64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double number = (double)bytes;
    size_t unit = 0;

    for (; number >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++)
        number /= 1000.0;
    snprintf(text, size, "%.*f %s", unit == 0 || number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2, number, units[unit]);
    return text;
}

char *order_depth_text(const struct switch_tree *switch_tree, int depth, char *text, size_t size)
{
    if (depth == switch_tree->levels)
        snprintf(text, size, "within a node");
    else if (depth > 0)
        snprintf(text, size, "%d level%s below", depth, depth == 1 ? "" : "s");
    else
        snprintf(text, size, "across %s", *switch_tree->switches[0].name ? switch_tree->switches[0].name : "the top");
    return text;
}

/* ---- the table of nodes ------------------------------------------------------------------------------------------ */

static int by_number(const void *a, const void *b)
{
    return *(const int *)a < *(const int *)b ? -1 : *(const int *)a > *(const int *)b;
}

enum column { RANKS, STAGES, REPLICAS, COLUMNS };

/* Which ranks, stages or replicas a node has, as "0-3,8". */
static char *list_column(const struct mesh *mesh, const int *ranks, int count, enum column column, int *scratch,
                         struct error *err)
{
    int kept = 0;

    for (int i = 0; i < count; i++)
        scratch[i] = column == RANKS    ? ranks[i]
                     : column == STAGES ? mesh_coords(mesh, ranks[i]).pp
                                        : mesh_coords(mesh, ranks[i]).dp;
    qsort(scratch, (size_t)count, sizeof *scratch, by_number);
    for (int i = 0; i < count; i++)
        if (i == 0 || scratch[i] != scratch[i - 1])
            scratch[kept++] = scratch[i];
    return rank_map_text(scratch, kept, err);
}

static int print_node(const struct order *order, int node, int widths[2], const int *ranks, int count, int *scratch,
                      FILE *out, struct error *err)
{
    char *columns[COLUMNS] = {NULL}, path[256];
    int rc = -1;

    for (enum column column = RANKS; column < COLUMNS; column++) {
        columns[column] = list_column(&order->mesh, ranks, count, column, scratch, err);
        if (!columns[column])
            goto out;
    }
    fprintf(out, "  %-*s  %-*s  %-20.500s  %-10.200s  %.200s\n", widths[0],
            switch_tree_path_name(order->switch_tree, node, path, sizeof path), widths[1],
            order->switch_tree->nodes[node], count ? columns[RANKS] : "-", columns[STAGES], columns[REPLICAS]);
    rc = 0;
out:
    for (enum column column = RANKS; column < COLUMNS; column++)
        free(columns[column]);
    return rc;
}

static int by_path(const void *a, const void *b, void *switch_tree)
{
    const struct switch_tree *tree = switch_tree;
    int left = *(const int *)a, right = *(const int *)b;
    const int *of_left = &tree->path[(size_t)left * (size_t)tree->levels];
    const int *of_right = &tree->path[(size_t)right * (size_t)tree->levels];

    for (int depth = 0; depth < tree->levels; depth++)
        if (of_left[depth] != of_right[depth])
            return of_left[depth] < of_right[depth] ? -1 : 1;
    return left < right ? -1 : left > right;
}

static void sort_nodes(const struct switch_tree *switch_tree, int *nodes, int widths[2])
{
    char path[256];

    widths[0] = (int)strlen("switch");
    widths[1] = (int)strlen("node");
    for (int node = 0; node < switch_tree->node_count; node++) {
        int path_width = (int)strlen(switch_tree_path_name(switch_tree, node, path, sizeof path));
        int name_width = (int)strlen(switch_tree->nodes[node]);

        nodes[node] = node;
        widths[0] = path_width > widths[0] ? path_width : widths[0];
        widths[1] = name_width > widths[1] ? name_width : widths[1];
    }
    qsort_r(nodes, (size_t)switch_tree->node_count, sizeof *nodes, by_path, (void *)(uintptr_t)switch_tree);
}

static void print_heading(const struct order *order, FILE *out)
{
    const struct mesh *mesh = &order->mesh;
    const struct switch_tree *switch_tree = order->switch_tree;

    fprintf(out, "%d ranks (dp %d, tp %d, pp %d) on %d nodes under %d switches%s\n", mesh_world(mesh), mesh->dp,
            mesh->tp, mesh->pp, switch_tree->node_count,
            switch_tree->switch_count - (*switch_tree->switches[0].name == 0),
            order->cost.exact ? "; no order is better" : "");
    if (!order->cost.split_groups)
        return;
    fprintf(out, "  %d of %d tp groups do not fit a node: choose a tp that divides the ranks of a node\n",
            order->cost.split_groups, mesh->dp * mesh->pp);
}

int order_report_nodes(const struct order *order, FILE *out, struct error *err)
{
    const struct switch_tree *switch_tree = order->switch_tree;
    size_t nodes = (size_t)switch_tree->node_count, world = (size_t)mesh_world(&order->mesh);
    int *first = calloc(2 * nodes + 1 + 2 * world, sizeof *first), rc = 0, widths[2];
    int *sorted = first + nodes + 1, *ranks = sorted + nodes, *scratch = ranks + world;

    if (!first)
        return error_errno(err, CODE_IO, "no memory for the table of %zu ranks", world);
    order_by_node(order->node_of, mesh_world(&order->mesh), order->switch_tree->node_count, first, ranks);
    sort_nodes(switch_tree, sorted, widths);
    print_heading(order, out);
    fprintf(out, "  %-*s  %-*s  %-20s  %-10s  %s\n", widths[0], "switch", widths[1], "node", "ranks", "pp", "dp");
    for (size_t i = 0; i < nodes && rc == 0; i++)
        rc = print_node(order, sorted[i], widths, &ranks[first[sorted[i]]], first[sorted[i] + 1] - first[sorted[i]],
                        scratch, out, err);
    free(first);
    return rc;
}

/* ---- the table of traffic ---------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b, void *switch_tree)
{
    char *const *names = ((const struct switch_tree *)switch_tree)->nodes;

    return strcmp(names[*(const int *)a], names[*(const int *)b]);
}

/* The traffic of block distribution over `nodes`; node_of[world] is scratch. */
static void weigh_block(const struct order *order, const int *nodes, int *node_of, uint64_t *traffic)
{
    place_in_order(order->switch_tree, &order->mesh, order->slots, nodes, node_of);
    place_traffic(order->switch_tree, &order->mesh, order->bytes, node_of, traffic);
}

int order_report_traffic(const struct order *order, FILE *out, struct error *err)
{
    const struct switch_tree *switch_tree = order->switch_tree;
    int *nodes = calloc((size_t)switch_tree->node_count + (size_t)mesh_world(&order->mesh), sizeof *nodes);
    int *node_of = nodes + switch_tree->node_count;
    uint64_t slurm[PLACE_LEVELS + 1], sorted[PLACE_LEVELS + 1];
    char depth_text[64], texts[3][32];

    if (!nodes)
        return error_errno(err, CODE_IO, "no memory for the traffic of %d ranks", mesh_world(&order->mesh));
    weigh_block(order, NULL, node_of, slurm);
    for (int i = 0; i < switch_tree->node_count; i++)
        nodes[i] = i;
    qsort_r(nodes, (size_t)switch_tree->node_count, sizeof *nodes, by_name, (void *)(uintptr_t)switch_tree);
    weigh_block(order, nodes, node_of, sorted);
    fputs("  traffic of a step      this order  Slurm's order   sorted names\n", out);
    for (int depth = 0; depth <= switch_tree->levels; depth++) {
        fprintf(out, "  %-20s  %11s  %13s  %13s\n", order_depth_text(switch_tree, depth, depth_text, sizeof depth_text),
                order_bytes_text(order->cost.traffic[depth], texts[0], sizeof texts[0]),
                order_bytes_text(slurm[depth], texts[1], sizeof texts[1]),
                order_bytes_text(sorted[depth], texts[2], sizeof texts[2]));
    }
    free(nodes);
    return 0;
}

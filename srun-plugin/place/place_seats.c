#include <stdlib.h>
#include <string.h>

#include "srun-plugin/place/place_impl.h"

/* Slots that no whole seat takes, while seats are pieced together from them. */
struct rest {
    int node, slots, at; /* `at`: the switch that they have come up to */
};

static int by_slots(const void *a, const void *b)
{
    const struct rest *left = a, *right = b;

    if (left->slots != right->slots)
        return left->slots > right->slots ? -1 : 1;
    return left->node < right->node ? -1 : left->node > right->node;
}

static void add_leaf(struct seats *seats, int parent, int first, int count, int node, int split)
{
    struct vertex *parents = seats->vertices;

    parents[seats->count] = (struct vertex){.parent = parent,
                                            .depth = parents[parent].depth + 1,
                                            .seats = count,
                                            .first = first,
                                            .node = node,
                                            .split = split};
    seats->count++;
}

/* One seat from the rests at `rest` on, which have slots enough, the fullest first; returns where to go on. */
static struct rest *piece_together(struct seats *seats, struct rest *rest, int parent, int tp)
{
    int *hosts = &seats->hosts[(size_t)seats->splits * (size_t)tp], placed = 0;

    while (placed < tp) {
        if (rest->slots == 0) {
            rest++;
            continue;
        }
        hosts[placed++] = rest->node;
        rest->slots--;
    }
    add_leaf(seats, parent, hosts[0], 1, -1, seats->splits);
    seats->splits++;
    return rest;
}

/* From the deepest switches up: seats of what is left over beneath each, until there are `wanted`. */
static void piece_all(struct seats *seats, const struct cluster *cluster, struct rest *rests, int count, int tp,
                      int wanted)
{
    for (int at = cluster->switch_count - 1; at >= 0 && seats->splits < wanted; at--) {
        int here = 0;
        long slots = 0;

        for (int i = 0; i < count; i++)
            if (rests[i].at == at) { /* to the front: what is here */
                struct rest swap = rests[here];

                rests[here++] = rests[i];
                rests[i] = swap;
            }
        for (int i = 0; i < here; i++)
            slots += rests[i].slots;
        if (slots >= tp)
            qsort(rests, (size_t)here, sizeof *rests, by_slots);
        for (struct rest *next = rests; slots >= tp && seats->splits < wanted; slots -= tp)
            next = piece_together(seats, next, at, tp);
        for (int i = 0; i < here; i++)
            rests[i].at = cluster->switches[at].parent;
    }
}

static int by_first(const void *a, const void *b, void *vertices)
{
    const struct vertex *left = (const struct vertex *)vertices + *(const int *)a;
    const struct vertex *right = (const struct vertex *)vertices + *(const int *)b;

    if (left->first != right->first)
        return left->first < right->first ? -1 : 1;
    return *(const int *)a < *(const int *)b ? -1 : 1;
}

/* Counts seats upwards, and gives every switch the list of those of its children that have any. */
static void link_vertices(struct seats *seats, int switches)
{
    struct vertex *vertices = seats->vertices;
    int begin = 0;

    for (int i = seats->count - 1; i > 0; i--) { /* leaves come last, parents before children */
        struct vertex *parent = &vertices[vertices[i].parent];

        if (!vertices[i].seats)
            continue;
        parent->seats += vertices[i].seats;
        parent->children++;
        if (vertices[i].first < parent->first)
            parent->first = vertices[i].first;
    }
    for (int i = 0; i < switches; i++) {
        vertices[i].begin = begin;
        begin += vertices[i].children;
        vertices[i].children = 0;
    }
    for (int i = 1; i < seats->count; i++) {
        struct vertex *parent = &vertices[vertices[i].parent];

        if (vertices[i].seats)
            seats->children[parent->begin + parent->children++] = i;
    }
    for (int i = 0; i < switches; i++)
        qsort_r(&seats->children[vertices[i].begin], (size_t)vertices[i].children, sizeof *seats->children, by_first,
                vertices);
}

static void fill_seats(struct seats *seats, const struct cluster *cluster, int tp, int cells, const int *slots,
                       struct rest *rests)
{
    int whole = 0;

    for (int i = 0; i < cluster->switch_count; i++)
        seats->vertices[seats->count++] = (struct vertex){.parent = cluster->switches[i].parent,
                                                          .depth = cluster->switches[i].depth,
                                                          .first = cluster->node_count,
                                                          .node = -1,
                                                          .split = -1};
    for (int node = 0; node < cluster->node_count; node++) {
        add_leaf(seats, cluster->above[node], node, slots[node] / tp, node, -1);
        rests[node] = (struct rest){.node = node, .slots = slots[node] % tp, .at = cluster->above[node]};
        whole += slots[node] / tp;
    }
    if (whole < cells)
        piece_all(seats, cluster, rests, cluster->node_count, tp, cells - whole);
    link_vertices(seats, cluster->switch_count);
}

struct seats *seats_create(const struct cluster *cluster, int tp, int cells, const int *slots, struct error *err)
{
    size_t most = (size_t)cluster->switch_count + (size_t)cluster->node_count + (size_t)cells;
    struct rest *rests = calloc((size_t)cluster->node_count, sizeof *rests);
    struct seats *seats = calloc(1, sizeof *seats);

    if (!seats || !rests)
        goto fail;
    seats->levels = cluster->levels;
    seats->vertices = calloc(most, sizeof *seats->vertices);
    seats->children = calloc(most, sizeof *seats->children);
    seats->hosts = calloc((size_t)cells * (size_t)tp, sizeof *seats->hosts);
    if (!seats->vertices || !seats->children || !seats->hosts)
        goto fail;
    fill_seats(seats, cluster, tp, cells, slots, rests);
    free(rests);
    return seats;
fail:
    error_errno(err, CODE_IO, "no memory to place %d groups of ranks", cells);
    free(rests);
    seats_destroy(seats);
    return NULL;
}

void seats_destroy(struct seats *seats)
{
    if (!seats)
        return;
    free(seats->vertices);
    free(seats->children);
    free(seats->hosts);
    free(seats);
}

int seats_meet(const struct seats *seats, int a, int b)
{
    const struct vertex *vertices = seats->vertices;

    if (a == b)
        return seats->levels;
    while (a != b) {
        if (vertices[a].depth >= vertices[b].depth)
            a = vertices[a].parent;
        else
            b = vertices[b].parent;
    }
    return vertices[a].depth;
}

void grid_traffic(const struct seats *seats, const struct grid *grid, const int *leaf, uint64_t *traffic)
{
    memset(traffic, 0, ((size_t)seats->levels + 1) * sizeof *traffic);
    for (int cell = 0; cell < grid->cells; cell++) {
        int column = cell % grid->dp, right = column + 1 < grid->dp ? cell + 1 : cell - column;

        if (grid->dp > 1)
            traffic[seats_meet(seats, leaf[cell], leaf[right])] += grid->along_dp;
        if (cell + grid->dp < grid->cells)
            traffic[seats_meet(seats, leaf[cell], leaf[cell + grid->dp])] += grid->along_pp;
    }
}

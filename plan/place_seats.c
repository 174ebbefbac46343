/* The tree of seats: whole seats of the nodes, and seats split over several nodes. */
#include <stdlib.h>

#include "plan/place_impl.h"

/* The slots of a node that are too few for a seat, while split seats are made of them. */
struct rest {
    int node, slots, at; /* `at`: the switch under which they are used next */
};

static int by_slots(const void *a, const void *b)
{
    const struct rest *left = a, *right = b;

    if (left->slots != right->slots)
        return left->slots > right->slots ? -1 : 1;
    return left->node < right->node ? -1 : left->node > right->node;
}

static void add_holder(struct seat_tree *tree, int parent, int first, int count, int node, int split)
{
    struct vertex *parents = tree->vertices;

    parents[tree->count] = (struct vertex){.parent = parent,
                                           .depth = parents[parent].depth + 1,
                                           .seat_count = count,
                                           .first = first,
                                           .node = node,
                                           .split = split};
    tree->count++;
}

/*
 * Makes one split seat of the slots of rest[0], rest[1], ..., the largest first; they are enough. Returns the first
 * entry that may have slots left.
 */
static struct rest *add_split(struct seat_tree *tree, struct rest *rest, int parent, int tp)
{
    int *nodes = &tree->split_nodes[(size_t)tree->splits * (size_t)tp], placed = 0;

    while (placed < tp) {
        if (rest->slots == 0) {
            rest++;
            continue;
        }
        nodes[placed++] = rest->node;
        rest->slots--;
    }
    add_holder(tree, parent, nodes[0], 1, -1, tree->splits);
    tree->splits++;
    return rest;
}

/* Makes split seats under each switch, from the deepest switches up, until there are `wanted`. */
static void split_seats(struct seat_tree *tree, const struct switch_tree *switch_tree, struct rest *rests, int count,
                        int tp, int wanted)
{
    for (int at = switch_tree->switch_count - 1; at >= 0 && tree->splits < wanted; at--) {
        int here = 0;
        long slots = 0;

        for (int i = 0; i < count; i++)
            if (rests[i].at == at) { /* those under this switch to the front */
                struct rest swap = rests[here];

                rests[here++] = rests[i];
                rests[i] = swap;
            }
        for (int i = 0; i < here; i++)
            slots += rests[i].slots;
        if (slots >= tp)
            qsort(rests, (size_t)here, sizeof *rests, by_slots);
        for (struct rest *next = rests; slots >= tp && tree->splits < wanted; slots -= tp)
            next = add_split(tree, next, at, tp);
        for (int i = 0; i < here; i++)
            rests[i].at = switch_tree->switches[at].parent;
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

/* Counts the seats under each switch, and lists those of its children that have any. */
static void link_vertices(struct seat_tree *tree, int switches)
{
    struct vertex *vertices = tree->vertices;
    int begin = 0;

    for (int i = tree->count - 1; i > 0; i--) { /* holders come last, parents before children */
        struct vertex *parent = &vertices[vertices[i].parent];

        if (!vertices[i].seat_count)
            continue;
        parent->seat_count += vertices[i].seat_count;
        parent->child_count++;
        if (vertices[i].first < parent->first)
            parent->first = vertices[i].first;
    }
    for (int i = 0; i < switches; i++) {
        vertices[i].first_child = begin;
        begin += vertices[i].child_count;
        vertices[i].child_count = 0;
    }
    for (int i = 1; i < tree->count; i++) {
        struct vertex *parent = &vertices[vertices[i].parent];

        if (vertices[i].seat_count)
            tree->children[parent->first_child + parent->child_count++] = i;
    }
    for (int i = 0; i < switches; i++)
        qsort_r(&tree->children[vertices[i].first_child], (size_t)vertices[i].child_count, sizeof *tree->children,
                by_first, vertices);
}

static void fill_seats(struct seat_tree *tree, const struct switch_tree *switch_tree, int tp, int cells,
                       const int *slots, struct rest *rests)
{
    int whole = 0;

    for (int i = 0; i < switch_tree->switch_count; i++)
        tree->vertices[tree->count++] = (struct vertex){.parent = switch_tree->switches[i].parent,
                                                        .depth = switch_tree->switches[i].depth,
                                                        .first = switch_tree->node_count,
                                                        .node = -1,
                                                        .split = -1};
    for (int node = 0; node < switch_tree->node_count; node++) {
        add_holder(tree, switch_tree->above[node], node, slots[node] / tp, node, -1);
        rests[node] = (struct rest){.node = node, .slots = slots[node] % tp, .at = switch_tree->above[node]};
        whole += slots[node] / tp;
    }
    if (whole < cells)
        split_seats(tree, switch_tree, rests, switch_tree->node_count, tp, cells - whole);
    link_vertices(tree, switch_tree->switch_count);
}

struct seat_tree *seat_tree_create(const struct switch_tree *switch_tree, int tp, int cells, const int *slots,
                                   struct error *err)
{
    size_t most = (size_t)switch_tree->switch_count + (size_t)switch_tree->node_count + (size_t)cells;
    struct rest *rests = error_calloc((size_t)switch_tree->node_count, sizeof *rests, err);
    struct seat_tree *tree = error_calloc(1, sizeof *tree, err);

    if (!tree || !rests)
        goto fail;
    tree->levels = switch_tree->levels;
    tree->vertices = error_calloc(most, sizeof *tree->vertices, err);
    tree->children = error_calloc(most, sizeof *tree->children, err);
    tree->split_nodes = error_calloc((size_t)cells * (size_t)tp, sizeof *tree->split_nodes, err);
    if (!tree->vertices || !tree->children || !tree->split_nodes)
        goto fail;
    fill_seats(tree, switch_tree, tp, cells, slots, rests);
    free(rests);
    return tree;
fail:
    free(rests);
    seat_tree_destroy(tree);
    return NULL;
}

void seat_tree_destroy(struct seat_tree *tree)
{
    if (!tree)
        return;
    free(tree->vertices);
    free(tree->children);
    free(tree->split_nodes);
    free(tree);
}

int seat_tree_meet(const struct seat_tree *tree, int a, int b)
{
    const struct vertex *vertices = tree->vertices;

    if (a == b)
        return tree->levels;
    while (a != b) {
        int depth = vertices[a].depth < vertices[b].depth ? vertices[b].depth : vertices[a].depth;

        a = vertices[a].depth == depth ? vertices[a].parent : a;
        b = vertices[b].depth == depth ? vertices[b].parent : b;
    }
    return vertices[a].depth;
}

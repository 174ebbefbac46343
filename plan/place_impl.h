/*
 * place_impl.h - internal interface of the files that implement place.h.
 *
 * A *cell* is a tp group: cell = pp_index * dp + dp_index, so rank = cell * tp + tp_index. Cells are a grid of pp rows
 * and dp columns; rows are rings, columns are chains. A *seat* takes one cell: tp slots of one node, or of several if
 * no node has enough free slots (a split seat).
 *
 * The seats form a tree: the switches, and under them the *holders* of seats. A holder is a node with its whole seats,
 * or one split seat, which is under the lowest switch that has all of its slots.
 *
 * place.c tries several orders and keeps the best: it divides the grid over the tree (place_divide.c), improves that
 * (place_search.c), searches all orders if there are few (place_search.c), and compares with Slurm's order.
 */
#ifndef MUSTER_PLAN_PLACE_IMPL_H
#define MUSTER_PLAN_PLACE_IMPL_H

#include "plan/place.h"

struct vertex {
    int parent, depth;
    int seat_count;  /* beneath it */
    int first;       /* smallest node under it: among equals, Slurm's order wins */
    int child_count; /* 0 for a holder */
    int first_child; /* its children are children[first_child ...] of the tree */
    int node;        /* -1 for a switch, and for a split seat */
    int split;       /* of a split seat: its nodes are split_nodes[split * tp ...]; else -1 */
};

struct seat_tree {
    struct vertex *vertices; /* the switches by their numbers in the switch tree, then holders */
    int count;
    int *children;
    int *split_nodes; /* [splits][tp] nodes of the split seats */
    int splits;
    int levels; /* of the switch tree */
};

/* The cells of the mesh and what an edge between two of them costs. */
struct grid {
    int dp, pp, cells;
    uint64_t along_dp, along_pp; /* bytes of an edge between neighbouring cells: those of all tp ranks */
};

/* ---- place_seats.c ---- */

/* At least `cells` seats; split ones only as far as nodes have no room. */
struct seat_tree *seat_tree_create(const struct switch_tree *switch_tree, int tp, int cells, const int *slots,
                                   struct error *err);
void seat_tree_destroy(struct seat_tree *tree);

/* The depth at which two holders meet; tree->levels when they are one. */
int seat_tree_meet(const struct seat_tree *tree, int a, int b);

/* ---- place_divide.c ---- */

/*
 * Divides the grid from the root down; holder[cell] becomes the vertex that has the cell's seat. If two divisions cut
 * the same number of bytes, the one tried first is kept. columns_first says which kind is tried first.
 */
int place_divide(const struct seat_tree *tree, const struct grid *grid, bool columns_first, int *holder,
                 struct error *err);

/* ---- place_search.c ---- */

/*
 * Improves holder[] by exchanging cells and moving them to free seats, until that no longer reduces the traffic or
 * `budget` is spent.
 */
int place_refine(const struct seat_tree *tree, const struct grid *grid, long budget, int *holder, struct error *err);

/*
 * Searches all orders for one with less traffic than `traffic`, and if there is one, sets holder[] to the best. Skips
 * what cannot be better, and what differs only in the names of equal switches and nodes. True if the search was
 * complete within its budget; false also if seats are split.
 */
bool place_exact(const struct seat_tree *tree, const struct grid *grid, const uint64_t *traffic, int *holder);

#endif

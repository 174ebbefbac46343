/*
 * place_impl.h - between the files of place.h.
 *
 * A *cell* is a tp group: cell = pp_index * dp + dp_index, so rank = cell * tp + tp_index. Cells are a grid of pp rows
 * and dp columns; rows are rings, columns are lines. A *seat* takes one cell: tp slots of one node, or of several if no
 * node has room.
 *
 * The seats form a tree: the switches of the cluster, under them the nodes with their number of seats, and one leaf for
 * each seat that is divided over nodes, under the lowest switch that has all of its slots.
 */
#ifndef MUSTER_SRUN_PLUGIN_PLACE_IMPL_H
#define MUSTER_SRUN_PLUGIN_PLACE_IMPL_H

#include "srun-plugin/place/place.h"

struct vertex {
    int parent, depth;
    int seats;           /* beneath it */
    int first;           /* smallest node under it: among equals, Slurm's order wins */
    int children, begin; /* children[begin ...] of the tree; 0 for a leaf */
    int node;            /* of a leaf; -1 for a switch, and for a divided seat */
    int split;           /* of a divided seat: its hosts are hosts[split * tp ...]; else -1 */
};

struct seats {
    struct vertex *vertices; /* the cluster's switches by their own numbers, then leaves */
    int count;
    int *children;
    int *hosts; /* [splits][tp] nodes of the divided seats */
    int splits;
    int levels; /* of the cluster */
};

/* The cells of the mesh and what an edge between two of them costs. */
struct grid {
    int dp, pp, cells;
    uint64_t along_dp, along_pp; /* bytes of an edge between neighbouring cells: those of all tp ranks */
};

/* At least grid->cells seats; divided ones only as far as nodes have no room. */
struct seats *seats_create(const struct cluster *cluster, int tp, int cells, const int *slots, struct error *err);
void seats_destroy(struct seats *seats);

/*
 * Divides the grid from the root down; leaf[cell] becomes a vertex. Of two divisions that cut the same the first tried
 * is taken: columns_first chooses which.
 */
int place_divide(const struct seats *seats, const struct grid *grid, bool columns_first, int *leaf, struct error *err);

/*
 * Improves leaf[] by exchanging cells and moving them to free seats, until that no longer reduces the traffic or
 * `budget` is spent.
 */
int place_refine(const struct seats *seats, const struct grid *grid, long budget, int *leaf, struct error *err);

/*
 * Searches all orders for one better than leaf[], and replaces it. Skips what cannot be better, and what differs only in
 * the names of equal switches and nodes. True if the search was complete within its budget.
 */
bool place_exact(const struct seats *seats, const struct grid *grid, int *leaf);

/* As place_traffic, for cells: a divided seat counts as standing at the first of its hosts' switches. traffic[levels].
 */
void grid_traffic(const struct seats *seats, const struct grid *grid, const int *leaf, uint64_t *traffic);

/* The depth at which two leaves meet; seats->levels when they are one. */
int seats_meet(const struct seats *seats, int a, int b);

#endif

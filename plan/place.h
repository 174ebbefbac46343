/*
 * place.h - which node each rank of a mesh gets. Pure. Called by srun-plugin/order/order.h.
 *
 * The model of traffic, for one training step:
 *
 *   tp   the ranks of a tensor-parallel group form a ring: rank i sends bytes[PLACE_TP] to rank i + 1, the last to the
 *        first. Collectives over the group go along that ring.
 *   dp   the same, with bytes[PLACE_DP]. A run of ring neighbours under one switch has one edge into the switch and
 *        one out of it. A tree is taken to cross as often as the ring.
 *   pp   stage i exchanges bytes[PLACE_PP] with stage i + 1 (activations and gradients together); the last stage and
 *        the first exchange nothing here: interleaved schedules and tied embeddings cost more than counted.
 *
 * An edge between two ranks is charged to the depth at which their nodes meet (below): traffic[0] crosses the
 * switches at the top, traffic[levels] stays within a node. Links are not modelled: neither the number of uplinks nor
 * the path of a packet. The only assumption is that bandwidth does not grow towards the top.
 *
 * The better of two orders has less traffic[0]; if equal, less traffic[1]; and so on. A byte saved further up is worth
 * any number of bytes below.
 *
 * One rule comes before traffic: tp groups stay within a node while nodes have room for them. A tp group that fits into
 * no node is split over as few nodes as possible, under the lowest switch that has room.
 */
#ifndef MUSTER_PLAN_PLACE_H
#define MUSTER_PLAN_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/job.h"
#include "common/mesh.h"

/* ---- the tree of switches ---------------------------------------------------------------------------------------- */

/*
 * The tree of switches above the nodes of a job; switch_tree_create (srun-plugin/order/order.h) builds it. The root is
 * switch 0: the one switch above all others, or else a switch without a name that joins the topmost ones. Nodes that no
 * switch names are under the root.
 *
 * Depth: the root has 0, its children 1, ... Two nodes *meet* at the depth of the lowest switch above both; at depth 0
 * the path between them goes over the root. `levels` is one more than the depth of the deepest switch: the depth at
 * which a node meets itself.
 */
struct tree_switch {
    char *name; /* "" for a root that only joins */
    int parent; /* smaller than its own index; -1 for the root */
    int depth;
};

struct switch_tree {
    char **nodes; /* in the order of the allocation, which is Slurm's */
    int *above;   /* [node_count] the switch right above a node */
    int node_count;
    struct tree_switch *switches; /* parents before children, siblings as in the text */
    int switch_count;
    int levels;
    int *path; /* [node_count][levels] the switch at each depth above a node; -1 below the last */
};

void switch_tree_destroy(struct switch_tree *switch_tree);

/* The depth at which two nodes meet; `levels` when they are one. */
int switch_tree_meet(const struct switch_tree *switch_tree, int a, int b);

/* "spine/leaf1", the switches above a node from below the root on; what does not fit is cut. Returns text. */
char *switch_tree_path_name(const struct switch_tree *switch_tree, int node, char *text, size_t size);

/* ---- orders ------------------------------------------------------------------------------------------------------ */

enum place_axis { PLACE_DP, PLACE_PP, PLACE_TP, PLACE_AXES };

#define PLACE_LEVELS 16                  /* of switches, at most; Slurm knows trees of 2 to 4 */
#define PLACE_RANKS  (1 << 20)           /* in a mesh, at most */
#define PLACE_SLOTS  (1 << 24)           /* of all nodes together, at most */
#define PLACE_BYTES  (UINT64_C(1) << 40) /* along one edge, at most: so no sum overflows */

/* What an order costs. */
struct place_cost {
    uint64_t traffic[PLACE_LEVELS + 1];  /* bytes of a step at each depth; see above */
    uint64_t tp_edges[PLACE_LEVELS + 1]; /* edges within tp groups at each depth */
    int split_groups;                    /* tp groups on several nodes */
    bool exact;                          /* place_ranks tried every order: there is no better one */
};

/*
 * Sets node_of[rank], an index of switch_tree->nodes, for the mesh_world() ranks of the mesh. slots[node] is the number
 * of ranks that a node can take, 0 to leave it out; CODE_CONFIG if they are too few for the world. A node's ranks fill
 * its slots in ascending order: the local index of a rank is the number of smaller ranks on its node.
 *
 * Never worse than Slurm's own order (place_in_order of the nodes as listed), unless that order has tp groups further
 * apart. Deterministic, so that every srun gets the same. Small cases are searched exhaustively (`exact`); else the
 * grid of dp x pp groups is divided from the top switch down, along rows, columns or tiles, whichever cuts least.
 */
int place_ranks(const struct switch_tree *switch_tree, const struct mesh *mesh, const uint64_t bytes[PLACE_AXES],
                const int *slots, int *node_of, struct place_cost *cost, struct error *err);

/*
 * Block distribution: ranks fill nodes[0], then nodes[1], ... (all of them, in any order). `nodes` NULL is the
 * nodes as listed, Slurm's default. There must be enough slots.
 */
void place_in_order(const struct switch_tree *switch_tree, const struct mesh *mesh, const int *slots, const int *nodes,
                    int *node_of);

/* What the ranks of a job send to each other in one step: bytes that one rank sends along one edge (plan_traffic in
 * plan/cost.h). Unchanged if the job does not fit the mesh. */
void place_bytes(const struct job *job, const struct mesh *mesh, uint64_t bytes[PLACE_AXES]);

/* The bytes of one step at each depth, traffic[switch_tree->levels + 1]. */
void place_traffic(const struct switch_tree *switch_tree, const struct mesh *mesh, const uint64_t bytes[PLACE_AXES],
                   const int *node_of, uint64_t *traffic);

/* < 0 if a is better, from the top down. Both [levels]. */
int place_compare(const uint64_t *a, const uint64_t *b, int levels);

/* All of an order's cost; `exact` becomes false. */
void place_weigh(const struct switch_tree *switch_tree, const struct mesh *mesh, const uint64_t bytes[PLACE_AXES],
                 const int *node_of, struct place_cost *cost);

/* < 0 if a is better: first by tp groups, then by traffic. */
int place_compare_costs(const struct place_cost *a, const struct place_cost *b, int levels);

/*
 * Renumber the ranks of node_of[world] so that rank 0 is on node 0, if rotating the rings of dp, reversing the
 * pipeline, or both can do that: neither changes the traffic. `scratch` holds as many. Returns whether rank 0 is on
 * node 0 now.
 */
bool place_keep_first(const struct mesh *mesh, int *node_of, int *scratch);

#endif

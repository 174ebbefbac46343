/*
 * place.h - which node each rank of a mesh gets. Pure.
 *
 * The model of traffic, for one training step:
 *
 *   tp   the ranks of a tensor-parallel group form a ring: rank i sends bytes[PLACE_TP] to rank i + 1, the last to the
 *        first. Collectives over the group go along that ring.
 *   dp   the same, with bytes[PLACE_DP]. A ring and a tree over the group both cross a switch once in and once out for
 *        every run of neighbours under it; this is what is counted.
 *   pp   stage i exchanges bytes[PLACE_PP] with stage i + 1 (activations and gradients together); the last stage and
 *        the first exchange nothing here: interleaved schedules and tied embeddings cost more than counted.
 *
 * An edge between two ranks is charged to the depth at which their nodes meet (cluster.h): traffic[0] crosses the
 * switches at the top, traffic[levels] stays within a node. Links are not modelled: neither the number of uplinks nor the
 * path of a packet. The only assumption is that bandwidth does not grow towards the top.
 *
 * The better of two orders has less traffic[0]; if equal, less traffic[1]; and so on. A byte saved further up is worth any
 * number of bytes below.
 *
 * One rule comes before: tp groups stay within a node while nodes have room for them. The other groups get few nodes,
 * under the lowest switch that has room.
 */
#ifndef MUSTER_SRUN_PLUGIN_PLACE_H
#define MUSTER_SRUN_PLUGIN_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/job.h"
#include "common/mesh.h"
#include "srun-plugin/place/cluster.h"

enum place_axis { PLACE_DP, PLACE_PP, PLACE_TP, PLACE_AXES };

#define PLACE_LEVELS 16                  /* of switches, at most; Slurm knows trees of 2 to 4 */
#define PLACE_RANKS  (1 << 20)           /* in a mesh, at most */
#define PLACE_SLOTS  (1 << 24)           /* of all nodes together, at most */
#define PLACE_BYTES  (UINT64_C(1) << 40) /* along one edge, at most: so no sum overflows */

struct place_report {
    uint64_t traffic[PLACE_LEVELS + 1]; /* bytes at each depth; see above */
    int split_groups;                   /* tp groups that no node could hold */
    bool exact;                         /* every order was tried: there is no better one */
};

/*
 * order[rank] = the node of the rank (an index of cluster->nodes), for the mesh_world() ranks of the mesh. slots[node] is
 * the number of ranks that a node can take, 0 to leave it out; CODE_CONFIG if they are too few for the world. A node's
 * ranks fill its slots in ascending order: the local index of a rank is the number of smaller ranks on its node.
 *
 * Never worse than Slurm's own order (place_in_order of the nodes as listed), unless that order has tp groups further
 * apart. Deterministic, so that every srun gets the same. Small cases are searched exhaustively (`exact`); else the grid
 * of dp x pp groups is divided from the top switch down, along rows, columns or tiles, whichever cuts least.
 */
int place_ranks(const struct cluster *cluster, const struct mesh *mesh, const uint64_t bytes[PLACE_AXES],
                const int *slots, int *order, struct place_report *report, struct error *err);

/*
 * Block distribution: ranks fill nodes[0], then nodes[1], ... (all of the cluster, in any order). `nodes` NULL is the
 * nodes as listed, Slurm's default. There must be enough slots.
 */
void place_in_order(const struct cluster *cluster, const struct mesh *mesh, const int *slots, const int *nodes,
                    int *order);

/* The nodes sorted as strings by sort(1): n1, n10, n2, ... nodes[node_count]. */
void place_alphabetical(const struct cluster *cluster, int *nodes);

/*
 * What the ranks of a job send to each other in one step.
 *
 * Bytes that one rank sends along one edge (place.h), of a model of P parameters and L layers of width d, on sequences
 * of s tokens, elements of e bytes, m micro-batches of b samples:
 *
 *   dp   a ring's reduce-scatter and all-gather each pass (dp - 1) / dp of what is summed: P / (tp pp) elements.
 *        Two of them, three for ZeRO-3, which gathers parameters for the backward pass again.
 *   pp   m b s d e for the activations, as much for their gradients; chunks times, if stages are interleaved. Each of
 *        the tp ranks sends its part.
 *   tp   two all-reduces a layer and pass (arXiv 1909.08053, section 3), each 2 (tp - 1) / tp of b s d e, for the
 *        L / pp layers of a stage. With recompute the forward pass counts twice.
 *
 * Rounded, and without embeddings, heads and scalars: it decides which axis is the heavier, not how long a step takes.
 */
void place_bytes(const struct job *job, const struct mesh *mesh, uint64_t bytes[PLACE_AXES]);

/* The bytes of one step at each depth, traffic[cluster->levels + 1]. */
void place_traffic(const struct cluster *cluster, const struct mesh *mesh, const uint64_t bytes[PLACE_AXES],
                   const int *order, uint64_t *traffic);

/* < 0 if a is better, from the top down. Both [levels]. */
int place_compare(const uint64_t *a, const uint64_t *b, int levels);

/* ---- an order, for Slurm and for the trainer ---------------------------------------------------------------------- */

/*
 * The text of a host file, a line with a host for each rank, to be freed. With it in SLURM_HOSTFILE and
 * SLURM_DISTRIBUTION=arbitrary, Slurm starts rank i on the host in line i. NULL and CODE_IO without memory.
 */
char *place_hostfile(const struct cluster *cluster, const int *order, int world, struct error *err);

/*
 * For MUSTER_RANK_MAP (common/rank_map.h): map[slurm_rank] = its rank in the mesh, given order[] and the node
 * slurm_nodes[slurm_rank] that Slurm chose. The n-th of Slurm's ranks on a node is the n-th of the mesh's there: local
 * ranks agree. CODE_CONFIG unless both give every node as many ranks: place_ranks needs Slurm's counts as slots.
 */
int place_rank_map(const struct cluster *cluster, const int *order, const int *slurm_nodes, int world, int *map,
                   struct error *err);

/*
 * Renumber the ranks of order[world] so that rank 0 is on node 0, if the traffic of place_traffic stays the same: by
 * turning the rings of dp and reversing the pipeline. `room` holds as many. Returns whether rank 0 is on node 0 now.
 */
bool place_keep_first(const struct mesh *mesh, int *order, int *room);

#endif

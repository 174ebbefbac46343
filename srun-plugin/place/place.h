/*
 * place.h - which node each rank of a mesh gets. Pure.
 *
 * The model of traffic, for one training step:
 *
 *   tp   the ranks of a tensor-parallel group form a ring: rank i sends bytes[PLACE_TP] to rank i + 1, the last to the
 *        first. Collectives over the group go along that ring.
 *   dp   the same, with bytes[PLACE_DP]. A ring or a tree over the group's order alike crosses a switch once in and
 *        once out for every run of neighbours beneath it, which is what is counted here.
 *   pp   stage i exchanges bytes[PLACE_PP] with stage i + 1 (activations and gradients together); the last stage and
 *        the first exchange nothing, so interleaved schedules and tied embeddings cost more than is said here.
 *
 * An edge between two ranks is charged to the depth at which their nodes meet (cluster.h): traffic[0] crosses the
 * switches at the top, traffic[levels] stays within a node. Links are not modelled: neither how many uplinks a switch
 * has nor which path a packet takes; that networks thin out towards the top, or are at best even, is all that is
 * assumed.
 *
 * Which of two orders is better is therefore decided at the top: less traffic[0]; among equals less traffic[1]; and so
 * on. A byte saved further up is worth any number of bytes below.
 *
 * The one rule above that: tp comes first. A group stays within a node as long as there are nodes with room for all
 * groups. Groups for which there is no such room get few nodes, beneath the lowest switch that has room for them.
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
    bool exact;                         /* every order was weighed: there is no better one */
};

/*
 * order[rank] = the node that the rank gets (an index of cluster->nodes), for the mesh_world() ranks of the mesh.
 * slots[node] is how many ranks a node can take, 0 for a node to be left alone; all together at least the world, else
 * CODE_CONFIG. A node's ranks fill its slots in ascending order, so a rank's local index is the number of smaller ranks
 * on its node.
 *
 * Never worse than Slurm's own order (place_in_order over the nodes as they come), unless that order takes tp groups
 * further apart. Deterministic: srun may ask on every start. Small cases are weighed exhaustively and said
 * to be exact; else the grid of dp x pp groups is divided from the top switch down, each switch among those beneath it,
 * along rows, columns or tiles, whichever cuts least.
 */
int place_ranks(const struct cluster *cluster, const struct mesh *mesh, const uint64_t bytes[PLACE_AXES],
                const int *slots, int *order, struct place_report *report, struct error *err);

/*
 * Block distribution: ranks in turn fill nodes[0], nodes[1], ... (all of the cluster, in any order). With `nodes` NULL
 * the nodes as they come, which is Slurm's default. There must be slots enough.
 */
void place_in_order(const struct cluster *cluster, const struct mesh *mesh, const int *slots, const int *nodes,
                    int *order);

/* The nodes sorted as strings: n1, n10, n2, ...; what a list made by hand with sort(1) gives. nodes[node_count]. */
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

/* < 0 when a is the better, from the top down. Both [levels]. */
int place_compare(const uint64_t *a, const uint64_t *b, int levels);

/* ---- an order, for Slurm and for the trainer ---------------------------------------------------------------------- */

/*
 * The text of a host file, a line with a host for each rank, to be freed. With it in SLURM_HOSTFILE and
 * SLURM_DISTRIBUTION=arbitrary, Slurm starts rank i on the host in line i. NULL and CODE_IO without memory.
 */
char *place_hostfile(const struct cluster *cluster, const int *order, int world, struct error *err);

/*
 * map[slurm_rank] = the rank of the mesh that it plays, when order[] is to hold and slurm_nodes[slurm_rank] is the node
 * that Slurm gave it. The n-th of Slurm's ranks on a node plays the n-th of the mesh's: local ranks agree. CODE_CONFIG
 * if the two do not give every node the same number of ranks: place_ranks must have got Slurm's counts as slots.
 */
int place_rank_map(const struct cluster *cluster, const int *order, const int *slurm_nodes, int world, int *map,
                   struct error *err);

/*
 * Renames the ranks of order[world] so that rank 0 is on node 0, if that costs nothing: rings of dp are turned, a
 * pipeline is turned round, tp groups stay as they are, and the traffic of place_traffic is the same. `room` holds as
 * many. Returns whether rank 0 is on node 0 now.
 */
bool place_keep_first(const struct mesh *mesh, int *order, int *room);

#endif

/*
 * place_apply.h - an order of place.h in the words of Slurm, or of the trainer. Pure.
 *
 * Before launch: the text of a host file, for SLURM_HOSTFILE with SLURM_DISTRIBUTION=arbitrary: Slurm then gives rank i
 * to the host in line i, and the order is Slurm's own. After: a map for MUSTER_RANK_MAP (common/rank_map.h); Slurm's
 * ranks stay as they are.
 */
#ifndef MUSTER_SRUN_PLUGIN_PLACE_APPLY_H
#define MUSTER_SRUN_PLUGIN_PLACE_APPLY_H

#include <stdbool.h>

#include "common/error.h"
#include "common/mesh.h"
#include "srun-plugin/cluster.h"

/* A line with a host for each rank; to be freed. NULL and CODE_IO without memory. */
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

/*
 * mesh.h - ranks and their coordinates: world = dp x pp x tp; and the map from Slurm's ranks to them. Pure functions.
 *
 * tp ranks are adjacent, so that they share a node; then dp, and pp outermost:
 *
 *     rank = (pp_index * dp + dp_index) * tp + tp_index
 */
#ifndef MUSTER_COMMON_MESH_H
#define MUSTER_COMMON_MESH_H

#include "common/error.h"

struct mesh {
    int dp, tp, pp;
};

struct mesh_coords {
    int dp, tp, pp; /* 0-based index on each axis */
};

/* The mesh of `world` ranks with tp and pp given; fails with CODE_CONFIG when tp * pp does not divide world. */
int mesh_fit(struct mesh *mesh, int world, int tp, int pp, struct error *err);

int mesh_world(const struct mesh *mesh);
struct mesh_coords mesh_coords(const struct mesh *mesh, int rank);
int mesh_rank(const struct mesh *mesh, struct mesh_coords coords);

/*
 * An even split: part `index` of `parts` of `count` items is [*first, *first + the value returned). Sizes differ by at
 * most one. Used for samples over dp ranks, and for tensors and the vocabulary over tp ranks.
 */
long mesh_even_split(long count, int parts, int index, long *first);

/*
 * The map from Slurm's ranks to ranks of the mesh, as text for MUSTER_RANK_MAP. Used where Slurm's own order can no
 * longer be changed (before launch, a host file changes it): a task keeps its SLURM_PROCID and is rank
 * map[SLURM_PROCID] of the mesh. The text lists map[0], map[1], ...:
 *
 *     0-7,16-23,8-15      runs of neighbours
 *     0-56:8,1-57:8       0, 8, 16, ..., 56, 1, 9, ...: runs with a step
 *     5                   a run of one
 *
 * The identity map of 8 ranks is "0-7".
 */

/* Most bytes of text: Linux refuses a variable of 128 KiB, its name included. */
#define RANK_MAP_TEXT 120000

/* The text; the caller frees it. NULL with CODE_CONFIG if longer than RANK_MAP_TEXT, with CODE_IO if out of memory. */
char *rank_map_text(const int *map, int world, struct error *err);

/* map[world] from text. CODE_CONFIG unless it names each of the ranks 0 .. world - 1 once. */
int rank_map_parse(const char *text, int world, int *map, struct error *err);

#endif

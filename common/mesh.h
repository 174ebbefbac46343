/*
 * mesh.h - ranks and their coordinates: world = dp x pp x tp.
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

struct mesh_place {
    int dp, tp, pp; /* 0-based index on each axis */
};

/* The mesh of `world` ranks with tp and pp given; fails with CODE_CONFIG when tp * pp does not divide world. */
int mesh_fit(struct mesh *mesh, int world, int tp, int pp, struct error *err);

int mesh_world(const struct mesh *mesh);
struct mesh_place mesh_place(const struct mesh *mesh, int rank);
int mesh_rank(const struct mesh *mesh, struct mesh_place place);

/*
 * An even split: part `index` of `parts` of `count` items is [*first, *first + the value returned). Sizes differ by at
 * most one. Samples are split over dp ranks this way.
 */
long even_split(long count, int parts, int index, long *first);

#endif

/*
 * rank_map.h - the map from Slurm's ranks to ranks of the mesh, as text for MUSTER_RANK_MAP. Pure functions.
 *
 * Used where Slurm's own order can no longer be changed (before launch, a host file changes it): a task keeps its
 * SLURM_PROCID and is rank map[SLURM_PROCID] of the mesh (common/mesh.h). The text lists map[0], map[1], ...:
 *
 *     0-7,16-23,8-15      runs of neighbours
 *     0-56:8,1-57:8       0, 8, 16, ..., 56, 1, 9, ...: runs with a step
 *     5                   a run of one
 *
 * A map of all ranks onto themselves is "0-N".
 */
#ifndef MUSTER_COMMON_RANK_MAP_H
#define MUSTER_COMMON_RANK_MAP_H

#include "common/error.h"

/* Most bytes of text: Linux refuses a variable of 128 KiB, its name included. */
#define RANK_MAP_TEXT 120000

/* The text; the caller frees it. NULL with CODE_CONFIG if longer than RANK_MAP_TEXT, with CODE_IO if out of memory. */
char *rank_map_text(const int *map, int world, struct error *err);

/* map[world] from text. CODE_CONFIG unless it names each of the ranks 0 .. world - 1 once. */
int rank_map_parse(const char *text, int world, int *map, struct error *err);

#endif

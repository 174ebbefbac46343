/*
 * rank_map.h - which logical rank of the mesh each of Slurm's ranks plays, as text for MUSTER_RANK_MAP. Pure.
 *
 * Used where Slurm's own order cannot be changed any more (before launch, a host file does that): Slurm's rank keeps
 * its SLURM_PROCID, and plays rank map[SLURM_PROCID] of the mesh (common/mesh.h). The text lists map[0], map[1], ...:
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

/* Bytes of text, at most: Linux refuses a variable of 128 KiB, its name included. */
#define RANK_MAP_TEXT 120000

/* The text, to be freed. NULL with CODE_CONFIG when it is longer than RANK_MAP_TEXT, and with CODE_IO without memory.
 */
char *rank_map_text(const int *map, int world, struct error *err);

/* map[world] from text. CODE_CONFIG unless it names each of the ranks 0 .. world - 1 once. */
int rank_map_parse(const char *text, int world, int *map, struct error *err);

#endif

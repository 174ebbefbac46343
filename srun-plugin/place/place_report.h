/*
 * place_report.h - tables of a placement. Pure except for `print`, which gets one line at a time, without newline.
 */
#ifndef MUSTER_SRUN_PLUGIN_PLACE_REPORT_H
#define MUSTER_SRUN_PLUGIN_PLACE_REPORT_H

#include <stddef.h>

#include "srun-plugin/place/place.h"

/* A placement and all that belongs to it. Everything is borrowed. */
struct placement {
    const struct cluster *cluster;
    const struct mesh *mesh;
    const uint64_t *bytes; /* [PLACE_AXES] */
    const int *slots;      /* [nodes] */
    const int *order;      /* [world] */
    const struct place_report *report;
};

typedef void place_print(const char *line, void *arg);

/* The nodes by switch, with their ranks and where those are in the mesh. -1 with *err only without memory. */
int place_report_nodes(const struct placement *placement, place_print *print, void *arg, struct error *err);

/* The traffic of a step at each depth, of this order, of Slurm's, and of sorted names. */
int place_report_traffic(const struct placement *placement, place_print *print, void *arg, struct error *err);

/* "1.25 GB" (10^9), into text; returns text. */
char *place_bytes_text(uint64_t bytes, char *text, size_t size);

/* A depth as text: "across spine", "across the top", "1 level below", "within a node". Returns text. */
char *place_depth_text(const struct cluster *cluster, int depth, char *text, size_t size);

/*
 * The ranks by node: ranks[first[node] .. first[node + 1]) ascending. `first` has room for nodes + 1, `ranks` for
 * world.
 */
void place_by_node(const struct placement *placement, int *first, int *ranks);

#endif

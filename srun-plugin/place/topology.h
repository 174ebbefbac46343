/*
 * topology.h - parses the lines of a topology.conf; cluster.h makes the tree of them.
 */
#ifndef MUSTER_SRUN_PLUGIN_TOPOLOGY_H
#define MUSTER_SRUN_PLUGIN_TOPOLOGY_H

#include "common/error.h"
#include "srun-plugin/place/hostlist.h"

struct topology_record {
    char *name;                        /* of the switch or block */
    int aggregated;                    /* only while reading: a line for several blocks that Slurm joins */
    struct hostlist *nodes, *switches; /* NULL for none */
    int line;                          /* of the text, from 1 */
};

struct topology {
    struct topology_record *records; /* sorted by name; names differ */
    int count;
};

/* `where` names the text in errors, which are CODE_DATA. */
struct topology *topology_create(const char *text, const char *where, struct error *err);
void topology_destroy(struct topology *topology);

/* The index of the record of that name, -1 if there is none. */
int topology_find(const struct topology *topology, const char *name);

#endif

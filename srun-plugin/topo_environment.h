/*
 * topo_environment.h - what `srun --muster` would set for the ranks of a node, live or replayed: rank_plan.h for each
 * of them, for muster-topo.
 *
 * What only a job has is not made up: MASTER_ADDR, MASTER_PORT and MUSTER_JOB_ID are "(the job's)". Of a replayed node
 * there is no user's environment; libraries and nccl.conf are looked for beneath its root.
 */
#ifndef MUSTER_SRUN_PLUGIN_TOPO_ENVIRONMENT_H
#define MUSTER_SRUN_PLUGIN_TOPO_ENVIRONMENT_H

#include <jansson.h>

#include "srun-plugin/node.h"

struct environment_request {
    const char *root;      /* of node_read */
    unsigned nodes;        /* of the job, and of the step, which has all of them; this node is the first */
    const char *cluster;   /* its name; NULL if not known */
    const char *interface; /* that routes to the other nodes; NULL: that of the default route */
    const char *profiles;  /* a directory in the place of the shipped ones, or NULL */
    const char *site;      /* directory of the site's; NULL for none */
};

struct environment; /* of all ranks of the node */

/* `node` is borrowed, local_ranks at least 1. Broken profiles become notes. NULL and *err. */
struct environment *environment_create(struct node *node, unsigned local_ranks,
                                       const struct environment_request *request, struct error *err);
void environment_destroy(struct environment *environment);

/* A table to standard output: a line a variable, with the values of all ranks where they differ. */
void environment_print(const struct environment *environment);

/* {"profile", "notes", "ranks": [{NAME: {"value", "source", "why", "set"}}]}; NULL when memory is short. */
json_t *environment_json(const struct environment *environment);

#endif

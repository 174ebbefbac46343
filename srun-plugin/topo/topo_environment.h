/*
 * topo_environment.h - the variables that `srun --muster` would set for the ranks of a node, live or replayed, for
 * muster-topo: rank_plan.h for each rank.
 *
 * MASTER_ADDR, MASTER_PORT and MUSTER_JOB_ID are not known without a job: their value is "(of the job)". A replayed
 * node has no user's environment; libraries and nccl.conf are searched below its root.
 */
#ifndef MUSTER_SRUN_PLUGIN_TOPO_TOPO_ENVIRONMENT_H
#define MUSTER_SRUN_PLUGIN_TOPO_TOPO_ENVIRONMENT_H

#include <jansson.h>

#include "srun-plugin/node/node.h"

struct environment_request {
    const char *root;      /* of node_read */
    unsigned nodes;        /* of the job and of its step; this node is the first */
    const char *cluster;   /* its name; NULL if not known */
    const char *interface; /* that routes to the other nodes; NULL: that of the default route */
    const char *profiles;  /* directory of the shipped profiles */
    const char *site;      /* directory of the site's profiles; NULL for none */
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

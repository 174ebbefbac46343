/*
 * nodes.h - which ranks share a node, and which rank of the next node keeps a copy of a rank's shard. Pure functions of
 * the hosts' names; nodes are numbered as they first appear among the ranks.
 */
#ifndef MUSTER_TRAINER_NODES_H
#define MUSTER_TRAINER_NODES_H

#include <stddef.h>

#include "common/error.h"

struct nodes;

/* `host` of rank r begins at hosts + r * stride. */
struct nodes *nodes_create(const char *hosts, size_t stride, int world, struct error *err);
void nodes_destroy(struct nodes *nodes);

int nodes_count(const struct nodes *nodes);
int nodes_of(const struct nodes *nodes, int rank);    /* which node */
int nodes_local(const struct nodes *nodes, int rank); /* its place among its node's ranks; 0 is the first */
int nodes_locals(const struct nodes *nodes, int node);

/*
 * Copies go around in a ring of nodes: what rank `rank` has goes to the next node, whose ranks take turns where they
 * are fewer. In each round a rank sends to one rank at most (*to) and receives from one at most (*from); -1 is none.
 */
int nodes_rounds(const struct nodes *nodes); /* 0 when there is one node */
void nodes_partners(const struct nodes *nodes, int rank, int round, int *to, int *from);

#endif

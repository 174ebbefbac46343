/*
 * nodes.h - the nodes of the ranks, and the partner rank on the next node that keeps a copy of a rank's shard. Pure
 * functions of the hosts' names; nodes are numbered in the order of their lowest ranks.
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
int nodes_local(const struct nodes *nodes, int rank); /* its index among its node's ranks, from 0 */
int nodes_locals(const struct nodes *nodes, int node);

/*
 * Copies go around a ring of nodes: each rank sends to a rank of the next node. If that node has fewer ranks, they
 * receive in several rounds. In each round a rank sends to at most one rank (*to) and receives from at most one
 * (*from); -1 is none.
 */
int nodes_rounds(const struct nodes *nodes); /* 0 when there is one node */
void nodes_partners(const struct nodes *nodes, int rank, int round, int *to, int *from);

#endif

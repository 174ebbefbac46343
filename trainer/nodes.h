/*
 * nodes.h - which ranks share a node, and copies of staged shards on the neighbouring node (checkpoint.partner): if a
 * node is lost for good, its neighbour still has a copy of the saves that were not drained, if it had room.
 *
 * All but nodes_exchange are pure functions of the hosts' names. Nodes are numbered in the order of their
 * lowest ranks.
 */
#ifndef MUSTER_TRAINER_NODES_H
#define MUSTER_TRAINER_NODES_H

#include <stddef.h>

#include "ckpt/stage/stage.h"
#include "trainer/comm/comm.h"

struct nodes {
    int world, count;
    int *of, *local;     /* [world] the node of a rank, and its place among the node's ranks; 0 is the first */
    int *first, *locals; /* [count] the first rank of a node, and how many it has */
};

/* The host of rank r is at hosts + r * stride. To be freed by nodes_free if that succeeds. */
int nodes_find(struct nodes *nodes, const char *hosts, size_t stride, int world, struct error *err);
void nodes_free(struct nodes *nodes);

/*
 * Copies go around a ring of nodes: each rank sends to a rank of the next node. If that node has fewer ranks, they
 * receive in several rounds. In each round a rank sends to at most one rank (*to) and receives from at most one
 * (*from); -1 is none.
 */
int nodes_rounds(const struct nodes *nodes); /* 0 when there is one node */
void nodes_partners(const struct nodes *nodes, int rank, int round, int *to, int *from);

/*
 * Every rank has just staged `save`: sends it to its partner and keeps what it receives. A neighbour that has no room
 * keeps no copy, which is not a failure. Collective.
 */
int nodes_exchange(const struct nodes *nodes, struct ckpt_stage *stage, const struct ckpt_save *save,
                   struct comm *world, struct error *err);

#endif

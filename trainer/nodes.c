#include "trainer/nodes.h"

#include <stdlib.h>
#include <string.h>

struct nodes {
    int world, count;
    int *node, *local;   /* [world] */
    int *first, *locals; /* [count] */
    int *next;           /* [world] the next rank of the same node; -1 */
};

struct nodes *nodes_create(const char *hosts, size_t stride, int world, struct error *err)
{
    struct nodes *n = calloc(1, sizeof *n);
    int *room = n ? calloc((size_t)world, 5 * sizeof *room) : NULL;

    if (!room) {
        free(n);
        error_set(err, CODE_IO, "out of memory for the nodes of %d ranks", world);
        return NULL;
    }
    *n = (struct nodes){.world = world,
                        .node = room,
                        .local = room + world,
                        .first = room + 2 * world,
                        .locals = room + 3 * world,
                        .next = room + 4 * world};
    for (int rank = 0; rank < world; rank++) {
        const char *host = hosts + (size_t)rank * stride;
        int node = 0, last = rank;

        /* Ranks of a node are mostly consecutive, so the newest node is compared first. */
        for (node = n->count - 1; node >= 0; node--)
            if (strcmp(hosts + (size_t)n->first[node] * stride, host) == 0)
                break;
        if (node < 0) {
            node = n->count++;
            n->first[node] = rank;
        } else {
            for (last = n->first[node]; n->next[last] >= 0; last = n->next[last])
                ;
            n->next[last] = rank;
        }
        n->node[rank] = node;
        n->local[rank] = n->locals[node]++;
        n->next[rank] = -1;
    }
    return n;
}

void nodes_destroy(struct nodes *nodes)
{
    if (nodes)
        free(nodes->node);
    free(nodes);
}

int nodes_count(const struct nodes *nodes)
{
    return nodes->count;
}

int nodes_of(const struct nodes *nodes, int rank)
{
    return nodes->node[rank];
}

int nodes_local(const struct nodes *nodes, int rank)
{
    return nodes->local[rank];
}

int nodes_locals(const struct nodes *nodes, int node)
{
    return nodes->locals[node];
}

/* The rank with index `local` on a node; -1 if there is none. */
static int rank_at(const struct nodes *n, int node, int local)
{
    int rank = n->first[node];

    while (rank >= 0 && local-- > 0)
        rank = n->next[rank];
    return rank;
}

int nodes_rounds(const struct nodes *n)
{
    int rounds = 0;

    for (int node = 0; node < n->count && n->count > 1; node++) {
        int theirs = n->locals[(node + 1) % n->count], needed = (n->locals[node] + theirs - 1) / theirs;

        rounds = needed > rounds ? needed : rounds;
    }
    return rounds;
}

void nodes_partners(const struct nodes *n, int rank, int round, int *to, int *from)
{
    int node = n->node[rank], local = n->local[rank], next = (node + 1) % n->count;
    int before = (node + n->count - 1) % n->count;

    *to = local / n->locals[next] == round ? rank_at(n, next, local % n->locals[next]) : -1;
    *from = rank_at(n, before, round * n->locals[node] + local);
}

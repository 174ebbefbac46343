#include "srun-plugin/place_apply.h"

#include <stdlib.h>
#include <string.h>

char *place_hostfile(const struct cluster *cluster, const int *order, int world, struct error *err)
{
    size_t size = 1;
    char *text, *end;

    for (int rank = 0; rank < world; rank++)
        size += strlen(cluster->nodes[order[rank]]) + 1;
    end = text = malloc(size);
    if (!text) {
        error_errno(err, CODE_IO, "no memory for a host file of %d ranks", world);
        return NULL;
    }
    for (int rank = 0; rank < world; rank++) {
        end = stpcpy(end, cluster->nodes[order[rank]]);
        *end++ = '\n';
    }
    *end = '\0';
    return text;
}

/* first[node] = where the ranks of a node begin in a list sorted by node; [nodes + 1]. */
static void count_nodes(const int *node_of, int world, int nodes, int *first)
{
    memset(first, 0, ((size_t)nodes + 1) * sizeof *first);
    for (int rank = 0; rank < world; rank++)
        first[node_of[rank] + 1]++;
    for (int node = 0; node < nodes; node++)
        first[node + 1] += first[node];
}

int place_rank_map(const struct cluster *cluster, const int *order, const int *slurm_nodes, int world, int *map,
                   struct error *err)
{
    size_t nodes = (size_t)cluster->node_count;
    int *room = calloc(2 * (nodes + 1) + (size_t)world, sizeof *room), rc = -1;
    int *wanted = room, *given = wanted + nodes + 1, *ranks = given + nodes + 1;

    if (!room)
        return error_errno(err, CODE_IO, "no memory for the order of %d ranks", world);
    count_nodes(order, world, cluster->node_count, wanted);
    count_nodes(slurm_nodes, world, cluster->node_count, given);
    for (size_t node = 0; node < nodes; node++)
        if (wanted[node + 1] != given[node + 1]) {
            error_set(err, CODE_CONFIG, "node %s has %d of Slurm's ranks, and %d of the mesh were placed on it",
                      cluster->nodes[node], given[node + 1] - given[node], wanted[node + 1] - wanted[node]);
            goto out;
        }
    for (int rank = 0; rank < world; rank++)
        ranks[wanted[order[rank]]++] = rank;
    for (int rank = 0; rank < world; rank++)
        map[rank] = ranks[given[slurm_nodes[rank]]++];
    rc = 0;
out:
    free(room);
    return rc;
}

/* order with dp's rings turned by `turn`, and the stages in the other order where `back`. */
static void rename_ranks(const struct mesh *mesh, const int *order, int turn, bool back, int *room)
{
    for (int rank = 0; rank < mesh_world(mesh); rank++) {
        struct mesh_place place = mesh_place(mesh, rank);

        place.dp = (place.dp + turn) % mesh->dp;
        place.pp = back ? mesh->pp - 1 - place.pp : place.pp;
        room[rank] = order[mesh_rank(mesh, place)];
    }
}

bool place_keep_first(const struct mesh *mesh, int *order, int *room)
{
    for (int back = 0; back < 2; back++)
        for (int turn = 0; turn < mesh->dp; turn++) {
            const struct mesh_place first = {.dp = turn, .pp = back ? mesh->pp - 1 : 0};

            if (order[mesh_rank(mesh, first)] != 0)
                continue;
            rename_ranks(mesh, order, turn, back, room);
            memcpy(order, room, (size_t)mesh_world(mesh) * sizeof *order);
            return true;
        }
    return false;
}

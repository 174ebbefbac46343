#include "srun-plugin/place.h"

#include <stdlib.h>
#include <string.h>

void place_traffic(const struct cluster *cluster, const struct mesh *mesh, const uint64_t bytes[PLACE_AXES],
                   const int *order, uint64_t *traffic)
{
    int world = mesh_world(mesh);

    memset(traffic, 0, ((size_t)cluster->levels + 1) * sizeof *traffic);
    for (int rank = 0; rank < world; rank++) {
        struct mesh_place at = mesh_place(mesh, rank), next = at;

        if (mesh->tp > 1) {
            next.tp = (at.tp + 1) % mesh->tp;
            traffic[cluster_meet(cluster, order[rank], order[mesh_rank(mesh, next)])] += bytes[PLACE_TP];
        }
        next = at;
        if (mesh->dp > 1) {
            next.dp = (at.dp + 1) % mesh->dp;
            traffic[cluster_meet(cluster, order[rank], order[mesh_rank(mesh, next)])] += bytes[PLACE_DP];
        }
        next = at;
        if (++next.pp < mesh->pp)
            traffic[cluster_meet(cluster, order[rank], order[mesh_rank(mesh, next)])] += bytes[PLACE_PP];
    }
}

int place_compare(const uint64_t *a, const uint64_t *b, int levels)
{
    for (int depth = 0; depth < levels; depth++)
        if (a[depth] != b[depth])
            return a[depth] < b[depth] ? -1 : 1;
    return 0;
}

void place_in_order(const struct cluster *cluster, const struct mesh *mesh, const int *slots, const int *nodes,
                    int *order)
{
    int world = mesh_world(mesh), rank = 0;

    for (int i = 0; i < cluster->node_count; i++) {
        int node = nodes ? nodes[i] : i;

        for (int slot = 0; slot < slots[node] && rank < world; slot++)
            order[rank++] = node;
    }
}

static int by_name(const void *a, const void *b, void *cluster)
{
    char *const *names = ((const struct cluster *)cluster)->nodes;

    return strcmp(names[*(const int *)a], names[*(const int *)b]);
}

void place_alphabetical(const struct cluster *cluster, int *nodes)
{
    for (int i = 0; i < cluster->node_count; i++)
        nodes[i] = i;
    qsort_r(nodes, (size_t)cluster->node_count, sizeof *nodes, by_name, (void *)(uintptr_t)cluster);
}

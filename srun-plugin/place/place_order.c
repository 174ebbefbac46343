#include "srun-plugin/place/place.h"

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

/* ---- what a job sends ---- */

static uint64_t limit_bytes(double bytes)
{
    return bytes < (double)PLACE_BYTES ? (uint64_t)bytes : PLACE_BYTES;
}

void place_bytes(const struct job *job, const struct mesh *mesh, uint64_t bytes[PLACE_AXES])
{
    const struct model_shape *model = &job->model;
    double size = (double)dtype_size(job->precision.compute), reduce = (double)dtype_size(job->precision.reduce);
    double parameters = (double)model_parameters(model) / mesh->tp / mesh->pp;
    double samples = (double)job->batch.global_batch / mesh->dp; /* of all micro-batches of a rank */
    double activations = samples * model->seq_length * model->hidden * size;
    double layers = (double)model->layers / mesh->pp, passes = job->parallel.recompute == RECOMPUTE_FULL ? 3 : 2;
    double gathers = job->parallel.zero == 3 ? 2 : 1;

    bytes[PLACE_DP] = limit_bytes((mesh->dp - 1.0) / mesh->dp * parameters * (reduce + gathers * size));
    bytes[PLACE_PP] = mesh->pp > 1 ? limit_bytes(2 * activations * job->parallel.chunks / mesh->tp) : 0;
    bytes[PLACE_TP] = limit_bytes(passes * 2 * layers * 2 * (mesh->tp - 1.0) / mesh->tp * activations);
}

/* ---- for Slurm and for the trainer ---- */

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
            error_set(err, CODE_CONFIG, "node %s has %d ranks of Slurm's, but %d of the mesh", cluster->nodes[node],
                      given[node + 1] - given[node], wanted[node + 1] - wanted[node]);
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

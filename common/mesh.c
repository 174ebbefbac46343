#include "common/mesh.h"

int mesh_fit(struct mesh *mesh, int world, int tp, int pp, struct error *err)
{
    if (world < 1 || tp < 1 || pp < 1 || world % (tp * pp) != 0)
        return error_set(err, CODE_CONFIG,
                         "%d ranks cannot be laid out with parallel.tp = %d and parallel.pp = %d: "
                         "start a multiple of %d ranks",
                         world, tp, pp, tp * pp);
    *mesh = (struct mesh){.dp = world / (tp * pp), .tp = tp, .pp = pp};
    return 0;
}

int mesh_world(const struct mesh *mesh)
{
    return mesh->dp * mesh->tp * mesh->pp;
}

struct mesh_place mesh_place(const struct mesh *mesh, int rank)
{
    return (struct mesh_place){
        .tp = rank % mesh->tp,
        .dp = rank / mesh->tp % mesh->dp,
        .pp = rank / mesh->tp / mesh->dp,
    };
}

int mesh_rank(const struct mesh *mesh, struct mesh_place place)
{
    return (place.pp * mesh->dp + place.dp) * mesh->tp + place.tp;
}

long even_split(long count, int parts, int index, long *first)
{
    long begin = (long)((__int128)count * index / parts);
    long end = (long)((__int128)count * (index + 1) / parts);

    *first = begin;
    return end - begin;
}

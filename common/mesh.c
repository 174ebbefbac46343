#include "common/mesh.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/text.h"

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

struct mesh_coords mesh_coords(const struct mesh *mesh, int rank)
{
    return (struct mesh_coords){
        .tp = rank % mesh->tp,
        .dp = rank / mesh->tp % mesh->dp,
        .pp = rank / mesh->tp / mesh->dp,
    };
}

int mesh_rank(const struct mesh *mesh, struct mesh_coords coords)
{
    return (coords.pp * mesh->dp + coords.dp) * mesh->tp + coords.tp;
}

long mesh_even_split(long count, int parts, int index, long *first)
{
    long begin = (long)((__int128)count * index / parts);
    long end = (long)((__int128)count * (index + 1) / parts);

    *first = begin;
    return end - begin;
}

/* How many of map[0 .. count) go up by the same step, which is 1 or more. */
static int run_length(const int *map, int count, int *step)
{
    int length = 1;

    *step = count > 1 ? map[1] - map[0] : 1;
    if (*step < 1)
        return 1;
    while (length < count && map[length] - map[length - 1] == *step)
        length++;
    return length > 2 || *step == 1 ? length : 1; /* a list of two, "3,9", is never longer than a run with a step,
                                                     "3-9:6" */
}

char *rank_map_text(const int *map, int world, struct error *err)
{
    enum { RUN = 3 * 12 }; /* three numbers of 32 bits, and the separators */
    char *text = error_calloc(1, RANK_MAP_TEXT + RUN + 1, err);
    int used = 0, step, length;

    if (!text)
        return NULL;
    for (int at = 0; at < world && used <= RANK_MAP_TEXT; at += length) {
        length = run_length(&map[at], world - at, &step);
        used += snprintf(text + used, RUN, "%s%d", at ? "," : "", map[at]);
        if (length > 1)
            used += snprintf(text + used, RUN, "-%d", map[at + length - 1]);
        if (length > 1 && step > 1)
            used += snprintf(text + used, RUN, ":%d", step);
    }
    if (used <= RANK_MAP_TEXT)
        return text;
    error_set(err, CODE_CONFIG, "the order of %d ranks is too irregular for one environment variable", world);
    free(text);
    return NULL;
}

/* Appends one run to map[*count ...]; taken[rank] marks the ranks already there. */
static int read_run(const char **text, int world, int *map, char *taken, int *count, struct error *err)
{
    long first, last, step = 1;

    if (!text_take_number(text, world - 1, &first))
        return error_set(err, CODE_CONFIG, "expected a rank from 0 to %d", world - 1);
    last = first;
    if (**text == '-') {
        ++*text;
        if (!text_take_number(text, world - 1, &last) || last < first)
            return error_set(err, CODE_CONFIG, "a run must end with a rank from %ld to %d", first, world - 1);
        if (**text == ':') {
            ++*text;
            if (!text_take_number(text, world, &step) || step < 1 || (last - first) % step != 0)
                return error_set(err, CODE_CONFIG, "the step of a run must lead from %ld to %ld", first, last);
        }
    }
    for (long rank = first; rank <= last; rank += step) {
        if (taken[rank])
            return error_set(err, CODE_CONFIG, "rank %ld is listed twice", rank);
        taken[rank] = 1;
        map[(*count)++] = (int)rank;
    }
    return 0;
}

int rank_map_parse(const char *text, int world, int *map, struct error *err)
{
    const char *at = text;
    char *taken = error_calloc((size_t)world, 1, err);
    int count = 0, rc = -1;

    if (!taken)
        return -1;
    for (;; at++) {
        if (read_run(&at, world, map, taken, &count, err) < 0) {
            error_prefix(err, "the rank map, character %td", at - text + 1);
            goto out;
        }
        if (*at != ',')
            break;
    }
    if (*at)
        error_set(err, CODE_CONFIG, "the rank map, character %td: expected \",\" or the end", at - text + 1);
    else if (count != world)
        error_set(err, CODE_CONFIG, "the rank map is for %d ranks, but there are %d", count, world);
    else
        rc = 0;
out:
    free(taken);
    return rc;
}

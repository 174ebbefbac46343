#include <stdlib.h>
#include <string.h>

#include "srun-plugin/place_impl.h"

#define MOST_PARTNERS 64

/* Seats one by one, in the order of the tree: those beneath one vertex are neighbours. */
struct refining {
    const struct seats *seats;
    const struct grid *grid;
    int *leaf;          /* [cells] */
    int *seat;          /* [cells] */
    int *cell, *holder; /* [all seats] who sits there, -1 for nobody; the leaf it belongs to */
    int *begin;         /* [vertices] the first seat beneath */
    int *path;          /* [vertices][levels + 1] the vertex above at each depth, a leaf itself included; -1 below it */
    long tries;
    int partners;
};

static int meet(const struct refining *refining, int a, int b)
{
    size_t stride = (size_t)refining->seats->levels + 1;
    const int *of_a = &refining->path[(size_t)a * stride], *of_b = &refining->path[(size_t)b * stride];
    int depth = 0;

    if (a == b)
        return refining->seats->levels;
    while (of_a[depth + 1] >= 0 && of_a[depth + 1] == of_b[depth + 1]) /* two leaves part before either ends */
        depth++;
    return depth;
}

static int neighbours(const struct grid *grid, int cell, int *cells, int64_t *bytes)
{
    int column = cell % grid->dp, count = 0;

    if (grid->dp > 1) {
        bytes[count] = (int64_t)grid->along_dp;
        cells[count++] = column + 1 < grid->dp ? cell + 1 : cell - column;
        bytes[count] = (int64_t)grid->along_dp;
        cells[count++] = column ? cell - 1 : cell + grid->dp - 1;
    }
    if (cell >= grid->dp) {
        bytes[count] = (int64_t)grid->along_pp;
        cells[count++] = cell - grid->dp;
    }
    if (cell + grid->dp < grid->cells) {
        bytes[count] = (int64_t)grid->along_pp;
        cells[count++] = cell + grid->dp;
    }
    return count;
}

/* Adds, or with sign -1 takes away, what the edges of a cell cost. */
static void count_edges(const struct refining *refining, int cell, int sign, int64_t *traffic)
{
    int cells[4];
    int64_t bytes[4];
    int count = neighbours(refining->grid, cell, cells, bytes);

    for (int i = 0; i < count; i++)
        traffic[meet(refining, refining->leaf[cell], refining->leaf[cells[i]])] += sign * bytes[i];
}

static void sit(struct refining *refining, int cell, int seat)
{
    refining->cell[seat] = cell;
    if (cell < 0)
        return;
    refining->seat[cell] = seat;
    refining->leaf[cell] = refining->holder[seat];
}

/* The edge between the two, if there is one, counts twice before and twice after: it does not matter. */
static void exchange(struct refining *refining, int cell, int seat)
{
    int other = refining->cell[seat], from = refining->seat[cell];

    sit(refining, cell, seat);
    sit(refining, other, from);
}

static bool try_exchange(struct refining *refining, int cell, int seat)
{
    int64_t change[PLACE_LEVELS + 1] = {0};
    int other = refining->cell[seat], from = refining->seat[cell], depth = 0;

    if (refining->holder[seat] == refining->leaf[cell])
        return false;
    refining->tries++;
    for (int sign = -1; sign <= 1; sign += 2) {
        count_edges(refining, cell, sign, change);
        if (other >= 0)
            count_edges(refining, other, sign, change);
        if (sign < 0)
            exchange(refining, cell, seat);
    }
    while (depth < refining->seats->levels && change[depth] == 0)
        depth++;
    if (depth < refining->seats->levels && change[depth] < 0)
        return true;
    exchange(refining, cell, from);
    return false;
}

/* Seats near a neighbour, beneath the switch right above it, are where a cell would rather be. */
static bool improve(struct refining *refining, int cell)
{
    int cells[4];
    int64_t bytes[4];
    int count = neighbours(refining->grid, cell, cells, bytes);

    for (int i = 0; i < count; i++) {
        int near = refining->leaf[cells[i]], above = refining->seats->vertices[near].parent;
        int begin = refining->begin[above], room = refining->seats->vertices[above].seats;
        int steps = room < refining->partners ? room : refining->partners;

        if (near == refining->leaf[cell])
            continue;
        for (int j = 0; j < steps; j++) /* around the neighbour, and not always the first ones of the switch */
            if (try_exchange(refining, cell, begin + (refining->seat[cells[i]] - begin + j) % room))
                return true;
    }
    return false;
}

/* ---- setting up ---- */

static void number_seats(struct refining *refining, int at, int *next)
{
    const struct vertex *vertex = &refining->seats->vertices[at];
    size_t stride = (size_t)refining->seats->levels + 1;
    int *path = &refining->path[(size_t)at * stride];

    if (vertex->parent >= 0)
        memcpy(path, &refining->path[(size_t)vertex->parent * stride], stride * sizeof *path);
    else
        memset(path, -1, stride * sizeof *path);
    path[vertex->depth] = at;
    refining->begin[at] = *next;
    for (int i = 0; i < vertex->children; i++)
        number_seats(refining, refining->seats->children[vertex->begin + i], next);
    for (int i = 0; vertex->children == 0 && i < vertex->seats; i++) {
        refining->cell[*next] = -1;
        refining->holder[(*next)++] = at;
    }
}

static void sit_all(struct refining *refining)
{
    int next = 0;

    number_seats(refining, 0, &next);
    for (int cell = 0; cell < refining->grid->cells; cell++) {
        int seat = refining->begin[refining->leaf[cell]];

        while (refining->cell[seat] >= 0)
            seat++;
        sit(refining, cell, seat);
    }
}

int place_refine(const struct seats *seats, const struct grid *grid, long budget, int *leaf, struct error *err)
{
    size_t cells = (size_t)grid->cells, vertices = (size_t)seats->count, all = (size_t)seats->vertices[0].seats;
    size_t levels = (size_t)seats->levels;
    struct refining refining = {.seats = seats, .grid = grid, .leaf = leaf};
    int *room = calloc(cells + 2 * all + vertices + vertices * (levels + 1), sizeof *room);
    long partners = budget / (4 * grid->cells);
    bool better = true;

    if (!room)
        return error_errno(err, CODE_IO, "no memory to place %d groups of ranks", grid->cells);
    refining.seat = room;
    refining.cell = refining.seat + cells;
    refining.holder = refining.cell + all;
    refining.begin = refining.holder + all;
    refining.path = refining.begin + vertices;
    refining.partners = partners < 1 ? 1 : partners > MOST_PARTNERS ? MOST_PARTNERS : (int)partners;
    sit_all(&refining);
    while (better && refining.tries < budget) {
        better = false;
        for (int cell = 0; cell < grid->cells && refining.tries < budget; cell++)
            better |= improve(&refining, cell);
    }
    free(room);
    return 0;
}

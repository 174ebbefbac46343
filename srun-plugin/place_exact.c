#include <stdlib.h>
#include <string.h>

#include "srun-plugin/place_impl.h"

#define BUDGET   (1L << 16) /* steps: a millisecond or two */
#define VERTICES 64
#define CELLS    64

struct search {
    const struct seats *seats;
    const struct grid *grid;
    int leaf[CELLS], *best;
    uint64_t best_traffic[PLACE_LEVELS + 1];
    int used[VERTICES];           /* seats taken beneath a vertex */
    int like[VERTICES];           /* the same number for siblings that differ in name only */
    int meet[VERTICES][VERTICES]; /* seats_meet */
    long steps;
};

/* Numbers vertices by what hangs beneath them: the same parent, and one by one the like children or as many seats. */
static bool are_like(const struct search *search, int a, int b)
{
    const struct seats *seats = search->seats;
    const struct vertex *left = &seats->vertices[a], *right = &seats->vertices[b];

    if (left->seats != right->seats || left->children != right->children || (left->split < 0) != (right->split < 0))
        return false;
    for (int i = 0; i < left->children; i++)
        if (!are_like(search, seats->children[left->begin + i], seats->children[right->begin + i]))
            return false;
    return true;
}

static void number_likes(struct search *search)
{
    for (int i = 0; i < search->seats->count; i++) {
        search->like[i] = i;
        for (int j = 0; j < i; j++)
            if (search->seats->vertices[i].parent == search->seats->vertices[j].parent && are_like(search, i, j)) {
                search->like[i] = search->like[j];
                break;
            }
    }
}

/* Is there, for this leaf or a switch above it, an empty sibling of the same kind that comes earlier? */
static bool is_repetition(const struct search *search, int at)
{
    for (; at > 0; at = search->seats->vertices[at].parent) {
        if (search->used[at])
            continue;
        for (int other = search->like[at]; other < at; other++)
            if (search->like[other] == search->like[at] && !search->used[other])
                return true;
    }
    return false;
}

static void take(struct search *search, int at, int seats)
{
    for (; at >= 0; at = search->seats->vertices[at].parent)
        search->used[at] += seats;
}

/* The edges from `cell`, which stands at `at`, to cells before it. */
static void add_edges(const struct search *search, int cell, int at, uint64_t *traffic)
{
    const struct grid *grid = search->grid;
    int column = cell % grid->dp;

    if (column > 0)
        traffic[search->meet[at][search->leaf[cell - 1]]] += grid->along_dp;
    if (column > 0 && column + 1 == grid->dp) /* the last closes the ring */
        traffic[search->meet[at][search->leaf[cell - column]]] += grid->along_dp;
    if (cell >= grid->dp)
        traffic[search->meet[at][search->leaf[cell - grid->dp]]] += grid->along_pp;
}

static void place_from(struct search *search, int cell, const uint64_t *traffic)
{
    const struct seats *seats = search->seats;

    if (cell == search->grid->cells) {
        memcpy(search->best, search->leaf, (size_t)cell * sizeof *search->best);
        memcpy(search->best_traffic, traffic, sizeof search->best_traffic);
        return;
    }
    for (int at = 1; at < seats->count && search->steps < BUDGET; at++) {
        const struct vertex *vertex = &seats->vertices[at];
        uint64_t more[PLACE_LEVELS + 1];

        if (vertex->children || search->used[at] >= vertex->seats || is_repetition(search, at))
            continue;
        search->steps++;
        memcpy(more, traffic, sizeof more);
        add_edges(search, cell, at, more);
        if (place_compare(more, search->best_traffic, seats->levels) >= 0)
            continue;
        search->leaf[cell] = at;
        take(search, at, 1);
        place_from(search, cell + 1, more);
        take(search, at, -1);
    }
}

bool place_exact(const struct seats *seats, const struct grid *grid, int *leaf)
{
    const uint64_t nothing[PLACE_LEVELS + 1] = {0};
    struct search search = {.seats = seats, .grid = grid, .best = leaf};

    grid_traffic(seats, grid, leaf, search.best_traffic);
    if (place_compare(search.best_traffic, nothing, seats->levels) == 0)
        return seats->splits == 0;
    if (seats->count > VERTICES || grid->cells > CELLS || seats->splits)
        return false;
    number_likes(&search);
    for (int a = 0; a < seats->count; a++)
        for (int b = 0; b < seats->count; b++)
            search.meet[a][b] = seats_meet(seats, a, b);
    place_from(&search, 0, nothing);
    return search.steps < BUDGET;
}

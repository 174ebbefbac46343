#include <stdlib.h>
#include <string.h>

#include "srun-plugin/place/place_impl.h"

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

static int find_meeting(const struct refining *refining, int a, int b)
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

static int find_neighbours(const struct grid *grid, int cell, int *cells, int64_t *bytes)
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
    int count = find_neighbours(refining->grid, cell, cells, bytes);

    for (int i = 0; i < count; i++)
        traffic[find_meeting(refining, refining->leaf[cell], refining->leaf[cells[i]])] += sign * bytes[i];
}

static void set_cell(struct refining *refining, int cell, int seat)
{
    refining->cell[seat] = cell;
    if (cell < 0)
        return;
    refining->seat[cell] = seat;
    refining->leaf[cell] = refining->holder[seat];
}

/* The edge between the two, if there is one, counts twice before and twice after: it does not matter. */
static void exchange_cells(struct refining *refining, int cell, int seat)
{
    int other = refining->cell[seat], from = refining->seat[cell];

    set_cell(refining, cell, seat);
    set_cell(refining, other, from);
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
            exchange_cells(refining, cell, seat);
    }
    while (depth < refining->seats->levels && change[depth] == 0)
        depth++;
    if (depth < refining->seats->levels && change[depth] < 0)
        return true;
    exchange_cells(refining, cell, from);
    return false;
}

/* Seats near a neighbour, beneath the switch right above it, are where a cell would rather be. */
static bool improve_cell(struct refining *refining, int cell)
{
    int cells[4];
    int64_t bytes[4];
    int count = find_neighbours(refining->grid, cell, cells, bytes);

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
        set_cell(refining, cell, seat);
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
            better |= improve_cell(&refining, cell);
    }
    free(room);
    return 0;
}

/* ---- all orders ---- */

#define BUDGET   (1L << 16) /* steps: a millisecond or two */
#define VERTICES 64
#define CELLS    64

struct exact_search {
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
static bool are_like(const struct exact_search *search, int a, int b)
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

static void number_likes(struct exact_search *search)
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
static bool is_repetition(const struct exact_search *search, int at)
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

static void take_seats(struct exact_search *search, int at, int seats)
{
    for (; at >= 0; at = search->seats->vertices[at].parent)
        search->used[at] += seats;
}

/* The edges from `cell`, which stands at `at`, to cells before it. */
static void add_edges(const struct exact_search *search, int cell, int at, uint64_t *traffic)
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

static void place_from(struct exact_search *search, int cell, const uint64_t *traffic)
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
        take_seats(search, at, 1);
        place_from(search, cell + 1, more);
        take_seats(search, at, -1);
    }
}

bool place_exact(const struct seats *seats, const struct grid *grid, int *leaf)
{
    const uint64_t nothing[PLACE_LEVELS + 1] = {0};
    struct exact_search search = {.seats = seats, .grid = grid, .best = leaf};

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

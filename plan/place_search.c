/* Improves a division of cells over seats by exchanges, and searches all divisions if there are few. */
#include <stdlib.h>
#include <string.h>

#include "plan/place_impl.h"

#define MOST_PARTNERS 64

/* Seats are numbered in the order of the tree, so that those beneath one vertex are a range. */
struct refining {
    const struct seat_tree *tree;
    const struct grid *grid;
    int *holder;             /* [cells] */
    int *seat;               /* [cells] */
    int *cell, *seat_holder; /* [all seats] the cell there, -1 for none; the holder of the seat */
    int *begin;              /* [vertices] the first seat beneath */
    long tries;
    int partners;
};

/* The cells with which a cell exchanges data, and the bytes of these edges. */
struct edges {
    int count, cells[4];
    uint64_t bytes[4];
};

static struct edges find_edges(const struct grid *grid, int cell)
{
    int column = cell % grid->dp;
    struct edges edges = {.count = 0};

    if (grid->dp > 1) {
        edges.bytes[0] = edges.bytes[1] = grid->along_dp;
        edges.cells[edges.count++] = column + 1 < grid->dp ? cell + 1 : cell - column;
        edges.cells[edges.count++] = column ? cell - 1 : cell + grid->dp - 1;
    }
    if (cell >= grid->dp) {
        edges.bytes[edges.count] = grid->along_pp;
        edges.cells[edges.count++] = cell - grid->dp;
    }
    if (cell + grid->dp < grid->cells) {
        edges.bytes[edges.count] = grid->along_pp;
        edges.cells[edges.count++] = cell + grid->dp;
    }
    return edges;
}

/* ---- exchanges ---- */

/* Adds the cost of a cell's edges, or subtracts it with sign -1. */
static void count_edges(const struct refining *refining, int cell, int sign, int64_t *traffic)
{
    const struct edges edges = find_edges(refining->grid, cell);

    for (int i = 0; i < edges.count; i++)
        traffic[seat_tree_meet(refining->tree, refining->holder[cell], refining->holder[edges.cells[i]])] +=
            sign * (int64_t)edges.bytes[i];
}

static void set_cell(struct refining *refining, int cell, int seat)
{
    refining->cell[seat] = cell;
    if (cell < 0)
        return;
    refining->seat[cell] = seat;
    refining->holder[cell] = refining->seat_holder[seat];
}

static void exchange_cells(struct refining *refining, int cell, int seat)
{
    int other = refining->cell[seat], from = refining->seat[cell];

    set_cell(refining, cell, seat);
    set_cell(refining, other, from);
}

/* An edge between the two cells counts twice before and twice after the exchange, and so does not matter. */
static bool try_exchange(struct refining *refining, int cell, int seat)
{
    int64_t change[PLACE_LEVELS + 1] = {0};
    int other = refining->cell[seat], from = refining->seat[cell], depth = 0;

    if (refining->seat_holder[seat] == refining->holder[cell])
        return false;
    refining->tries++;
    for (int sign = -1; sign <= 1; sign += 2) {
        count_edges(refining, cell, sign, change);
        if (other >= 0)
            count_edges(refining, other, sign, change);
        if (sign < 0)
            exchange_cells(refining, cell, seat);
    }
    while (depth < refining->tree->levels && change[depth] == 0)
        depth++;
    if (depth < refining->tree->levels && change[depth] < 0)
        return true;
    exchange_cells(refining, cell, from);
    return false;
}

/* Tries the seats under the switches right above the cell's neighbours. */
static bool improve_cell(struct refining *refining, int cell)
{
    const struct edges edges = find_edges(refining->grid, cell);

    for (int i = 0; i < edges.count; i++) {
        int near = refining->holder[edges.cells[i]], above = refining->tree->vertices[near].parent;
        int begin = refining->begin[above], seats = refining->tree->vertices[above].seat_count;
        int steps = seats < refining->partners ? seats : refining->partners;

        if (near == refining->holder[cell])
            continue;
        for (int j = 0; j < steps; j++) /* from the neighbour on, so not always the first ones of the switch */
            if (try_exchange(refining, cell, begin + (refining->seat[edges.cells[i]] - begin + j) % seats))
                return true;
    }
    return false;
}

/* ---- setting up ---- */

static void number_seats(struct refining *refining, int at, int *next)
{
    const struct vertex *vertex = &refining->tree->vertices[at];

    refining->begin[at] = *next;
    for (int i = 0; i < vertex->child_count; i++)
        number_seats(refining, refining->tree->children[vertex->first_child + i], next);
    for (int i = 0; vertex->child_count == 0 && i < vertex->seat_count; i++) {
        refining->cell[*next] = -1;
        refining->seat_holder[(*next)++] = at;
    }
}

static void sit_all(struct refining *refining)
{
    int next = 0;

    number_seats(refining, 0, &next);
    for (int cell = 0; cell < refining->grid->cells; cell++) {
        int seat = refining->begin[refining->holder[cell]];

        while (refining->cell[seat] >= 0)
            seat++;
        set_cell(refining, cell, seat);
    }
}

int place_refine(const struct seat_tree *tree, const struct grid *grid, long budget, int *holder, struct error *err)
{
    size_t cells = (size_t)grid->cells, vertices = (size_t)tree->count, all = (size_t)tree->vertices[0].seat_count;
    struct refining refining = {.tree = tree, .grid = grid, .holder = holder};
    int *scratch = error_calloc(cells + 2 * all + vertices, sizeof *scratch, err);
    long partners = budget / (4 * grid->cells);
    bool better = true;

    if (!scratch)
        return -1;
    refining.seat = scratch;
    refining.cell = refining.seat + cells;
    refining.seat_holder = refining.cell + all;
    refining.begin = refining.seat_holder + all;
    refining.partners = partners < 1 ? 1 : partners > MOST_PARTNERS ? MOST_PARTNERS : (int)partners;
    sit_all(&refining);
    while (better && refining.tries < budget) {
        better = false;
        for (int cell = 0; cell < grid->cells && refining.tries < budget; cell++)
            better |= improve_cell(&refining, cell);
    }
    free(scratch);
    return 0;
}

/* ---- all orders ---- */

#define BUDGET   (1L << 16) /* steps: a millisecond or two */
#define VERTICES 64
#define CELLS    64

struct exact_search {
    const struct seat_tree *tree;
    const struct grid *grid;
    int holder[CELLS], *best;
    uint64_t best_traffic[PLACE_LEVELS + 1];
    int used[VERTICES]; /* seats taken beneath a vertex */
    int like[VERTICES]; /* the same number for siblings that differ in name only */
    long steps;
};

/* True if two subtrees have the same shape and the same seats. */
static bool are_like(const struct exact_search *search, int a, int b)
{
    const struct seat_tree *tree = search->tree;
    const struct vertex *left = &tree->vertices[a], *right = &tree->vertices[b];

    if (left->seat_count != right->seat_count || left->child_count != right->child_count ||
        (left->split < 0) != (right->split < 0))
        return false;
    for (int i = 0; i < left->child_count; i++)
        if (!are_like(search, tree->children[left->first_child + i], tree->children[right->first_child + i]))
            return false;
    return true;
}

/* Siblings with equal subtrees get the same number. */
static void number_likes(struct exact_search *search)
{
    for (int i = 0; i < search->tree->count; i++) {
        search->like[i] = i;
        for (int j = 0; j < i; j++)
            if (search->tree->vertices[i].parent == search->tree->vertices[j].parent && are_like(search, i, j)) {
                search->like[i] = search->like[j];
                break;
            }
    }
}

/* True if this holder, or a switch above it, is empty and has an equal empty sibling that comes earlier. */
static bool is_repetition(const struct exact_search *search, int at)
{
    for (; at > 0; at = search->tree->vertices[at].parent) {
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
    for (; at >= 0; at = search->tree->vertices[at].parent)
        search->used[at] += seats;
}

/* Adds the edges from `cell`, when it is on holder `at`, to the cells before it. */
static void add_edges(const struct exact_search *search, int cell, int at, uint64_t *traffic)
{
    const struct edges edges = find_edges(search->grid, cell);

    for (int i = 0; i < edges.count; i++)
        if (edges.cells[i] < cell)
            traffic[seat_tree_meet(search->tree, at, search->holder[edges.cells[i]])] += edges.bytes[i];
}

static void place_from(struct exact_search *search, int cell, const uint64_t *traffic)
{
    const struct seat_tree *tree = search->tree;

    if (cell == search->grid->cells) {
        memcpy(search->best, search->holder, (size_t)cell * sizeof *search->best);
        memcpy(search->best_traffic, traffic, sizeof search->best_traffic);
        return;
    }
    for (int at = 1; at < tree->count && search->steps < BUDGET; at++) {
        const struct vertex *vertex = &tree->vertices[at];
        uint64_t more[PLACE_LEVELS + 1];

        if (vertex->child_count || search->used[at] >= vertex->seat_count || is_repetition(search, at))
            continue;
        search->steps++;
        memcpy(more, traffic, sizeof more);
        add_edges(search, cell, at, more);
        if (place_compare(more, search->best_traffic, tree->levels) >= 0)
            continue;
        search->holder[cell] = at;
        take_seats(search, at, 1);
        place_from(search, cell + 1, more);
        take_seats(search, at, -1);
    }
}

bool place_exact(const struct seat_tree *tree, const struct grid *grid, const uint64_t *traffic, int *holder)
{
    const uint64_t nothing[PLACE_LEVELS + 1] = {0};
    struct exact_search search = {.tree = tree, .grid = grid, .best = holder};

    if (tree->splits)
        return false;
    if (place_compare(traffic, nothing, tree->levels) == 0)
        return true;
    if (tree->count > VERTICES || grid->cells > CELLS)
        return false;
    memcpy(search.best_traffic, traffic, ((size_t)tree->levels + 1) * sizeof *traffic);
    number_likes(&search);
    place_from(&search, 0, nothing);
    return search.steps < BUDGET;
}

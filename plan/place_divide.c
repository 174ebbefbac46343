/*
 * Divides the grid of cells over the tree, depth by depth: the cells of a switch are put in a row by a walk over the
 * grid, and its children take contiguous runs of that row. The walk and order of children with the least traffic
 * between children is kept.
 */
#include <stdlib.h>
#include <string.h>

#include "plan/place_impl.h"

#define WIDTHS        12
#define SORT_CHILDREN 256 /* switches with more children skip the order ALIGNED, which takes quadratic time */

/*
 * A way to walk over the grid. Panels of `width` columns (or, transposed, rows), each from top to bottom line by line;
 * if `serpentine`, every other line and panel is walked backwards, so that the walk never leaps.
 */
struct grid_walk {
    int width;
    bool transposed, serpentine;
};

struct division {
    const struct seat_tree *tree;
    const struct grid *grid;
    int *at;              /* [cells] the vertex to which a cell is assigned so far */
    int *trial, *best;    /* [cells] the child it would go to */
    int *walked, *sorted; /* [cells] along a walk; and by vertex */
    int *begin, *fill;    /* [vertices] into sorted */
    uint64_t *cut;        /* [vertices] of best; UINT64_MAX as long as there is none */
    int *children;        /* [vertices] in the order being tried */
};

/* ---- walks ---- */

static void walk_grid(const struct grid *grid, const struct grid_walk *walk, int *cells)
{
    int across = walk->transposed ? grid->pp : grid->dp, along = walk->transposed ? grid->dp : grid->pp;
    int count = 0;

    for (int left = 0, panel = 0; left < across; left += walk->width, panel++) {
        int width = left + walk->width <= across ? walk->width : across - left;

        for (int i = 0; i < along; i++) {
            int line = walk->serpentine && panel % 2 ? along - 1 - i : i;

            for (int j = 0; j < width; j++) {
                int column = left + (walk->serpentine && i % 2 ? width - 1 - j : j);

                cells[count++] = walk->transposed ? column * grid->dp + line : line * grid->dp + column;
            }
        }
    }
}

/* All columns, one column, then even parts of the columns, from few to many. */
static int choose_widths(int across, int *widths)
{
    int count = 0;

    widths[count++] = across;
    if (across > 1)
        widths[count++] = 1;
    for (int parts = 2; parts < across && count < WIDTHS; parts++) {
        int width = (across + parts - 1) / parts;

        if (width != widths[count - 1] && (parts <= 4 || across % parts == 0))
            widths[count++] = width;
    }
    return count;
}

/* The cells of a line if the walk has one panel, else the cells of a panel. */
static int walk_unit(const struct grid *grid, const struct grid_walk *walk)
{
    int across = walk->transposed ? grid->pp : grid->dp;

    return walk->width >= across ? across : walk->width * (grid->cells / across);
}

/* ---- orders of a switch's children ---- */

enum child_order { AS_THEY_COME, LARGEST_FIRST, ALIGNED, CHILD_ORDERS };

static int by_seats(const void *a, const void *b, void *vertices)
{
    const struct vertex *all = vertices;
    int left = *(const int *)a, right = *(const int *)b;

    if (all[left].seat_count != all[right].seat_count)
        return all[left].seat_count > all[right].seat_count ? -1 : 1;
    return all[left].first < all[right].first ? -1 : 1;
}

/*
 * Largest first; but prefers a child whose seats complete a unit (walk_unit), then one whose seats fit into what is
 * left of the current unit.
 */
static void align_children(const struct vertex *vertices, int *children, int count, int unit)
{
    long filled = 0;

    for (int i = 0; i < count; i++) {
        int rest = unit - (int)(filled % unit), chosen = -1, taken;

        for (int j = i; j < count; j++) {
            int seats = vertices[children[j]].seat_count;

            if (seats % unit == rest % unit) {
                chosen = j;
                break;
            }
            if (chosen < 0 && seats < rest)
                chosen = j;
        }
        if (chosen < 0)
            chosen = i;
        taken = children[chosen];
        memmove(&children[i + 1], &children[i], (size_t)(chosen - i) * sizeof *children); /* the others stay sorted */
        children[i] = taken;
        filled += vertices[taken].seat_count;
    }
}

/* Sets division->children to the children of `vertex` in an order; false if another order gives the same. */
static bool order_children(struct division *division, const struct vertex *vertex, enum child_order order, int cells,
                           int unit)
{
    const struct vertex *vertices = division->tree->vertices;
    int *children = division->children, count = vertex->child_count;
    bool alike = vertex->seat_count == cells;

    memcpy(children, &division->tree->children[vertex->first_child], (size_t)count * sizeof *children);
    for (int i = 1; i < count && alike; i++)
        alike = vertices[children[i]].seat_count == vertices[children[0]].seat_count;
    if (order == AS_THEY_COME)
        return true;
    if (alike || (order == ALIGNED && count > SORT_CHILDREN))
        return false;
    qsort_r(children, (size_t)count, sizeof *children, by_seats, (void *)(uintptr_t)vertices);
    if (order == LARGEST_FIRST) {
        int fits = -1;

        while (fits + 1 < count && vertices[children[fits + 1]].seat_count >= cells)
            fits++;
        if (fits > 0) { /* the smallest that has seats for all cells */
            int taken = children[fits];

            children[fits] = children[0];
            children[0] = taken;
        }
    } else {
        align_children(vertices, children, count, unit);
    }
    return true;
}

/* ---- dividing ---- */

static uint64_t count_cut(const struct division *division, const int *cells, int count, int at)
{
    const struct grid *grid = division->grid;
    uint64_t cut = 0;

    for (int i = 0; i < count; i++) {
        int cell = cells[i], column = cell % grid->dp;
        int right = column + 1 < grid->dp ? cell + 1 : cell - column, below = cell + grid->dp;

        if (division->at[right] == at && division->trial[right] != division->trial[cell])
            cut += grid->along_dp;
        if (below < grid->cells && division->at[below] == at && division->trial[below] != division->trial[cell])
            cut += grid->along_pp;
    }
    return cut;
}

/* Gives the cells of a switch, as they are walked, to its children, in every order of these; keeps the best. */
static void divide_switch(struct division *division, int at, const int *cells, int count, int unit)
{
    const struct vertex *vertices = division->tree->vertices, *vertex = &vertices[at];

    for (enum child_order order = AS_THEY_COME; order < CHILD_ORDERS && division->cut[at]; order++) {
        int next = 0;
        uint64_t cut;

        if (!order_children(division, vertex, order, count, unit))
            continue;
        for (int i = 0; i < vertex->child_count; i++)
            for (int seat = 0; seat < vertices[division->children[i]].seat_count && next < count; seat++)
                division->trial[cells[next++]] = division->children[i];
        cut = count_cut(division, cells, count, at);
        if (cut >= division->cut[at])
            continue;
        division->cut[at] = cut;
        for (int i = 0; i < count; i++)
            division->best[cells[i]] = division->trial[cells[i]];
    }
}

static void divide_along(struct division *division, int depth, const struct grid_walk *walk)
{
    const struct grid *grid = division->grid;
    const struct vertex *vertices = division->tree->vertices;

    walk_grid(grid, walk, division->walked);
    memcpy(division->fill, division->begin, (size_t)division->tree->count * sizeof *division->fill);
    for (int i = 0; i < grid->cells; i++)
        division->sorted[division->fill[division->at[division->walked[i]]]++] = division->walked[i];
    for (int at = 0; at < division->tree->count; at++) {
        int count = division->fill[at] - division->begin[at];

        if (count && vertices[at].child_count && vertices[at].depth == depth)
            divide_switch(division, at, &division->sorted[division->begin[at]], count, walk_unit(grid, walk));
    }
}

/* Finds where the cells of each vertex begin in `sorted`. */
static void count_cells(struct division *division)
{
    int begin = 0;

    memset(division->fill, 0, (size_t)division->tree->count * sizeof *division->fill);
    for (int cell = 0; cell < division->grid->cells; cell++)
        division->fill[division->at[cell]]++;
    for (int at = 0; at < division->tree->count; at++) {
        division->begin[at] = begin;
        begin += division->fill[at];
        division->cut[at] = UINT64_MAX;
    }
}

static void divide_depth(struct division *division, int depth, bool columns_first)
{
    const struct grid *grid = division->grid;

    count_cells(division);
    for (int cell = 0; cell < grid->cells; cell++)
        division->best[cell] = division->at[cell];
    for (int family = 0; family < 2; family++) {
        struct grid_walk walk = {.transposed = (family == 1) != columns_first};
        int widths[WIDTHS], count = choose_widths(walk.transposed ? grid->pp : grid->dp, widths);

        for (int i = 0; i < count; i++)
            for (int serpentine = 0; serpentine < 2; serpentine++) {
                walk.width = widths[i];
                walk.serpentine = serpentine;
                divide_along(division, depth, &walk);
            }
    }
    memcpy(division->at, division->best, (size_t)grid->cells * sizeof *division->at);
}

int place_divide(const struct seat_tree *tree, const struct grid *grid, bool columns_first, int *holder,
                 struct error *err)
{
    size_t cells = (size_t)grid->cells, vertices = (size_t)tree->count;
    int *scratch = error_calloc(4 * cells + 3 * vertices, sizeof *scratch, err);
    struct division division = {.tree = tree, .grid = grid, .at = holder};

    division.cut = scratch ? error_calloc(vertices, sizeof *division.cut, err) : NULL;
    if (!division.cut) {
        free(scratch);
        return -1;
    }
    division.trial = scratch;
    division.best = division.trial + cells;
    division.walked = division.best + cells;
    division.sorted = division.walked + cells;
    division.begin = division.sorted + cells;
    division.fill = division.begin + vertices;
    division.children = division.fill + vertices;
    memset(holder, 0, cells * sizeof *holder);
    for (int depth = 0; depth < tree->levels; depth++)
        divide_depth(&division, depth, columns_first);
    free(division.cut);
    free(scratch);
    return 0;
}

#include <stdlib.h>
#include <string.h>

#include "srun-plugin/place/place_impl.h"

#define WIDTHS 12
#define SORT_CHILDREN                                                                                                  \
    256 /* more children than this are taken in two orders instead of three: the third is quadratic                    \
         */

/*
 * A way to walk over the grid. Panels of `width` columns (or, transposed, rows), each from top to bottom line by line;
 * `turning`, every other line and panel is walked backwards, so that the walk never leaps.
 */
struct walk {
    int width;
    bool transposed, turning;
};

struct division {
    const struct seats *seats;
    const struct grid *grid;
    int *at;              /* [cells] the vertex that a cell has come down to */
    int *trial, *best;    /* [cells] the child it would go to */
    int *walked, *sorted; /* [cells] along a walk; and by vertex */
    int *begin, *fill;    /* [vertices] into sorted */
    uint64_t *cut;        /* [vertices] of best; UINT64_MAX as long as there is none */
    int *children;        /* [vertices] in the order being tried */
};

/* ---- walks ---- */

static void walk_grid(const struct grid *grid, const struct walk *walk, int *cells)
{
    int across = walk->transposed ? grid->pp : grid->dp, along = walk->transposed ? grid->dp : grid->pp;
    int count = 0;

    for (int left = 0, panel = 0; left < across; left += walk->width, panel++) {
        int width = left + walk->width <= across ? walk->width : across - left;

        for (int i = 0; i < along; i++) {
            int line = walk->turning && panel % 2 ? along - 1 - i : i;

            for (int j = 0; j < width; j++) {
                int place = left + (walk->turning && i % 2 ? width - 1 - j : j);

                cells[count++] = walk->transposed ? place * grid->dp + line : line * grid->dp + place;
            }
        }
    }
}

static bool has_width(const int *widths, int count, int width)
{
    for (int i = 0; i < count; i++)
        if (widths[i] == width)
            return true;
    return false;
}

/* Whole lines and single ones, then even parts, from few to many. */
static int choose_widths(int across, int *widths)
{
    int count = 0, wanted[2 * WIDTHS], many = 0;

    wanted[many++] = across;
    wanted[many++] = 1;
    for (int parts = 2; parts <= 4; parts++)
        wanted[many++] = (across + parts - 1) / parts;
    for (int parts = 5; parts < across && many < 2 * WIDTHS; parts++)
        if (across % parts == 0)
            wanted[many++] = across / parts;
    for (int i = 0; i < many && count < WIDTHS; i++)
        if (wanted[i] > 0 && !has_width(widths, count, wanted[i]))
            widths[count++] = wanted[i];
    return count;
}

/* How many cells a walk takes before it has made something whole: a line if it has but one panel, else a panel. */
static int walk_unit(const struct grid *grid, const struct walk *walk)
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

    if (all[left].seats != all[right].seats)
        return all[left].seats > all[right].seats ? -1 : 1;
    return all[left].first < all[right].first ? -1 : 1;
}

/* From the largest to the smallest, but next always one that ends a unit, if there is; or else that stays within one.
 */
static void align_children(const struct vertex *vertices, int *children, int count, int unit)
{
    long filled = 0;

    for (int i = 0; i < count; i++) {
        int room = unit - (int)(filled % unit), chosen = -1, taken;

        for (int j = i; j < count; j++) {
            int seats = vertices[children[j]].seats;

            if (seats % unit == room % unit) {
                chosen = j;
                break;
            }
            if (chosen < 0 && seats < room)
                chosen = j;
        }
        if (chosen < 0)
            chosen = i;
        taken = children[chosen];
        memmove(&children[i + 1], &children[i], (size_t)(chosen - i) * sizeof *children); /* the others stay sorted */
        children[i] = taken;
        filled += vertices[taken].seats;
    }
}

/* Brings the children of `vertex` into division->children; false where that order says nothing that others do not. */
static bool order_children(struct division *division, const struct vertex *vertex, enum child_order order, int cells,
                           int unit)
{
    const struct vertex *vertices = division->seats->vertices;
    int *children = division->children, count = vertex->children;
    bool alike = vertex->seats == cells;

    memcpy(children, &division->seats->children[vertex->begin], (size_t)count * sizeof *children);
    for (int i = 1; i < count && alike; i++)
        alike = vertices[children[i]].seats == vertices[children[0]].seats;
    if (order == AS_THEY_COME)
        return true;
    if (alike || (order == ALIGNED && count > SORT_CHILDREN))
        return false;
    qsort_r(children, (size_t)count, sizeof *children, by_seats, (void *)(uintptr_t)vertices);
    if (order == LARGEST_FIRST) {
        int fits = -1;

        while (fits + 1 < count && vertices[children[fits + 1]].seats >= cells)
            fits++;
        if (fits > 0) { /* the smallest that has room for everything */
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

/* The cells of a switch, as they are walked, to its children in every order; the best way so far is kept. */
static void divide_switch(struct division *division, int at, const int *cells, int count, int unit)
{
    const struct vertex *vertices = division->seats->vertices, *vertex = &vertices[at];

    for (enum child_order order = AS_THEY_COME; order < CHILD_ORDERS && division->cut[at]; order++) {
        int next = 0;
        uint64_t cut;

        if (!order_children(division, vertex, order, count, unit))
            continue;
        for (int i = 0; i < vertex->children; i++)
            for (int seat = 0; seat < vertices[division->children[i]].seats && next < count; seat++)
                division->trial[cells[next++]] = division->children[i];
        cut = count_cut(division, cells, count, at);
        if (cut >= division->cut[at])
            continue;
        division->cut[at] = cut;
        for (int i = 0; i < count; i++)
            division->best[cells[i]] = division->trial[cells[i]];
    }
}

static void divide_along(struct division *division, int depth, const struct walk *walk)
{
    const struct grid *grid = division->grid;
    const struct vertex *vertices = division->seats->vertices;

    walk_grid(grid, walk, division->walked);
    memcpy(division->fill, division->begin, (size_t)division->seats->count * sizeof *division->fill);
    for (int i = 0; i < grid->cells; i++)
        division->sorted[division->fill[division->at[division->walked[i]]]++] = division->walked[i];
    for (int at = 0; at < division->seats->count; at++) {
        int count = division->fill[at] - division->begin[at];

        if (count && vertices[at].children && vertices[at].depth == depth)
            divide_switch(division, at, &division->sorted[division->begin[at]], count, walk_unit(grid, walk));
    }
}

/* Where the cells of each vertex will begin in `sorted`. */
static void count_cells(struct division *division)
{
    int begin = 0;

    memset(division->fill, 0, (size_t)division->seats->count * sizeof *division->fill);
    for (int cell = 0; cell < division->grid->cells; cell++)
        division->fill[division->at[cell]]++;
    for (int at = 0; at < division->seats->count; at++) {
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
        struct walk walk = {.transposed = (family == 1) != columns_first};
        int widths[WIDTHS], count = choose_widths(walk.transposed ? grid->pp : grid->dp, widths);

        for (int i = 0; i < count; i++)
            for (int turning = 0; turning < 2; turning++) {
                walk.width = widths[i];
                walk.turning = turning;
                divide_along(division, depth, &walk);
            }
    }
    memcpy(division->at, division->best, (size_t)grid->cells * sizeof *division->at);
}

int place_divide(const struct seats *seats, const struct grid *grid, bool columns_first, int *leaf, struct error *err)
{
    size_t cells = (size_t)grid->cells, vertices = (size_t)seats->count;
    int *room = calloc(4 * cells + 3 * vertices, sizeof *room);
    struct division division = {.seats = seats, .grid = grid, .at = leaf};

    division.cut = calloc(vertices, sizeof *division.cut);
    if (!room || !division.cut) {
        free(room);
        free(division.cut);
        return error_errno(err, CODE_IO, "no memory to place %d groups of ranks", grid->cells);
    }
    division.trial = room;
    division.best = division.trial + cells;
    division.walked = division.best + cells;
    division.sorted = division.walked + cells;
    division.begin = division.sorted + cells;
    division.fill = division.begin + vertices;
    division.children = division.fill + vertices;
    memset(leaf, 0, cells * sizeof *leaf);
    for (int depth = 0; depth < seats->levels; depth++)
        divide_depth(&division, depth, columns_first);
    free(division.cut);
    free(room);
    return 0;
}

#include "config.h"

#include "ckpt/interval.h"

#include <string.h>

uint64_t box_elements(const uint64_t *shape, int ndim)
{
    uint64_t elements = 1;

    for (int d = 0; d < ndim; d++)
        elements *= shape[d];
    return elements;
}

bool tensor_is_valid(const struct ckpt_tensor *tensor)
{
    uint64_t bytes = 4;

    if (tensor->ndim < 1 || tensor->ndim > CKPT_MAX_DIMS)
        return false;
    for (int d = 0; d < tensor->ndim; d++)
        if (tensor->shape[d] == 0 || __builtin_mul_overflow(bytes, tensor->shape[d], &bytes) || bytes > INT64_MAX / 2)
            return false;
    return true;
}

bool piece_is_valid(const struct ckpt_piece *piece, const struct ckpt_tensor *tensor)
{
    uint64_t elements;

    for (int d = 0; d < tensor->ndim; d++)
        if (piece->shape[d] == 0 || piece->shape[d] > tensor->shape[d] ||
            piece->start[d] > tensor->shape[d] - piece->shape[d])
            return false;
    elements = box_elements(piece->shape, tensor->ndim);
    return piece->first <= elements && piece->count <= elements - piece->first;
}

struct ckpt_piece piece_of_tensor(uint32_t index, const struct ckpt_tensor *tensor, uint64_t first, uint64_t count)
{
    struct ckpt_piece piece = {.tensor = index, .first = first, .count = count};

    memcpy(piece.shape, tensor->shape, (size_t)tensor->ndim * sizeof *piece.shape);
    return piece;
}

/* Tensor coordinates of element `index` of the piece's box. */
static void locate(const struct ckpt_piece *piece, int ndim, uint64_t index, uint64_t *coordinates)
{
    for (int d = ndim - 1; d >= 0; d--) {
        coordinates[d] = piece->start[d] + index % piece->shape[d];
        index /= piece->shape[d];
    }
}

/* How many elements of the piece's box come before the coordinates, which may lie outside the box. */
static uint64_t elements_before(const struct ckpt_piece *piece, int ndim, const uint64_t *coordinates)
{
    uint64_t before = 0, below = box_elements(piece->shape, ndim);

    for (int d = 0; d < ndim; d++) {
        below /= piece->shape[d];
        if (coordinates[d] < piece->start[d])
            return before; /* all that share the prefix come later */
        if (coordinates[d] - piece->start[d] >= piece->shape[d])
            return before + piece->shape[d] * below; /* all that share the prefix come earlier */
        before += (coordinates[d] - piece->start[d]) * below;
    }
    return before;
}

void piece_extent(const struct ckpt_piece *piece, const struct ckpt_tensor *tensor, uint64_t *first, uint64_t *last)
{
    struct ckpt_piece whole = piece_of_tensor(0, tensor, 0, 0);
    uint64_t coordinates[CKPT_MAX_DIMS] = {0};

    locate(piece, tensor->ndim, piece->first, coordinates);
    *first = elements_before(&whole, tensor->ndim, coordinates);
    locate(piece, tensor->ndim, piece->first + piece->count - 1, coordinates);
    *last = elements_before(&whole, tensor->ndim, coordinates);
}

/* Narrow common's run to what lies between the first and the last element of `piece`. */
static void narrow(struct ckpt_piece *common, const struct ckpt_piece *piece, int ndim)
{
    uint64_t coordinates[CKPT_MAX_DIMS] = {0}, begin, end, common_end = common->first + common->count;

    locate(piece, ndim, piece->first, coordinates);
    begin = elements_before(common, ndim, coordinates);
    locate(piece, ndim, piece->first + piece->count - 1, coordinates);
    coordinates[ndim - 1]++; /* just past the last, still in lexicographic order */
    end = elements_before(common, ndim, coordinates);
    if (begin > common->first)
        common->first = begin;
    if (end > common_end)
        end = common_end;
    common->count = end > common->first ? end - common->first : 0;
}

bool piece_intersect(const struct ckpt_piece *a, const struct ckpt_piece *b, int ndim, struct ckpt_piece *common)
{
    memset(common, 0, sizeof *common);
    common->tensor = a->tensor;
    if (a->count == 0 || b->count == 0)
        return false;
    for (int d = 0; d < ndim; d++) {
        uint64_t a_end = a->start[d] + a->shape[d], b_end = b->start[d] + b->shape[d];
        uint64_t begin = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
        uint64_t end = a_end < b_end ? a_end : b_end;

        if (begin >= end)
            return false;
        common->start[d] = begin;
        common->shape[d] = end - begin;
    }
    common->count = box_elements(common->shape, ndim);
    narrow(common, a, ndim);
    narrow(common, b, ndim);
    return common->count > 0;
}

size_t pieces_cut(const struct ckpt_piece *pieces, size_t npieces, uint64_t first, uint64_t count,
                  struct ckpt_piece *parts)
{
    uint64_t at = 0, end = first + count;
    size_t nparts = 0;

    for (size_t p = 0; p < npieces && at < end; at += pieces[p++].count) {
        uint64_t from = first > at ? first - at : 0, to = end - at < pieces[p].count ? end - at : pieces[p].count;

        if (from >= to)
            continue;
        parts[nparts] = pieces[p];
        parts[nparts].first += from;
        parts[nparts++].count = to - from;
    }
    return nparts;
}

/* Elements in a row of common's box that are contiguous in both: its last axis, and outer ones while nothing is cut
 * off. */
static uint64_t contiguous_row(const struct ckpt_piece *common, const struct ckpt_piece *a, const struct ckpt_piece *b,
                               int ndim)
{
    uint64_t row = 1;

    for (int d = ndim - 1; d >= 0; d--) {
        row *= common->shape[d];
        if (common->shape[d] != a->shape[d] || common->shape[d] != b->shape[d])
            break;
    }
    return row;
}

bool overlap_start(struct overlap *walk, const struct ckpt_piece *a, const struct ckpt_piece *b, int ndim)
{
    memset(walk, 0, sizeof *walk);
    walk->pieces[0] = a;
    walk->pieces[1] = b;
    walk->ndim = ndim;
    if (!piece_intersect(a, b, ndim, &walk->common))
        return false;
    walk->at = walk->common.first;
    walk->end = walk->common.first + walk->common.count;
    walk->row = contiguous_row(&walk->common, a, b, ndim);
    return true;
}

/* Where element `at` of common's box lies in piece `which`, from the piece's first element. */
static uint64_t offset_in(const struct overlap *walk, uint64_t at, int which)
{
    uint64_t coordinates[CKPT_MAX_DIMS] = {0};

    locate(&walk->common, walk->ndim, at, coordinates);
    return elements_before(walk->pieces[which], walk->ndim, coordinates) - walk->pieces[which]->first;
}

/* The first element of common's box that lies at b or behind it; walk->end if none does. */
static uint64_t lower_bound(const struct overlap *walk, uint64_t b)
{
    uint64_t low = walk->at, high = walk->end;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (offset_in(walk, middle, 1) < b)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool overlap_within(struct overlap *walk, uint64_t begin, uint64_t end)
{
    uint64_t at = lower_bound(walk, begin);

    walk->end = lower_bound(walk, end);
    walk->at = at;
    return walk->at < walk->end;
}

void overlap_span(const struct overlap *walk, uint64_t *first, uint64_t *last)
{
    *first = offset_in(walk, walk->at, 1);
    *last = offset_in(walk, walk->end - 1, 1);
}

bool overlap_next(struct overlap *walk, uint64_t most)
{
    if (walk->at >= walk->end || most == 0)
        return false;
    walk->count = walk->row - walk->at % walk->row;
    if (walk->count > walk->end - walk->at)
        walk->count = walk->end - walk->at;
    if (walk->count > most)
        walk->count = most;
    walk->a = offset_in(walk, walk->at, 0);
    walk->b = offset_in(walk, walk->at, 1);
    walk->at += walk->count;
    return true;
}

bool overlap_peek(const struct overlap *walk, uint64_t *b)
{
    if (walk->at >= walk->end)
        return false;
    *b = offset_in(walk, walk->at, 1);
    return true;
}

#include "config.h"

#include "ckpt/format/pieces.h"

#include <inttypes.h>
#include <stdlib.h>
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

bool tensor_same_shape(const struct ckpt_tensor *a, const struct ckpt_tensor *b)
{
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
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
static void find_coordinates(const struct ckpt_piece *piece, int ndim, uint64_t index, uint64_t *coordinates)
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

    find_coordinates(piece, tensor->ndim, piece->first, coordinates);
    *first = elements_before(&whole, tensor->ndim, coordinates);
    find_coordinates(piece, tensor->ndim, piece->first + piece->count - 1, coordinates);
    *last = elements_before(&whole, tensor->ndim, coordinates);
}

/* Narrow common's run to what lies between the first and the last element of `piece`. */
static void narrow_run(struct ckpt_piece *common, const struct ckpt_piece *piece, int ndim)
{
    uint64_t coordinates[CKPT_MAX_DIMS] = {0}, begin, end, common_end = common->first + common->count;

    find_coordinates(piece, ndim, piece->first, coordinates);
    begin = elements_before(common, ndim, coordinates);
    find_coordinates(piece, ndim, piece->first + piece->count - 1, coordinates);
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
    narrow_run(common, a, ndim);
    narrow_run(common, b, ndim);
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

    find_coordinates(&walk->common, walk->ndim, at, coordinates);
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

#define MOST_BOXES 4096 /* of a tensor: all pairs are compared */

static int by_place(const void *left, const void *right)
{
    const struct cover_piece *a = left, *b = right;

    if (a->piece->tensor != b->piece->tensor)
        return a->piece->tensor < b->piece->tensor ? -1 : 1;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return (a->shard > b->shard) - (a->shard < b->shard);
}

static void collect_pieces(struct cover *cover, const struct manifest *manifest)
{
    size_t count = 0;

    for (int s = 0; s < manifest->shards; s++) {
        uint64_t offset = 0;

        for (size_t p = 0; p < manifest->shard[s].npieces; p++) {
            const struct ckpt_piece *piece = &manifest->shard[s].pieces[p];
            struct cover_piece *entry = &cover->pieces[count++];

            entry->piece = piece;
            entry->shard = s;
            entry->offset = offset;
            piece_extent(piece, &manifest->tensors[piece->tensor], &entry->first, &entry->last);
            offset += piece->count;
        }
    }
    if (count)
        qsort(cover->pieces, count, sizeof *cover->pieces, by_place);
    for (size_t t = 0, i = 0; t <= manifest->ntensors; t++) {
        cover->start[t] = i;
        while (t < manifest->ntensors && i < count && cover->pieces[i].piece->tensor == t)
            i++;
    }
}

/* All pieces of one box, by where their runs begin. */
struct group {
    struct cover_piece **pieces;
    size_t count;
};

static int compare_boxes(const struct ckpt_piece *a, const struct ckpt_piece *b)
{
    int order = memcmp(a->start, b->start, sizeof a->start);

    return order ? order : memcmp(a->shape, b->shape, sizeof a->shape);
}

static int by_box(const void *left, const void *right)
{
    const struct cover_piece *a = *(struct cover_piece *const *)left, *b = *(struct cover_piece *const *)right;
    int order = compare_boxes(a->piece, b->piece);

    if (order)
        return order;
    if (a->piece->first != b->piece->first)
        return a->piece->first < b->piece->first ? -1 : 1;
    return (a->shard > b->shard) - (a->shard < b->shard);
}

static int check_pair(const struct ckpt_tensor *tensor, const struct cover_piece *a, const struct cover_piece *b,
                      struct error *err)
{
    struct ckpt_piece common;

    if (!piece_intersect(a->piece, b->piece, tensor->ndim, &common))
        return 0;
    return error_set(err, CODE_DATA, "tensor \"%s\": shards %d and %d both have %" PRIu64 " of its elements",
                     tensor->name, a->shard < b->shard ? a->shard : b->shard, a->shard < b->shard ? b->shard : a->shard,
                     common.count);
}

static bool boxes_meet(const struct ckpt_piece *a, const struct ckpt_piece *b, int ndim)
{
    for (int d = 0; d < ndim; d++)
        if (a->start[d] >= b->start[d] + b->shape[d] || b->start[d] >= a->start[d] + a->shape[d])
            return false;
    return true;
}

/* Within a group runs and extents have one order, so that a merge sees every pair whose extents meet. */
static int check_groups(const struct ckpt_tensor *tensor, const struct group *a, const struct group *b,
                        struct error *err)
{
    if (!boxes_meet(a->pieces[0]->piece, b->pieces[0]->piece, tensor->ndim))
        return 0;
    for (size_t i = 0, j = 0; i < a->count && j < b->count;) {
        if (check_pair(tensor, a->pieces[i], b->pieces[j], err) < 0)
            return -1;
        if (a->pieces[i]->last < b->pieces[j]->last)
            i++;
        else
            j++;
    }
    return 0;
}

/* Sorts the pieces by box; the groups must have disjoint runs. Returns how many there are, or -1. */
static int make_groups(const struct ckpt_tensor *tensor, struct cover_piece **pieces, size_t count,
                       struct group *groups, struct error *err)
{
    int ngroups = 0;

    if (count)
        qsort(pieces, count, sizeof *pieces, by_box);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || compare_boxes(pieces[i - 1]->piece, pieces[i]->piece) != 0) {
            if (ngroups == MOST_BOXES)
                return error_set(err, CODE_DATA, "tensor \"%s\": more than %d different boxes", tensor->name,
                                 MOST_BOXES);
            groups[ngroups++] = (struct group){&pieces[i], 0};
        } else if (check_pair(tensor, pieces[i - 1], pieces[i], err) < 0) {
            return -1;
        }
        groups[ngroups - 1].count++;
    }
    return ngroups;
}

static int check_disjoint(struct cover *cover, size_t t, struct error *err)
{
    const struct ckpt_tensor *tensor = &cover->manifest->tensors[t];
    size_t count = cover->start[t + 1] - cover->start[t];
    struct cover_piece **pieces = calloc(count + 1, sizeof *pieces);
    struct group *groups = calloc((count < MOST_BOXES ? count : MOST_BOXES) + 1, sizeof *groups);
    int ngroups, result = -1;

    if (!pieces || !groups) {
        error_errno(err, CODE_IO, "an index of %zu pieces", count);
        goto out;
    }
    for (size_t i = 0; i < count; i++)
        pieces[i] = &cover->pieces[cover->start[t] + i];
    ngroups = make_groups(tensor, pieces, count, groups, err);
    if (ngroups < 0)
        goto out;
    for (int i = 0; i < ngroups; i++)
        for (int j = i + 1; j < ngroups; j++)
            if (check_groups(tensor, &groups[i], &groups[j], err) < 0)
                goto out;
    result = 0;
out:
    free(pieces);
    free(groups);
    return result;
}

/*
 * Check that no two pieces of the tensor overlap and that together they have as many elements as it: so, all elements.
 */
static int check_tensor(struct cover *cover, size_t t, struct error *err)
{
    const struct ckpt_tensor *tensor = &cover->manifest->tensors[t];
    uint64_t elements = 0, whole = box_elements(tensor->shape, tensor->ndim);

    for (size_t i = cover->start[t]; i < cover->start[t + 1]; i++) {
        struct cover_piece *a = &cover->pieces[i];

        a->reach = i > cover->start[t] && a[-1].reach > a->last ? a[-1].reach : a->last;
    }
    if (check_disjoint(cover, t, err) < 0)
        return -1;
    for (size_t i = cover->start[t]; i < cover->start[t + 1]; i++)
        elements += cover->pieces[i].piece->count; /* cannot overflow: they are distinct elements of the tensor */
    if (elements != whole)
        return error_set(err, CODE_DATA, "tensor \"%s\": the shards have %" PRIu64 " of its %" PRIu64 " elements",
                         tensor->name, elements, whole);
    return 0;
}

int cover_create(struct cover *cover, const struct manifest *manifest, struct error *err)
{
    size_t count = 0;

    memset(cover, 0, sizeof *cover);
    for (int s = 0; s < manifest->shards; s++)
        count += manifest->shard[s].npieces;
    cover->manifest = manifest;
    cover->pieces = calloc(count + 1, sizeof *cover->pieces);
    cover->start = calloc(manifest->ntensors + 1, sizeof *cover->start);
    if (!cover->pieces || !cover->start) {
        error_errno(err, CODE_IO, "an index of %zu pieces", count);
        goto fail;
    }
    collect_pieces(cover, manifest);
    for (size_t t = 0; t < manifest->ntensors; t++)
        if (check_tensor(cover, t, err) < 0)
            goto fail;
    return 0;
fail:
    cover_destroy(cover);
    return -1;
}

void cover_destroy(struct cover *cover)
{
    free(cover->pieces);
    free(cover->start);
    memset(cover, 0, sizeof *cover);
}

size_t cover_begin(const struct cover *cover, size_t tensor, uint64_t first)
{
    size_t low = cover->start[tensor], high = cover->start[tensor + 1];

    /* `reach` never falls: bisect for the first piece after which something reaches as far as `first`. */
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (cover->pieces[middle].reach < first)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool cover_in(const struct cover *cover, size_t tensor, size_t index, uint64_t last)
{
    return index < cover->start[tensor + 1] && cover->pieces[index].first <= last;
}

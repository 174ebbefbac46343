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

static int compare_entries(const void *left, const void *right)
{
    return strcmp((*(const struct ckpt_tensor *const *)left)->name, (*(const struct ckpt_tensor *const *)right)->name);
}

static int compare_name(const void *name, const void *tensor)
{
    return strcmp(name, (*(const struct ckpt_tensor *const *)tensor)->name);
}

const struct ckpt_tensor **tensors_by_name(const struct ckpt_tensor *tensors, size_t ntensors)
{
    const struct ckpt_tensor **by_name = calloc(ntensors + 1, sizeof *by_name);

    for (size_t t = 0; by_name && t < ntensors; t++)
        by_name[t] = &tensors[t];
    if (by_name)
        qsort(by_name, ntensors, sizeof *by_name, compare_entries);
    return by_name;
}

const struct ckpt_tensor *tensors_find(const struct ckpt_tensor *const *by_name, size_t ntensors, const char *name)
{
    const struct ckpt_tensor *const *found = bsearch(name, by_name, ntensors, sizeof *by_name, compare_name);

    return found ? *found : NULL;
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

/* The elements that a and b share, as a piece; false if there are none. Both are valid pieces of the same tensor. */
static bool intersect_pieces(const struct ckpt_piece *a, const struct ckpt_piece *b, int ndim,
                             struct ckpt_piece *common)
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
                  struct ckpt_piece *cut)
{
    uint64_t at = 0, end = first + count;
    size_t nparts = 0;

    for (size_t p = 0; p < npieces && at < end; at += pieces[p++].count) {
        uint64_t from = first > at ? first - at : 0, to = end - at < pieces[p].count ? end - at : pieces[p].count;

        if (from >= to)
            continue;
        cut[nparts] = pieces[p];
        cut[nparts].first += from;
        cut[nparts++].count = to - from;
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
    if (!intersect_pieces(a, b, ndim, &walk->common))
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

/* The first element of common's box whose position in the second piece is at least `b`; walk->end if there is none. */
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

bool overlap_next(struct overlap *walk)
{
    if (walk->at >= walk->end)
        return false;
    walk->count = walk->row - walk->at % walk->row;
    if (walk->count > walk->end - walk->at)
        walk->count = walk->end - walk->at;
    walk->at_a = offset_in(walk, walk->at, 0);
    walk->at_b = offset_in(walk, walk->at, 1);
    walk->at += walk->count;
    return true;
}

#define MOST_BOXES 4096 /* of a tensor: all pairs are compared */

static int compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_place(const void *left, const void *right)
{
    const struct indexed_piece *a = left, *b = right;
    int order = compare_numbers(a->piece->tensor, b->piece->tensor);

    order = order ? order : compare_numbers(a->tensor_first, b->tensor_first);
    return order ? order : compare_numbers((uint64_t)a->shard, (uint64_t)b->shard);
}

static int by_box(const void *left, const void *right)
{
    const struct ckpt_piece *a = ((const struct indexed_piece *)left)->piece;
    const struct ckpt_piece *b = ((const struct indexed_piece *)right)->piece;
    int order = compare_numbers(a->tensor, b->tensor);

    order = order ? order : memcmp(a->start, b->start, sizeof a->start);
    return order ? order : memcmp(a->shape, b->shape, sizeof a->shape);
}

/* The list of all pieces, in no order. */
static void collect_pieces(struct piece_index *index)
{
    const struct manifest *manifest = index->manifest;

    for (int s = 0; s < manifest->shards; s++) {
        uint64_t offset = 0;

        for (size_t p = 0; p < manifest->shard[s].npieces; p++) {
            const struct ckpt_piece *piece = &manifest->shard[s].pieces[p];
            struct indexed_piece *indexed = &index->pieces[index->npieces++];

            *indexed = (struct indexed_piece){.piece = piece, .shard = s, .offset = offset};
            piece_extent(piece, &manifest->tensors[piece->tensor], &indexed->tensor_first, &indexed->tensor_last);
            offset += piece->count;
        }
    }
}

/* Check that no tensor has too many boxes. Sorts the pieces. */
static int count_boxes(struct piece_index *index, struct error *err)
{
    size_t boxes = 0;

    qsort(index->pieces, index->npieces, sizeof *index->pieces, by_box);
    for (size_t i = 0; i < index->npieces; i++) {
        uint32_t tensor = index->pieces[i].piece->tensor;

        if (i == 0 || tensor != index->pieces[i - 1].piece->tensor)
            boxes = 1;
        else if (by_box(&index->pieces[i - 1], &index->pieces[i]) != 0 && ++boxes > MOST_BOXES)
            return error_set(err, CODE_DATA, "tensor \"%s\": more than %d different boxes",
                             index->manifest->tensors[tensor].name, MOST_BOXES);
    }
    return 0;
}

static void sort_pieces(struct piece_index *index)
{
    qsort(index->pieces, index->npieces, sizeof *index->pieces, by_place);
    for (size_t t = 0, i = 0; t <= index->manifest->ntensors; t++) {
        uint64_t last = 0;

        index->start[t] = i;
        for (; i < index->npieces && index->pieces[i].piece->tensor == t; i++) {
            last = index->pieces[i].tensor_last > last ? index->pieces[i].tensor_last : last;
            index->pieces[i].last_so_far = last;
        }
    }
}

static int check_pair(const struct ckpt_tensor *tensor, const struct indexed_piece *a, const struct indexed_piece *b,
                      struct error *err)
{
    struct ckpt_piece common;

    if (!intersect_pieces(a->piece, b->piece, tensor->ndim, &common))
        return 0;
    return error_set(err, CODE_DATA, "tensor \"%s\": shards %d and %d both have %" PRIu64 " of its elements",
                     tensor->name, a->shard < b->shard ? a->shard : b->shard, a->shard < b->shard ? b->shard : a->shard,
                     common.count);
}

/*
 * Check that no two pieces of the tensor overlap, and that they have as many elements as the tensor. Then they cover
 * it. Compares only pairs whose extents overlap. Two pieces of the same box whose extents overlap share elements, which
 * fails at once; so a tensor of B boxes and N pieces has at most B x N pairs to compare.
 */
static int check_tensor(const struct piece_index *index, size_t t, struct error *err)
{
    const struct ckpt_tensor *tensor = &index->manifest->tensors[t];
    uint64_t elements = 0, whole = box_elements(tensor->shape, tensor->ndim);

    for (size_t i = index->start[t]; i < index->start[t + 1]; i++) {
        const struct indexed_piece *a = &index->pieces[i];

        for (size_t j = i + 1; j < index->start[t + 1] && index->pieces[j].tensor_first <= a->tensor_last; j++)
            if (check_pair(tensor, a, &index->pieces[j], err) < 0)
                return -1;
        elements += a->piece->count; /* cannot overflow: they are distinct elements of the tensor */
    }
    if (elements != whole)
        return error_set(err, CODE_DATA, "tensor \"%s\": the shards have %" PRIu64 " of its %" PRIu64 " elements",
                         tensor->name, elements, whole);
    return 0;
}

int piece_index_create(struct piece_index *index, const struct manifest *manifest, struct error *err)
{
    size_t count = 0;

    memset(index, 0, sizeof *index);
    for (int s = 0; s < manifest->shards; s++)
        count += manifest->shard[s].npieces;
    index->manifest = manifest;
    index->pieces = error_calloc(count + 1, sizeof *index->pieces, err);
    index->start = error_calloc(manifest->ntensors + 1, sizeof *index->start, err);
    if (!index->pieces || !index->start)
        goto fail;
    collect_pieces(index);
    if (count_boxes(index, err) < 0)
        goto fail;
    sort_pieces(index);
    for (size_t t = 0; t < manifest->ntensors; t++)
        if (check_tensor(index, t, err) < 0)
            goto fail;
    return 0;
fail:
    piece_index_destroy(index);
    return -1;
}

size_t piece_index_find(const struct piece_index *index, uint32_t tensor, uint64_t first)
{
    size_t low = index->start[tensor], high = index->start[tensor + 1];

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (index->pieces[middle].last_so_far < first)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void piece_index_destroy(struct piece_index *index)
{
    free(index->pieces);
    free(index->start);
    memset(index, 0, sizeof *index);
}

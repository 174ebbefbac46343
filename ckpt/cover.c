#include "config.h"

#include "ckpt/cover.h"
#include "ckpt/interval.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int by_place(const void *left, const void *right)
{
    const struct cover_piece *a = left, *b = right;

    if (a->piece->tensor != b->piece->tensor)
        return a->piece->tensor < b->piece->tensor ? -1 : 1;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return (a->shard > b->shard) - (a->shard < b->shard);
}

static void collect(struct cover *cover, const struct manifest *manifest)
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

/* That no piece of the tensor overlaps another, and that together they are as many elements as it has: so, all of them.
 */
static int check_tensor(struct cover *cover, size_t t, struct error *err)
{
    const struct ckpt_tensor *tensor = &cover->manifest->tensors[t];
    uint64_t elements = 0, whole = box_elements(tensor->shape, tensor->ndim);
    struct ckpt_piece common;

    for (size_t i = cover->start[t]; i < cover->start[t + 1]; i++) {
        struct cover_piece *a = &cover->pieces[i];

        a->reach = i > cover->start[t] && a[-1].reach > a->last ? a[-1].reach : a->last;
        for (size_t j = i + 1; j < cover->start[t + 1] && cover->pieces[j].first <= a->last; j++) {
            const struct cover_piece *b = &cover->pieces[j];

            if (piece_intersect(a->piece, b->piece, tensor->ndim, &common))
                return error_set(err, CODE_DATA,
                                 "tensor \"%s\": shards %d and %d both have %" PRIu64 " of its elements", tensor->name,
                                 a->shard, b->shard, common.count);
        }
    }
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
    collect(cover, manifest);
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

/* read.c - ckpt_read: from any mesh into any other. checkpoint.h describes the plan. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/file/workers.h"
#include "ckpt/format/pieces.h"
#include "ckpt/read/checkpoint.h"

static int check_tensors(const struct ckpt *ckpt, const struct ckpt_tensor *tensors, size_t ntensors, struct error *err)
{
    if (ntensors != ckpt->manifest->ntensors)
        return error_set(err, CODE_DATA, "%s: has %zu tensors, the model has %zu", ckpt->directory.path,
                         ckpt->manifest->ntensors, ntensors);
    for (size_t t = 0; t < ntensors; t++) {
        const struct ckpt_tensor *there = checkpoint_find(ckpt, tensors[t].name);

        if (!there)
            return error_set(err, CODE_DATA, "%s: has no tensor \"%s\"", ckpt->directory.path, tensors[t].name);
        if (!tensor_same_shape(there, &tensors[t]))
            return error_set(err, CODE_DATA, "%s: tensor \"%s\" has another shape than in the model",
                             ckpt->directory.path, tensors[t].name);
    }
    return 0;
}

/* Splits a copy at the boundaries of the shard's blocks, and adds the parts to the plan. */
static int add_blocks(struct reading *reading, const struct copy *whole, struct error *err)
{
    uint64_t first, last;

    overlap_span(&whole->walk, &first, &last);
    for (uint64_t block = (whole->base + 4 * first) / SHARD_BLOCK; block <= (whole->base + 4 * last) / SHARD_BLOCK;
         block++) {
        uint64_t begin = block * SHARD_BLOCK, end = begin + SHARD_BLOCK;
        struct copy copy = *whole;

        copy.place.block = block;
        if (!overlap_within(&copy.walk, begin > copy.base ? (begin - copy.base) / 4 : 0, (end - copy.base) / 4))
            continue;
        if (error_reserve(&reading->copies, &reading->room, reading->count, 1, sizeof copy, err) < 0)
            return -1;
        reading->copies[reading->count++] = copy;
    }
    return 0;
}

/* One piece of the reader's, one kind: copies for every piece of the checkpoint that overlaps it. */
static int plan_piece(struct reading *reading, const struct ckpt_piece *piece, int kind, void *target,
                      struct error *err)
{
    const struct ckpt *ckpt = reading->ckpt;
    const struct ckpt_tensor *tensor = &ckpt->manifest->tensors[piece->tensor];
    uint64_t tensor_first, tensor_last;

    piece_extent(piece, tensor, &tensor_first, &tensor_last);
    for (size_t i = piece_index_find(&ckpt->index, piece->tensor, tensor_first);
         i < ckpt->index.start[piece->tensor + 1] && ckpt->index.pieces[i].tensor_first <= tensor_last; i++) {
        const struct indexed_piece *from = &ckpt->index.pieces[i];
        struct copy copy = {.place.shard = from->shard, .target = target};

        if (from->tensor_last < tensor_first || !overlap_start(&copy.walk, piece, from->piece, tensor->ndim))
            continue;
        copy.base = (uint64_t)kind * ckpt->manifest->shard[from->shard].layout.stride + from->offset * 4;
        if (add_blocks(reading, &copy, err) < 0)
            return -1;
    }
    return 0;
}

static int compare_places(const void *left, const void *right)
{
    return block_place_compare(&((const struct copy *)left)->place, &((const struct copy *)right)->place);
}

static int list_blocks(struct reading *reading, struct error *err)
{
    if (reading->count)
        qsort(reading->copies, reading->count, sizeof *reading->copies, compare_places);
    if (!(reading->first = error_calloc(reading->count + 1, sizeof *reading->first, err)))
        return -1;
    for (size_t i = 0; i < reading->count; i++)
        if (i == 0 || compare_places(&reading->copies[i - 1], &reading->copies[i]) != 0)
            reading->first[reading->blocks++] = i;
    reading->first[reading->blocks] = reading->count;
    if (!(reading->alone = error_calloc(reading->blocks + 1, sizeof *reading->alone, err)))
        return -1;
    for (reading->nalone = 0; reading->nalone < reading->blocks; reading->nalone++)
        reading->alone[reading->nalone] = reading->nalone;
    return 0;
}

static int make_plan(struct reading *reading, const struct ckpt_tensor *tensors, size_t ntensors,
                     const char *const *kinds, size_t nkinds, const struct ckpt_piece *pieces, size_t npieces,
                     void *const *targets, struct error *err)
{
    const struct manifest *manifest = reading->ckpt->manifest;

    if (!(reading->pieces = error_calloc(npieces + 1, sizeof *reading->pieces, err)))
        return -1;
    for (size_t p = 0; p < npieces; p++) {
        struct ckpt_piece *piece = &reading->pieces[p];
        const struct ckpt_tensor *tensor;

        if (pieces[p].tensor >= ntensors)
            return error_set(err, CODE_INTERNAL, "ckpt_read: piece %zu is of tensor %" PRIu32 ", there are %zu", p,
                             pieces[p].tensor, ntensors);
        tensor = checkpoint_find(reading->ckpt, tensors[pieces[p].tensor].name);
        *piece = pieces[p];
        piece->tensor = (uint32_t)(tensor - manifest->tensors);
        if (!piece_is_valid(piece, tensor))
            return error_set(err, CODE_INTERNAL, "ckpt_read: piece %zu is not within tensor \"%s\"", p, tensor->name);
        for (size_t k = 0; k < nkinds && piece->count > 0; k++) {
            int kind = checkpoint_find_kind(reading->ckpt, kinds[k]);

            if (kind < 0)
                return error_set(err, CODE_DATA, "%s: has no kind \"%s\"", reading->ckpt->directory.path, kinds[k]);
            if (plan_piece(reading, piece, kind, targets[p * nkinds + k], err) < 0)
                return -1;
        }
    }
    return list_blocks(reading, err);
}

/* ---- the blocks of this process alone ---------------------------------------------------------------------------- */

/*
 * Whether at least half of the elements between the first and the last wanted one are wanted. If so, the block is read
 * past the page cache, which is faster. If not, it is read through the page cache: a later call (ckpt_reshard reads
 * rank after rank), or a process that does not load together with this one, may want the rest.
 */
static bool is_dense(const struct copy *copies, size_t count)
{
    uint64_t wanted = 0, spanned = 0;

    for (size_t i = 0; i < count; i++) {
        uint64_t first, last;

        overlap_span(&copies[i].walk, &first, &last);
        wanted += copies[i].walk.end - copies[i].walk.at;
        spanned += last - first + 1;
    }
    return wanted >= spanned / 2;
}

void reading_copy(struct reading *reading, size_t i, const char *bytes)
{
    struct copy *end = reading->copies + reading->first[i + 1];

    for (struct copy *copy = reading->copies + reading->first[i]; copy < end; copy++)
        while (overlap_next(&copy->walk))
            memcpy(copy->target + copy->walk.at_a * 4,
                   bytes + (copy->base + copy->walk.at_b * 4 - copy->place.block * SHARD_BLOCK), copy->walk.count * 4);
}

static int serve_block(void *arg, int worker, size_t item, struct error *err)
{
    struct reading *reading = arg;
    size_t i = reading->alone[item];
    const struct copy *copies = reading->copies + reading->first[i];
    void *buffer = block_reader_buffer(reading->reader, worker, err);

    if (!buffer || block_reader_read(reading->reader, &copies->place,
                                     is_dense(copies, reading->first[i + 1] - reading->first[i]), buffer, err) < 0)
        return -1;
    reading_copy(reading, i, buffer);
    return 0;
}

int ckpt_read_together(struct ckpt *ckpt, const struct ckpt_node *node, const struct ckpt_tensor *tensors,
                       size_t ntensors, const char *const *kinds, size_t nkinds, const struct ckpt_piece *pieces,
                       size_t npieces, void *const *targets, struct error *err)
{
    struct reading reading = {.ckpt = ckpt, .reader = block_reader_create(ckpt, READ_THREADS, err)};
    int result = -1;

    if (reading.reader && check_tensors(ckpt, tensors, ntensors, err) == 0)
        result = make_plan(&reading, tensors, ntensors, kinds, nkinds, pieces, npieces, targets, err);
    if (node && node->ranks > 1) {
        result = node->agree(node->arg, result, err);
        if (result == 0)
            result = reading_together(&reading, node, err);
    }
    if (result == 0)
        result = workers_run(READ_THREADS, reading.nalone, serve_block, &reading, err);
    block_reader_destroy(reading.reader);
    free(reading.alone);
    free(reading.first);
    free(reading.copies);
    free(reading.pieces);
    return result;
}

int ckpt_read(struct ckpt *ckpt, const struct ckpt_tensor *tensors, size_t ntensors, const char *const *kinds,
              size_t nkinds, const struct ckpt_piece *pieces, size_t npieces, void *const *targets, struct error *err)
{
    return ckpt_read_together(ckpt, NULL, tensors, ntensors, kinds, nkinds, pieces, npieces, targets, err);
}

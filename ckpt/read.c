/*
 * read.c - ckpt_read: from any topology into any other.
 *
 * What is wanted is first written down as *copies*: a piece of the reader's, a piece of the checkpoint's that overlaps
 * it, and a kind. Sorted by place in the shards, they are then served block by block: each block is read once,
 * verified, and every copy takes from it what it needs and stands still until its next block comes.
 */
#include "config.h"

#include "ckpt/checkpoint.h"
#include "ckpt/interval.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct copy {
    struct overlap walk; /* a: the reader's piece, b: the checkpoint's */
    int shard;
    uint64_t base;  /* bytes from the data's start to where element 0 of b lies */
    uint64_t next;  /* bytes from the data's start to where the next wanted byte lies; UINT64_MAX when done */
    uint64_t begin; /* `next` at the start: what they are sorted by */
    char *target;   /* where element 0 of a goes */
};

struct plan {
    struct copy *copies;
    size_t count, room;
    struct ckpt_piece *pieces; /* the reader's, with the checkpoint's numbers for tensors */
};

static int map_tensors(const struct ckpt *ckpt, const struct ckpt_tensor *tensors, size_t ntensors, uint32_t *map,
                       struct error *err)
{
    if (ntensors != ckpt->manifest->ntensors)
        return error_set(err, CODE_DATA, "%s: has %zu tensors, the model has %zu", ckpt->directory.path,
                         ckpt->manifest->ntensors, ntensors);
    for (size_t t = 0; t < ntensors; t++) {
        const struct ckpt_tensor *there = checkpoint_find(ckpt, tensors[t].name);

        if (!there)
            return error_set(err, CODE_DATA, "%s: has no tensor \"%s\"", ckpt->directory.path, tensors[t].name);
        if (there->ndim != tensors[t].ndim ||
            memcmp(there->shape, tensors[t].shape, (size_t)there->ndim * sizeof *there->shape) != 0)
            return error_set(err, CODE_DATA, "%s: tensor \"%s\" has another shape than in the model",
                             ckpt->directory.path, tensors[t].name);
        map[t] = (uint32_t)(there - ckpt->manifest->tensors);
    }
    return 0;
}

static int add_copy(struct plan *plan, const struct copy *copy, struct error *err)
{
    if (plan->count == plan->room) {
        size_t room = plan->room ? 2 * plan->room : 64;
        struct copy *grown = realloc(plan->copies, room * sizeof *grown);

        if (!grown)
            return error_errno(err, CODE_IO, "a plan of %zu copies", room);
        plan->copies = grown;
        plan->room = room;
    }
    plan->copies[plan->count++] = *copy;
    return 0;
}

static void find_next(struct copy *copy)
{
    uint64_t element;

    copy->next = overlap_peek(&copy->walk, &element) ? copy->base + 4 * element : UINT64_MAX;
}

/* One piece of the reader's, one kind: a copy for every piece of the checkpoint that overlaps it. */
static int plan_piece(struct plan *plan, const struct ckpt *ckpt, const struct ckpt_piece *piece, int kind,
                      void *target, struct error *err)
{
    const struct ckpt_tensor *tensor = &ckpt->manifest->tensors[piece->tensor];
    uint64_t first, last;

    piece_extent(piece, tensor, &first, &last);
    for (size_t i = cover_begin(&ckpt->cover, piece->tensor, first); cover_in(&ckpt->cover, piece->tensor, i, last);
         i++) {
        const struct cover_piece *from = &ckpt->cover.pieces[i];
        struct copy copy = {.shard = from->shard, .target = target};

        if (!overlap_start(&copy.walk, piece, from->piece, tensor->ndim))
            continue;
        copy.base = (uint64_t)kind * ckpt->manifest->shard[from->shard].layout.stride + from->offset * 4;
        find_next(&copy);
        copy.begin = copy.next;
        if (add_copy(plan, &copy, err) < 0)
            return -1;
    }
    return 0;
}

static int by_place(const void *left, const void *right)
{
    const struct copy *a = left, *b = right;

    if (a->shard != b->shard)
        return a->shard < b->shard ? -1 : 1;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

static int make_plan(struct plan *plan, const struct ckpt *ckpt, const uint32_t *map, size_t ntensors,
                     const char *const *kinds, size_t nkinds, const struct ckpt_piece *pieces, size_t npieces,
                     void *const *targets, struct error *err)
{
    plan->pieces = calloc(npieces + 1, sizeof *plan->pieces);
    if (!plan->pieces)
        return error_errno(err, CODE_IO, "a plan of %zu pieces", npieces);
    for (size_t p = 0; p < npieces; p++) {
        struct ckpt_piece *piece = &plan->pieces[p];

        *piece = pieces[p];
        if (piece->tensor >= ntensors)
            return error_set(err, CODE_INTERNAL, "ckpt_read: piece %zu is of tensor %" PRIu32 ", there are %zu", p,
                             piece->tensor, ntensors);
        piece->tensor = map[piece->tensor];
        if (!piece_is_valid(piece, &ckpt->manifest->tensors[piece->tensor]))
            return error_set(err, CODE_INTERNAL, "ckpt_read: piece %zu is not within tensor \"%s\"", p,
                             ckpt->manifest->tensors[piece->tensor].name);
        for (size_t k = 0; k < nkinds && piece->count > 0; k++) {
            int kind = checkpoint_find_kind(ckpt, kinds[k]);

            if (kind < 0)
                return error_set(err, CODE_DATA, "%s: has no kind \"%s\"", ckpt->directory.path, kinds[k]);
            if (plan_piece(plan, ckpt, piece, kind, targets[p * nkinds + k], err) < 0)
                return -1;
        }
    }
    if (plan->count)
        qsort(plan->copies, plan->count, sizeof *plan->copies, by_place);
    return 0;
}

/* Take what the copy wants of the block that starts `start` bytes into the data and is LAYOUT_BLOCK long. */
static void serve(struct copy *copy, const unsigned char *buffer, uint64_t start)
{
    while (copy->next < start + LAYOUT_BLOCK) {
        if (!overlap_next(&copy->walk, (start + LAYOUT_BLOCK - copy->next) / 4))
            break;
        memcpy(copy->target + copy->walk.a * 4, buffer + (copy->next - start), copy->walk.count * 4);
        find_next(copy);
    }
}

/* The first block that an unfinished copy wants; they are sorted, so that few have to be asked. UINT64_MAX: none. */
static uint64_t next_block(const struct copy *copies, size_t count)
{
    uint64_t block = UINT64_MAX;

    for (size_t i = 0; i < count && copies[i].begin / LAYOUT_BLOCK <= block; i++)
        if (copies[i].next != UINT64_MAX && copies[i].next / LAYOUT_BLOCK < block)
            block = copies[i].next / LAYOUT_BLOCK;
    return block;
}

/*
 * Whether most of what lies between the first and the last wanted element is wanted. Then the page cache would only
 * cost: this is the fast way to load. A rank that wants a column of every row shares its blocks with others, which may
 * be on its node: there the page cache saves them from being read once a rank.
 */
static bool is_dense(const struct copy *copies, size_t count)
{
    uint64_t wanted = 0, spanned = 0;

    for (size_t i = 0; i < count; i++) {
        struct overlap last = copies[i].walk;
        uint64_t begin = 0, end = 0;

        overlap_peek(&last, &begin);
        last.at = last.common.first + last.common.count - 1;
        overlap_peek(&last, &end);
        wanted += last.common.count;
        spanned += end - begin + 1;
    }
    return wanted >= spanned / 2;
}

/* All copies out of one shard. */
static int read_shard(const struct ckpt *ckpt, struct copy *copies, size_t count, void *buffer, struct error *err)
{
    bool direct = is_dense(copies, count);
    int shard = copies[0].shard, fd = checkpoint_open_shard(ckpt, shard, direct, err), result = 0;
    uint64_t block;

    if (fd < 0)
        return -1;
    while ((block = next_block(copies, count)) != UINT64_MAX) {
        uint64_t start = block * LAYOUT_BLOCK;

        result = checkpoint_read_block(ckpt, shard, fd, direct, block, buffer, err);
        if (result < 0)
            break;
        for (size_t i = 0; i < count && copies[i].begin < start + LAYOUT_BLOCK; i++)
            serve(&copies[i], buffer, start);
        for (; count > 0 && copies->next == UINT64_MAX; copies++)
            count--;
    }
    close(fd);
    return result;
}

static int execute(const struct ckpt *ckpt, struct plan *plan, struct error *err)
{
    void *buffer = aligned_alloc(LAYOUT_ALIGN, LAYOUT_BLOCK);
    int result = 0;

    if (!buffer)
        return error_errno(err, CODE_IO, "a buffer of %zu bytes", LAYOUT_BLOCK);
    for (size_t i = 0, end; i < plan->count && result == 0; i = end) {
        for (end = i; end < plan->count && plan->copies[end].shard == plan->copies[i].shard; end++)
            ;
        result = read_shard(ckpt, plan->copies + i, end - i, buffer, err);
    }
    free(buffer);
    return result;
}

int ckpt_read(struct ckpt *ckpt, const struct ckpt_tensor *tensors, size_t ntensors, const char *const *kinds,
              size_t nkinds, const struct ckpt_piece *pieces, size_t npieces, void *const *targets, struct error *err)
{
    uint32_t *map = calloc(ntensors + 1, sizeof *map);
    struct plan plan = {0};
    int result = -1;

    if (!map)
        return error_errno(err, CODE_IO, "a table of %zu tensors", ntensors);
    if (map_tensors(ckpt, tensors, ntensors, map, err) == 0 &&
        make_plan(&plan, ckpt, map, ntensors, kinds, nkinds, pieces, npieces, targets, err) == 0)
        result = execute(ckpt, &plan, err);
    free(plan.copies);
    free(plan.pieces);
    free(map);
    return result;
}

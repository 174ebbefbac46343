/*
 * read.c - ckpt_read: from any topology into any other.
 *
 * A plan lists *copies*: a piece of the reader's, a piece of the checkpoint's that overlaps it, and a kind, within one
 * *segment* of a shard, a few blocks long. Sorted by place in the shards, the segments are
 * then served by a few threads, block by block: each block is read once, verified, and every copy takes its bytes
 * from it and then waits for its next block.
 */

#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/file/workers.h"
#include "ckpt/format/pieces.h"
#include "ckpt/read/checkpoint.h"

#define SEGMENT      (4 * (uint64_t)SHARD_BLOCK)
#define READ_THREADS 4 /* enough in flight for a fast disk, and few enough for a node full of ranks */

struct copy {
    struct overlap walk; /* a: the reader's piece, b: the checkpoint's */
    int shard;
    uint64_t base;  /* bytes from the data's start to where element 0 of b lies */
    uint64_t next;  /* bytes from the data's start to where the next wanted byte lies; UINT64_MAX when done */
    uint64_t begin; /* `next` at the start: the sort key */
    char *target;   /* where element 0 of a goes */
};

struct read_plan {
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
        if (!tensor_same_shape(there, &tensors[t]))
            return error_set(err, CODE_DATA, "%s: tensor \"%s\" has another shape than in the model",
                             ckpt->directory.path, tensors[t].name);
        map[t] = (uint32_t)(there - ckpt->manifest->tensors);
    }
    return 0;
}

static int add_copy(struct read_plan *plan, const struct copy *copy, struct error *err)
{
    if (file_grow((void **)&plan->copies, plan->count, &plan->room, sizeof *copy) < 0)
        return error_errno(err, CODE_IO, "a plan of %zu copies", plan->count + 1);
    plan->copies[plan->count++] = *copy;
    return 0;
}

static void find_next(struct copy *copy)
{
    uint64_t element;

    copy->next = overlap_peek(&copy->walk, &element) ? copy->base + 4 * element : UINT64_MAX;
}

/* The parts of a copy that lie in one segment each. */
static int add_segments(struct read_plan *plan, const struct copy *whole, struct error *err)
{
    uint64_t first, last;

    overlap_span(&whole->walk, &first, &last);
    for (uint64_t s = (whole->base + 4 * first) / SEGMENT; s <= (whole->base + 4 * last) / SEGMENT; s++) {
        uint64_t begin = s * SEGMENT, end = begin + SEGMENT;
        struct copy copy = *whole;

        if (!overlap_within(&copy.walk, begin > copy.base ? (begin - copy.base) / 4 : 0, (end - copy.base) / 4))
            continue;
        find_next(&copy);
        copy.begin = copy.next;
        if (add_copy(plan, &copy, err) < 0)
            return -1;
    }
    return 0;
}

/* One piece of the reader's, one kind: copies for every piece of the checkpoint that overlaps it. */
static int plan_piece(struct read_plan *plan, const struct ckpt *ckpt, const struct ckpt_piece *piece, int kind,
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
        if (add_segments(plan, &copy, err) < 0)
            return -1;
    }
    return 0;
}

static int compare_places(const void *left, const void *right)
{
    const struct copy *a = left, *b = right;

    if (a->shard != b->shard)
        return a->shard < b->shard ? -1 : 1;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

static int make_plan(struct read_plan *plan, const struct ckpt *ckpt, const uint32_t *map, size_t ntensors,
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
        qsort(plan->copies, plan->count, sizeof *plan->copies, compare_places);
    return 0;
}

/*
 * Copies the bytes that the copy needs from the block that starts `start` bytes into the data and is SHARD_BLOCK long.
 */
static void serve_copy(struct copy *copy, const unsigned char *buffer, uint64_t start)
{
    while (copy->next < start + SHARD_BLOCK) {
        if (!overlap_next(&copy->walk, (start + SHARD_BLOCK - copy->next) / 4))
            break;
        memcpy(copy->target + copy->walk.a * 4, buffer + (copy->next - start), copy->walk.count * 4);
        find_next(copy);
    }
}

/* The first block that an unfinished copy wants; they are sorted, so that few have to be asked. UINT64_MAX: none. */
static uint64_t next_block(const struct copy *copies, size_t count)
{
    uint64_t block = UINT64_MAX;

    for (size_t i = 0; i < count && copies[i].begin / SHARD_BLOCK <= block; i++)
        if (copies[i].next != UINT64_MAX && copies[i].next / SHARD_BLOCK < block)
            block = copies[i].next / SHARD_BLOCK;
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
        uint64_t first, last;

        overlap_span(&copies[i].walk, &first, &last);
        wanted += copies[i].walk.end - copies[i].walk.at;
        spanned += last - first + 1;
    }
    return wanted >= spanned / 2;
}

/* Serves all copies from one segment; buffer holds a block. */
static int serve_segment(const struct ckpt *ckpt, struct copy *copies, size_t count, int fd, bool direct, void *buffer,
                         struct error *err)
{
    int shard = copies[0].shard;
    uint64_t block;

    while ((block = next_block(copies, count)) != UINT64_MAX) {
        uint64_t start = block * SHARD_BLOCK;

        if (checkpoint_read_block(ckpt, shard, fd, direct, block, buffer, err) < 0)
            return -1;
        for (size_t i = 0; i < count && copies[i].begin < start + SHARD_BLOCK; i++)
            serve_copy(&copies[i], buffer, start);
        for (; count > 0 && copies->next == UINT64_MAX; copies++)
            count--;
    }
    return 0;
}

/* A thread's buffer and open shard. */
struct shard_reader {
    void *buffer;
    int fd, shard;
    bool direct;
};

struct reading {
    const struct ckpt *ckpt;
    struct copy *copies;
    size_t *first; /* [segments + 1] copies first[s] to first[s + 1] - 1 are of segment s */
    size_t segments;
    struct shard_reader readers[READ_THREADS];
};

static bool is_new_segment(const struct copy *copy)
{
    return copy->shard != copy[-1].shard || copy->begin / SEGMENT != copy[-1].begin / SEGMENT;
}

static int list_segments(struct reading *reading, const struct read_plan *plan, struct error *err)
{
    reading->first = calloc(plan->count + 1, sizeof *reading->first);
    if (!reading->first)
        return error_errno(err, CODE_IO, "a plan of %zu copies", plan->count);
    for (size_t i = 0; i < plan->count; i++)
        if (i == 0 || is_new_segment(&plan->copies[i]))
            reading->first[reading->segments++] = i;
    reading->first[reading->segments] = plan->count;
    return 0;
}

static int read_segment(void *arg, int worker, size_t segment, struct error *err)
{
    struct reading *reading = arg;
    struct shard_reader *reader = &reading->readers[worker];
    struct copy *copies = reading->copies + reading->first[segment];
    size_t count = reading->first[segment + 1] - reading->first[segment];
    bool dense = is_dense(copies, count);

    if (!reader->buffer)
        reader->buffer = aligned_alloc(SHARD_ALIGN, SHARD_BLOCK);
    if (!reader->buffer)
        return error_errno(err, CODE_IO, "a buffer of %zu bytes", SHARD_BLOCK);
    if (reader->fd < 0 || copies->shard != reader->shard || dense != reader->direct) {
        if (reader->fd >= 0)
            close(reader->fd);
        reader->shard = copies->shard;
        reader->direct = dense;
        reader->fd = checkpoint_open_shard(reading->ckpt, reader->shard, dense, err);
    }
    if (reader->fd < 0)
        return -1;
    return serve_segment(reading->ckpt, copies, count, reader->fd, dense, reader->buffer, err);
}

static int execute_plan(const struct ckpt *ckpt, struct read_plan *plan, struct error *err)
{
    struct reading reading = {.ckpt = ckpt, .copies = plan->copies};
    int result = list_segments(&reading, plan, err);

    for (int i = 0; i < READ_THREADS; i++)
        reading.readers[i].fd = -1;
    if (result == 0)
        result = workers_run(READ_THREADS, reading.segments, read_segment, &reading, err);
    for (int i = 0; i < READ_THREADS; i++) {
        if (reading.readers[i].fd >= 0)
            close(reading.readers[i].fd);
        free(reading.readers[i].buffer);
    }
    free(reading.first);
    return result;
}

int ckpt_read(struct ckpt *ckpt, const struct ckpt_tensor *tensors, size_t ntensors, const char *const *kinds,
              size_t nkinds, const struct ckpt_piece *pieces, size_t npieces, void *const *targets, struct error *err)
{
    uint32_t *map = calloc(ntensors + 1, sizeof *map);
    struct read_plan plan = {0};
    int result = -1;

    if (!map)
        return error_errno(err, CODE_IO, "a table of %zu tensors", ntensors);
    if (map_tensors(ckpt, tensors, ntensors, map, err) == 0 &&
        make_plan(&plan, ckpt, map, ntensors, kinds, nkinds, pieces, npieces, targets, err) == 0)
        result = execute_plan(ckpt, &plan, err);
    free(plan.copies);
    free(plan.pieces);
    free(map);
    return result;
}

int checkpoint_read_pieces(struct ckpt *ckpt, const struct ckpt_tensor *tensors, size_t ntensors, const char *kind,
                           const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err)
{
    void **targets = calloc(npieces + 1, sizeof *targets);
    int result;

    if (!targets)
        return error_errno(err, CODE_IO, "a list of %zu pieces", npieces);
    for (size_t p = 0; p < npieces; to += pieces[p++].count)
        targets[p] = to;
    result = ckpt_read(ckpt, tensors, ntensors, &kind, 1, pieces, npieces, targets, err);
    free(targets);
    return result;
}

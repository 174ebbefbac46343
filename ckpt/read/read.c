/*
 * read.c - ckpt_read: from any mesh into any other; by one process, or by all of a node at once.
 *
 * A plan is a list of *copies*. A copy is the overlap of one piece of the reader with one piece of the checkpoint, for
 * one kind, within one block of a shard file. The copies are sorted by block. A few threads then take block after
 * block: each is read once, verified, and all its copies are made.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/file/workers.h"
#include "ckpt/read/checkpoint.h"

#define READ_THREADS 4 /* enough in flight for a fast disk, and few enough for a node full of ranks */

struct copy {
    struct overlap walk; /* a: the reader's piece, b: the checkpoint's */
    struct block_place place;
    uint64_t base; /* bytes from the data's start to where element 0 of b lies */
    char *target;  /* where element 0 of a goes */
};

struct reading {
    struct ckpt *ckpt;
    struct block_reader *reader; /* of READ_THREADS threads */
    struct ckpt_piece *pieces;   /* the reader's, but `tensor` is an index into the checkpoint's table */
    struct copy *copies;
    size_t count, room;
    size_t *first; /* [blocks + 1] copies first[i] to first[i + 1] - 1 are of the i-th needed block */
    size_t blocks; /* the number of needed blocks */
    size_t *alone; /* [nalone] those needed blocks that this process reads for itself, in order */
    size_t nalone;
};

static int match_tensors(const struct ckpt *ckpt, const struct ckpt_tensor *tensors, size_t ntensors, struct error *err)
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

/* Makes all copies of the i-th needed block. `bytes`: the block. */
static void make_copies(struct reading *reading, size_t i, const char *bytes)
{
    struct copy *end = reading->copies + reading->first[i + 1];

    for (struct copy *copy = reading->copies + reading->first[i]; copy < end; copy++)
        while (overlap_next(&copy->walk))
            memcpy(copy->target + copy->walk.at_a * 4,
                   bytes + (copy->base + copy->walk.at_b * 4 - copy->place.block * SHARD_BLOCK), copy->walk.count * 4);
}

/*
 * ---- the blocks that several processes of the node want ----
 *
 * A tensor-parallel rank wants a few columns of every row, and so a part of every block. Its neighbours on the node
 * want the other columns of the same blocks. A checksum is of a whole block. So each block is read once, as a whole,
 * into shared memory, and each process copies its part from there.
 *
 * In the shared memory, each process marks the blocks that it wants. Then all compute the same list: the blocks that at
 * least two processes want, in order, each with its reader, which is one of these processes. The list is cut into
 * windows of a few blocks. The memory has room for two windows. In step s each process reads the blocks of window s
 * whose reader it is, and copies from window s - 1. A step ends when all processes have finished it.
 */

#define WINDOW_READS 8  /* blocks that a process reads in a step, if there is room: two for each thread */
#define WINDOW_MOST  64 /* blocks in a window: on a node full of ranks, these are enough in flight */

struct shared_block {
    struct block_place place;
    int reader;
    size_t wanted; /* its number in the plan of this process, or NOT_WANTED */
};

#define NOT_WANTED SIZE_MAX

struct together {
    struct reading *reading;
    const struct ckpt_node *node;
    uint64_t *marks; /* [ranks * words] in the node's memory: a row for each process, with a bit for each block */
    size_t words;
    char *windows; /* in the node's memory: two of `window` blocks */
    size_t window;
    struct shared_block *blocks;
    size_t count, room;
    size_t *loads; /* [ranks] blocks that each process reads in the window that is being listed */

    /* of the present step */
    size_t *reads, *copies; /* [window] numbers of blocks[] */
    size_t nreads, ncopies;
};

static size_t count_words(const struct ckpt *ckpt)
{
    size_t blocks = 0;

    for (int s = 0; s < ckpt->manifest->shards; s++)
        blocks += ckpt->manifest->shard[s].layout.blocks;
    return (blocks + 63) / 64;
}

static size_t marks_bytes(const struct ckpt *ckpt, int ranks)
{
    size_t bytes = (size_t)ranks * count_words(ckpt) * sizeof(uint64_t);

    return (bytes + SHARD_ALIGN - 1) / SHARD_ALIGN * SHARD_ALIGN;
}

size_t ckpt_node_bytes(const struct ckpt *ckpt, int ranks)
{
    size_t window = (size_t)ranks * WINDOW_READS < WINDOW_MOST ? (size_t)ranks * WINDOW_READS : WINDOW_MOST;

    return marks_bytes(ckpt, ranks) + 2 * window * SHARD_BLOCK;
}

static int divide_memory(struct together *together, struct error *err)
{
    const struct ckpt_node *node = together->node;
    size_t marks = marks_bytes(together->reading->ckpt, node->ranks);

    if (node->bytes < marks + 2 * SHARD_BLOCK)
        return error_set(err, CODE_INTERNAL, "ckpt_read_together: %zu bytes of shared memory, at least %zu are needed",
                         node->bytes, marks + 2 * SHARD_BLOCK);
    together->marks = node->memory;
    together->words = count_words(together->reading->ckpt);
    together->windows = (char *)node->memory + marks;
    together->window = (node->bytes - marks) / (2 * SHARD_BLOCK);
    together->loads = error_calloc((size_t)node->ranks, sizeof *together->loads, err);
    together->reads = error_calloc(together->window, sizeof *together->reads, err);
    together->copies = error_calloc(together->window, sizeof *together->copies, err);
    return together->loads && together->reads && together->copies ? 0 : -1;
}

/* A walk over all blocks of the checkpoint, in order; `wanted` is the next one of this process. */
struct block_walk {
    struct block_place place;
    uint64_t number; /* of the place's block among all */
    size_t wanted;
};

/* Moves the walk to block `number`, which is not before its present one. */
static void walk_to(struct block_walk *walk, const struct manifest *manifest, uint64_t number)
{
    walk->place.block += number - walk->number;
    walk->number = number;
    while (walk->place.block >= manifest->shard[walk->place.shard].layout.blocks)
        walk->place.block -= manifest->shard[walk->place.shard++].layout.blocks;
}

static const struct block_place *wanted_place(const struct reading *reading, size_t i)
{
    return &reading->copies[reading->first[i]].place;
}

static void mark_wanted(struct together *together)
{
    const struct reading *reading = together->reading;
    uint64_t *row = together->marks + (size_t)together->node->rank * together->words, before = 0;
    int shard = 0;

    memset(row, 0, together->words * sizeof *row);
    for (size_t i = 0; i < reading->blocks; i++) {
        const struct block_place *place = wanted_place(reading, i);
        uint64_t number;

        while (shard < place->shard)
            before += reading->ckpt->manifest->shard[shard++].layout.blocks;
        number = before + place->block;
        row[number / 64] |= (uint64_t)1 << number % 64;
    }
}

static bool is_marked(const struct together *together, int rank, uint64_t number)
{
    return together->marks[(size_t)rank * together->words + number / 64] >> number % 64 & 1;
}

/* Of the processes that want it, the one that reads the fewest blocks of the window. */
static int choose_reader(struct together *together, uint64_t number)
{
    int best = -1;

    if (together->count % together->window == 0)
        memset(together->loads, 0, (size_t)together->node->ranks * sizeof *together->loads);
    for (int rank = 0; rank < together->node->ranks; rank++)
        if (is_marked(together, rank, number) && (best < 0 || together->loads[rank] < together->loads[best]))
            best = rank;
    together->loads[best]++;
    return best;
}

static int add_shared(struct together *together, struct block_walk *walk, struct error *err)
{
    const struct reading *reading = together->reading;
    struct shared_block block = {.place = walk->place, .wanted = NOT_WANTED};

    block.reader = choose_reader(together, walk->number);
    while (walk->wanted < reading->blocks && block_place_compare(wanted_place(reading, walk->wanted), &walk->place) < 0)
        walk->wanted++;
    if (is_marked(together, together->node->rank, walk->number))
        block.wanted = walk->wanted;
    if (error_reserve(&together->blocks, &together->room, together->count, 1, sizeof block, err) < 0)
        return -1;
    together->blocks[together->count++] = block;
    return 0;
}

/* The blocks that at least two processes want. */
static int list_shared(struct together *together, struct error *err)
{
    struct block_walk walk = {0};

    for (size_t word = 0; word < together->words; word++) {
        uint64_t once = 0, twice = 0;

        for (int rank = 0; rank < together->node->ranks; rank++) {
            uint64_t row = together->marks[(size_t)rank * together->words + word];

            twice |= once & row;
            once |= row;
        }
        for (; twice; twice &= twice - 1) {
            walk_to(&walk, together->reading->ckpt->manifest, word * 64 + (uint64_t)__builtin_ctzll(twice));
            if (add_shared(together, &walk, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* What is left for the caller. */
static void list_alone(const struct together *together)
{
    struct reading *reading = together->reading;
    size_t next = 0;

    reading->nalone = 0;
    for (size_t i = 0; i < reading->blocks; i++) {
        while (next < together->count &&
               (together->blocks[next].wanted == NOT_WANTED || together->blocks[next].wanted < i))
            next++;
        if (next == together->count || together->blocks[next].wanted != i)
            reading->alone[reading->nalone++] = i;
    }
}

static char *place_in_window(const struct together *together, size_t i)
{
    return together->windows + i % (2 * together->window) * SHARD_BLOCK;
}

/* What this process does in the step. */
static void list_step(struct together *together, size_t step)
{
    size_t from = step * together->window, end = from + together->window;

    together->nreads = together->ncopies = 0;
    for (size_t i = from; i < end && i < together->count; i++)
        if (together->blocks[i].reader == together->node->rank)
            together->reads[together->nreads++] = i;
    for (size_t i = from - (step ? together->window : 0); i < from && i < together->count; i++)
        if (together->blocks[i].wanted != NOT_WANTED)
            together->copies[together->ncopies++] = i;
}

/* Reads and copies take turns, so that there is always something in flight. */
static int work_step(void *arg, int worker, size_t item, struct error *err)
{
    struct together *together = arg;
    size_t all = together->nreads + together->ncopies, read = item * together->nreads / all, i;

    (void)worker;
    if ((item + 1) * together->nreads / all > read) {
        i = together->reads[read];
        return block_reader_read(together->reading->reader, &together->blocks[i].place, true,
                                 place_in_window(together, i), err);
    }
    i = together->copies[item - read];
    make_copies(together->reading, together->blocks[i].wanted, place_in_window(together, i));
    return 0;
}

/*
 * Of the blocks that several processes of the node need, reads this process's share, and makes its copies from all of
 * them. Sets `alone` and nalone to its other blocks. All processes of the node call it and get the same result.
 */
static int read_shared(struct reading *reading, const struct ckpt_node *node, struct error *err)
{
    struct together together = {.reading = reading, .node = node};
    int result = divide_memory(&together, err);

    if (result == 0)
        mark_wanted(&together);
    result = node->agree(node->arg, result, err);
    if (result == 0)
        result = node->agree(node->arg, list_shared(&together, err), err);
    for (size_t step = 0; result == 0 && together.count && step <= (together.count - 1) / together.window + 1; step++) {
        list_step(&together, step);
        result = workers_run(READ_THREADS, together.nreads + together.ncopies, work_step, &together, err);
        result = node->agree(node->arg, result, err);
    }
    if (result == 0)
        list_alone(&together);
    free(together.blocks);
    free(together.loads);
    free(together.reads);
    free(together.copies);
    return result;
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

static int serve_block(void *arg, int worker, size_t item, struct error *err)
{
    struct reading *reading = arg;
    size_t i = reading->alone[item];
    const struct copy *copies = reading->copies + reading->first[i];
    void *buffer = block_reader_buffer(reading->reader, worker, err);

    if (!buffer || block_reader_read(reading->reader, &copies->place,
                                     is_dense(copies, reading->first[i + 1] - reading->first[i]), buffer, err) < 0)
        return -1;
    make_copies(reading, i, buffer);
    return 0;
}

int ckpt_read_together(struct ckpt *ckpt, const struct ckpt_node *node, const struct ckpt_tensor *tensors,
                       size_t ntensors, const char *const *kinds, size_t nkinds, const struct ckpt_piece *pieces,
                       size_t npieces, void *const *targets, struct error *err)
{
    struct reading reading = {.ckpt = ckpt, .reader = block_reader_create(ckpt, READ_THREADS, err)};
    int result = -1;

    if (reading.reader && match_tensors(ckpt, tensors, ntensors, err) == 0)
        result = make_plan(&reading, tensors, ntensors, kinds, nkinds, pieces, npieces, targets, err);
    if (node && node->ranks > 1) {
        result = node->agree(node->arg, result, err);
        if (result == 0)
            result = read_shared(&reading, node, err);
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

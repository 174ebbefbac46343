/*
 * together.c - the processes of a node load at once: a block that several of them want is read by one of them.
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
#include <stdlib.h>
#include <string.h>

#include "ckpt/file/workers.h"
#include "ckpt/read/checkpoint.h"

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

/* ---- the node's memory ------------------------------------------------------------------------------------------- */

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

/* ---- the list ---------------------------------------------------------------------------------------------------- */

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

/* ---- the steps --------------------------------------------------------------------------------------------------- */

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
    reading_copy(together->reading, together->blocks[i].wanted, place_in_window(together, i));
    return 0;
}

int reading_together(struct reading *reading, const struct ckpt_node *node, struct error *err)
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

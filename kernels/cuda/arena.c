#include "kernels/cuda/arena.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A piece or a hole; together they are the whole range, in order. */
struct arena_block {
    size_t offset, size;
    size_t asked;
    bool used;
};

struct arena {
    size_t capacity, held;
    struct arena_block *blocks;
    size_t count, room;
};

struct arena *arena_create(size_t capacity, struct error *err)
{
    struct arena *arena = calloc(1, sizeof *arena);

    if (arena)
        arena->blocks = malloc(16 * sizeof *arena->blocks);
    if (!arena || !arena->blocks) {
        error_errno(err, CODE_IO, "an arena");
        free(arena);
        return NULL;
    }
    arena->room = 16;
    arena->capacity = capacity / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    arena->blocks[0] = (struct arena_block){.size = arena->capacity};
    arena->count = 1;
    return arena;
}

void arena_destroy(struct arena *arena)
{
    if (!arena)
        return;
    free(arena->blocks);
    free(arena);
}

static size_t smallest_hole(const struct arena *arena, size_t size)
{
    size_t best = arena->count;

    for (size_t i = 0; i < arena->count; i++) {
        const struct arena_block *block = &arena->blocks[i];

        if (!block->used && block->size >= size && (best == arena->count || block->size < arena->blocks[best].size))
            best = i;
    }
    return best;
}

static int fail_exhausted(const struct arena *arena, size_t bytes, struct error *err)
{
    double left = (double)(arena->capacity - arena->held), largest = 0;

    for (size_t i = 0; i < arena->count; i++)
        if (!arena->blocks[i].used && (double)arena->blocks[i].size > largest)
            largest = (double)arena->blocks[i].size;
    return error_set(err, CODE_IO, "%.1f MiB wanted; %.1f MiB held, %.1f MiB left, %.1f MiB of them in one piece",
                     (double)bytes / 0x1p20, (double)arena->held / 0x1p20, left / 0x1p20, largest / 0x1p20);
}

static int make_room(struct arena *arena, struct error *err)
{
    struct arena_block *blocks;

    if (arena->count < arena->room)
        return 0;
    blocks = realloc(arena->blocks, 2 * arena->room * sizeof *blocks);
    if (!blocks)
        return error_errno(err, CODE_IO, "an arena of %zu pieces", arena->count);
    arena->blocks = blocks;
    arena->room *= 2;
    return 0;
}

static void insert_block(struct arena *arena, size_t at, struct arena_block block)
{
    memmove(arena->blocks + at + 1, arena->blocks + at, (arena->count - at) * sizeof block);
    arena->blocks[at] = block;
    arena->count++;
}

static void erase_block(struct arena *arena, size_t at)
{
    arena->count--;
    memmove(arena->blocks + at, arena->blocks + at + 1, (arena->count - at) * sizeof *arena->blocks);
}

int arena_alloc(struct arena *arena, size_t bytes, size_t *offset, struct error *err)
{
    size_t size, at;
    struct arena_block *block;

    if (bytes > arena->capacity)
        return fail_exhausted(arena, bytes, err);
    size = bytes ? (bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT : ARENA_ALIGNMENT;
    at = smallest_hole(arena, size);
    if (at == arena->count)
        return fail_exhausted(arena, bytes, err);
    if (make_room(arena, err) < 0)
        return -1;
    block = &arena->blocks[at];
    if (block->size > size)
        insert_block(arena, at + 1, (struct arena_block){.offset = block->offset + size, .size = block->size - size});
    *block = (struct arena_block){.offset = block->offset, .size = size, .asked = bytes, .used = true};
    arena->held += size;
    *offset = block->offset;
    return 0;
}

static size_t find_block(const struct arena *arena, size_t offset)
{
    size_t low = 0, high = arena->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (arena->blocks[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int arena_free(struct arena *arena, size_t offset, size_t *bytes)
{
    size_t at = find_block(arena, offset);
    struct arena_block *block = arena->blocks + at;

    if (at == arena->count || block->offset != offset || !block->used)
        return 0;
    *bytes = block->asked;
    arena->held -= block->size;
    block->used = false;
    if (at + 1 < arena->count && !block[1].used) {
        block->size += block[1].size;
        erase_block(arena, at + 1);
    }
    if (at > 0 && !block[-1].used) {
        block[-1].size += block->size;
        erase_block(arena, at);
    }
    return 1;
}

size_t arena_held(const struct arena *arena)
{
    return arena->held;
}

size_t arena_extent(const struct arena *arena)
{
    for (size_t i = arena->count; i > 0; i--)
        if (arena->blocks[i - 1].used)
            return arena->blocks[i - 1].offset + arena->blocks[i - 1].size;
    return 0;
}

#include "kernels/cuda/arena.h"

#include <stdbool.h>
#include <stdlib.h>

/* A piece or a hole; together they are the whole range, in order. */
struct arena_block {
    size_t offset, size;
    size_t asked;
    bool used;
    struct arena_block *next;
};

struct arena {
    size_t capacity;
    struct arena_block *first;
};

/* A hole, in front of `next`. */
static struct arena_block *create_hole(size_t offset, size_t size, struct arena_block *next, struct error *err)
{
    struct arena_block *block = error_calloc(1, sizeof *block, err);

    if (block)
        *block = (struct arena_block){.offset = offset, .size = size, .next = next};
    return block;
}

struct arena *arena_create(size_t capacity, struct error *err)
{
    struct arena *arena = error_calloc(1, sizeof *arena, err);

    if (!arena)
        return NULL;
    arena->capacity = capacity / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    arena->first = create_hole(0, arena->capacity, NULL, err);
    if (arena->first)
        return arena;
    free(arena);
    return NULL;
}

void arena_destroy(struct arena *arena)
{
    struct arena_block *block;

    while (arena && (block = arena->first)) {
        arena->first = block->next;
        free(block);
    }
    free(arena);
}

static struct arena_block *smallest_hole(const struct arena *arena, size_t size)
{
    struct arena_block *best = NULL;

    for (struct arena_block *block = arena->first; block; block = block->next)
        if (!block->used && block->size >= size && (!best || block->size < best->size))
            best = block;
    return best;
}

static int fail_exhausted(const struct arena *arena, size_t bytes, struct error *err)
{
    size_t left = 0, largest = 0;

    for (const struct arena_block *block = arena->first; block; block = block->next) {
        size_t hole = block->used ? 0 : block->size;

        left += hole;
        largest = hole > largest ? hole : largest;
    }
    return error_set(err, CODE_IO, "%.1f MiB wanted; %.1f MiB held, %.1f MiB left, %.1f MiB of them in one piece",
                     (double)bytes / 0x1p20, (double)(arena->capacity - left) / 0x1p20, (double)left / 0x1p20,
                     (double)largest / 0x1p20);
}

int arena_alloc(struct arena *arena, size_t bytes, size_t *offset, struct error *err)
{
    struct arena_block *block, *rest;
    size_t size;

    if (bytes > arena->capacity)
        return fail_exhausted(arena, bytes, err);
    size = bytes ? (bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT : ARENA_ALIGNMENT;
    block = smallest_hole(arena, size);
    if (!block)
        return fail_exhausted(arena, bytes, err);
    if (block->size > size) {
        rest = create_hole(block->offset + size, block->size - size, block->next, err);
        if (!rest)
            return -1;
        block->next = rest;
        block->size = size;
    }
    block->asked = bytes;
    block->used = true;
    *offset = block->offset;
    return 0;
}

/* Two holes side by side become one. */
static void join_holes(struct arena_block *block)
{
    struct arena_block *next = block ? block->next : NULL;

    if (!next || block->used || next->used)
        return;
    block->size += next->size;
    block->next = next->next;
    free(next);
}

int arena_free(struct arena *arena, size_t offset, size_t *bytes)
{
    struct arena_block *before = NULL, *block = arena->first;

    for (; block && block->offset < offset; block = block->next)
        before = block;
    if (!block || block->offset != offset || !block->used)
        return 0;
    *bytes = block->asked;
    block->used = false;
    join_holes(block);
    join_holes(before);
    return 1;
}

size_t arena_extent(const struct arena *arena)
{
    size_t end = 0;

    for (const struct arena_block *block = arena->first; block; block = block->next)
        if (block->used)
            end = block->offset + block->size;
    return end;
}

/*
 * arena.h - which part of one range of addresses is whose; internal to kernels/cuda. Pure arithmetic on offsets: it
 * touches no memory, so it serves a GPU's and is tested without one.
 *
 * A piece goes into the smallest hole that holds it, the lowest of several such; neighbouring holes are one. Finding
 * either takes as many steps as there are pieces: they are some hundreds, and none is taken inside a training step.
 */
#ifndef MUSTER_KERNELS_CUDA_ARENA_H
#define MUSTER_KERNELS_CUDA_ARENA_H

#include <stddef.h>

#include "common/error.h"

#define ARENA_ALIGNMENT ((size_t)256) /* of every piece: what CUDA's own allocations have */

struct arena;

/* `capacity` bytes, from offset 0; rounded down to the alignment. */
struct arena *arena_create(size_t capacity, struct error *err);
void arena_destroy(struct arena *arena);

/* Sets *offset. Fails with CODE_IO and the bytes that were asked for, are held, are left, and are left in one piece.
 * 0 bytes is a piece too, with an offset of its own. */
int arena_alloc(struct arena *arena, size_t bytes, size_t *offset, struct error *err);

/* The bytes that were asked for, and 1; or 0 where no piece begins at that offset. */
int arena_free(struct arena *arena, size_t offset, size_t *bytes);

size_t arena_extent(const struct arena *arena); /* the end of the last piece; 0 without any */

#endif

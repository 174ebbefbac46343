/*
 * cache.h - what was once found out for a key, kept until the cache is destroyed; internal to kernels/cuda. Pure: a
 * table of plain bytes, for the algorithm of each shape of matmul and cuDNN's plan of each shape of attention. A run
 * has some dozens of shapes, so nothing is ever dropped.
 */
#ifndef MUSTER_KERNELS_CUDA_CACHE_H
#define MUSTER_KERNELS_CUDA_CACHE_H

#include <stddef.h>

#include "common/error.h"

struct cache;

/* Keys and values of these sizes. Keys are compared byte by byte, padding included: zero them first. */
struct cache *cache_create(size_t key_bytes, size_t value_bytes, struct error *err);

/* Calls `close` for each value first, the newest first. */
void cache_destroy(struct cache *cache, void (*close)(void *value, void *arg), void *arg);

/* The value of that key, or NULL. It stays where it is as long as the cache lives. */
void *cache_find(const struct cache *cache, const void *key);

/* A new value, all zeros, of a key that has none yet; NULL: no memory. */
void *cache_add(struct cache *cache, const void *key, struct error *err);

#endif

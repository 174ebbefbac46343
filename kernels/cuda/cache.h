/*
 * cache.h - what was once found out for a key, kept until the cache is destroyed; internal to kernels/cuda. Pure: a
 * hash table of plain bytes, for the algorithm of each shape of product. A run has some dozens of shapes, so nothing is
 * ever dropped.
 */
#ifndef MUSTER_KERNELS_CUDA_CACHE_H
#define MUSTER_KERNELS_CUDA_CACHE_H

#include <stddef.h>

#include "common/error.h"

struct cache;

/* Keys and values of these sizes. Keys are compared byte by byte, padding included: zero them first. */
struct cache *cache_create(size_t key_bytes, size_t value_bytes, struct error *err);
void cache_destroy(struct cache *cache);

/* The value of that key, or NULL. It stays where it is as long as the cache lives. */
void *cache_find(const struct cache *cache, const void *key);

/* A new value, all zeros, of a key that has none yet; NULL: no memory. */
void *cache_add(struct cache *cache, const void *key, struct error *err);

size_t cache_count(const struct cache *cache);

/* The values in the order in which they were added: index 0 to count - 1. */
void *cache_value(const struct cache *cache, size_t index);

#endif

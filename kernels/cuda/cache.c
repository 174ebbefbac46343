#include "kernels/cuda/cache.h"

#include <stdlib.h>
#include <string.h>

/* Looking through some dozens of keys takes less time than a launch. */
struct cache_entry {
    struct cache_entry *older;
    unsigned char data[] __attribute__((aligned(16))); /* the key, and at value_at the value */
};

struct cache {
    size_t key_bytes, value_bytes, value_at;
    struct cache_entry *newest;
};

struct cache *cache_create(size_t key_bytes, size_t value_bytes, struct error *err)
{
    struct cache *cache = calloc(1, sizeof *cache);

    if (!cache) {
        error_errno(err, CODE_IO, "a cache");
        return NULL;
    }
    cache->key_bytes = key_bytes;
    cache->value_bytes = value_bytes;
    cache->value_at = (key_bytes + 15) / 16 * 16;
    return cache;
}

void cache_destroy(struct cache *cache, void (*close)(void *value, void *arg), void *arg)
{
    struct cache_entry *entry;

    while (cache && (entry = cache->newest)) {
        cache->newest = entry->older;
        close(entry->data + cache->value_at, arg);
        free(entry);
    }
    free(cache);
}

void *cache_find(const struct cache *cache, const void *key)
{
    for (struct cache_entry *entry = cache->newest; entry; entry = entry->older)
        if (memcmp(entry->data, key, cache->key_bytes) == 0)
            return entry->data + cache->value_at;
    return NULL;
}

void *cache_add(struct cache *cache, const void *key, struct error *err)
{
    struct cache_entry *entry = calloc(1, sizeof *entry + cache->value_at + cache->value_bytes);

    if (!entry) {
        error_errno(err, CODE_IO, "a cache entry");
        return NULL;
    }
    memcpy(entry->data, key, cache->key_bytes);
    entry->older = cache->newest;
    cache->newest = entry;
    return entry->data + cache->value_at;
}

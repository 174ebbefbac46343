#include "kernels/cuda/cache.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Entries lie where they were made, each a key and then its value; the table of their numbers is made anew when it is
 * half full. */
struct cache {
    size_t key_bytes, value_bytes, value_at;
    unsigned char **entries;
    size_t count, room;
    size_t *slots; /* number + 1, or 0 */
    size_t slot_count;
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

void cache_destroy(struct cache *cache)
{
    if (!cache)
        return;
    for (size_t i = 0; i < cache->count; i++)
        free(cache->entries[i]);
    free(cache->entries);
    free(cache->slots);
    free(cache);
}

/* FNV-1a */
static uint64_t hash_key(const unsigned char *key, size_t bytes)
{
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ key[i]) * 1099511628211u;
    return hash;
}

/* Where the key is, or would be. The table is never full. */
static size_t slot_of(const struct cache *cache, const void *key)
{
    size_t slot = hash_key(key, cache->key_bytes) % cache->slot_count;

    while (cache->slots[slot] && memcmp(cache->entries[cache->slots[slot] - 1], key, cache->key_bytes) != 0)
        slot = (slot + 1) % cache->slot_count;
    return slot;
}

void *cache_find(const struct cache *cache, const void *key)
{
    size_t slot;

    if (cache->count == 0)
        return NULL;
    slot = slot_of(cache, key);
    return cache->slots[slot] ? cache_value(cache, cache->slots[slot] - 1) : NULL;
}

static int make_room(struct cache *cache)
{
    size_t room = 2 * cache->room + 32;
    unsigned char **entries;
    size_t *slots;

    if (cache->count < cache->room)
        return 0;
    entries = realloc(cache->entries, room * sizeof *entries);
    if (!entries)
        return -1;
    cache->entries = entries;
    slots = calloc(2 * room, sizeof *slots);
    if (!slots)
        return -1;
    free(cache->slots);
    cache->slots = slots;
    cache->slot_count = 2 * room;
    cache->room = room;
    for (size_t i = 0; i < cache->count; i++)
        cache->slots[slot_of(cache, cache->entries[i])] = i + 1;
    return 0;
}

void *cache_add(struct cache *cache, const void *key, struct error *err)
{
    unsigned char *entry = make_room(cache) < 0 ? NULL : calloc(1, cache->value_at + cache->value_bytes);

    if (!entry) {
        error_errno(err, CODE_IO, "a cache of %zu entries", cache->count);
        return NULL;
    }
    memcpy(entry, key, cache->key_bytes);
    cache->slots[slot_of(cache, key)] = cache->count + 1;
    cache->entries[cache->count++] = entry;
    return entry + cache->value_at;
}

size_t cache_count(const struct cache *cache)
{
    return cache->count;
}

void *cache_value(const struct cache *cache, size_t index)
{
    return cache->entries[index] + cache->value_at;
}

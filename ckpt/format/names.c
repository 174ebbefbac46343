#include "ckpt/format/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/text.h"

int shard_layout_of(struct shard_layout *layout, uint64_t elements, size_t nkinds)
{
    uint64_t entry, before;

    if (__builtin_mul_overflow(elements, 4, &entry) || entry > INT64_MAX / 2)
        return -1;
    layout->elements = elements;
    layout->stride = (entry + SHARD_ALIGN - 1) / SHARD_ALIGN * SHARD_ALIGN;
    if (__builtin_mul_overflow(layout->stride, nkinds - 1, &before) ||
        __builtin_add_overflow(before, entry, &layout->data_bytes) || layout->data_bytes > INT64_MAX / 2)
        return -1;
    layout->blocks = (layout->data_bytes + SHARD_BLOCK - 1) / SHARD_BLOCK;
    return 0;
}

size_t shard_block_bytes(const struct shard_layout *layout, uint64_t block)
{
    uint64_t left = layout->data_bytes - block * SHARD_BLOCK;

    return left < SHARD_BLOCK ? (size_t)left : SHARD_BLOCK;
}

void name_shard(char name[FILE_NAME_SIZE], const char *suffix, int shard, int shards)
{
    snprintf(name, FILE_NAME_SIZE, "shard-%05d-of-%05d%s", shard, shards, suffix);
}

/* Reads the numbers, makes the name anew and compares: names that this muster would not write are not accepted. */
bool name_parse_shard(const char *name, const char *suffix, int *shard, int *shards)
{
    char again[FILE_NAME_SIZE];

    if (sscanf(name, "shard-%5d-of-%5d", shard, shards) != 2 || *shard < 0 || *shards <= *shard)
        return false;
    name_shard(again, suffix, *shard, *shards);
    return strcmp(name, again) == 0;
}

bool name_is_unfinished(const char *name)
{
    return strncmp(name, "shard-", 6) == 0 && text_ends_with(name, ".tmp");
}

void name_step(char name[FILE_NAME_SIZE], uint64_t step)
{
    snprintf(name, FILE_NAME_SIZE, "step-%08" PRIu64, step);
}

bool name_parse_step(const char *name, uint64_t *step)
{
    char again[FILE_NAME_SIZE];

    if (sscanf(name, "step-%19" SCNu64, step) != 1)
        return false;
    name_step(again, *step);
    return strcmp(name, again) == 0;
}

void ckpt_step_path(char *path, size_t size, const char *dir, uint64_t step)
{
    char name[FILE_NAME_SIZE];

    name_step(name, step);
    snprintf(path, size, "%s/%s", dir, name);
}

bool ckpt_split_step_path(char *dir, size_t size, uint64_t *step, const char *path)
{
    size_t length = strlen(path);
    char *slash;

    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length >= size)
        return false;
    snprintf(dir, size, "%.*s", (int)length, path);
    slash = strrchr(dir, '/');
    if (!name_parse_step(slash ? slash + 1 : dir, step))
        return false;
    if (!slash)
        snprintf(dir, size, ".");
    else
        slash[slash == dir] = '\0'; /* "/step-1" is in "/" */
    return true;
}

void name_attempt(char name[FILE_NAME_SIZE], const char *suffix, uint64_t step, const char *attempt)
{
    snprintf(name, FILE_NAME_SIZE, "step-%08" PRIu64 ".%s%s", step, attempt, suffix);
}

bool name_parse_attempt(const char *name, const char *suffix, uint64_t *step, char attempt[CKPT_ATTEMPT_SIZE])
{
    const char *dot = strchr(name, '.');
    size_t used = dot ? (size_t)(dot + 1 - name) : 0, length = strlen(name), tail = strlen(suffix);
    char again[FILE_NAME_SIZE];

    if (!dot || length < used + tail || length - used - tail >= CKPT_ATTEMPT_SIZE)
        return false;
    memcpy(attempt, dot + 1, length - used - tail);
    attempt[length - used - tail] = '\0';
    if (!name_is_attempt(attempt) || sscanf(name, "step-%19" SCNu64, step) != 1)
        return false;
    name_attempt(again, suffix, *step, attempt);
    return strcmp(name, again) == 0;
}

bool name_is_attempt(const char *attempt)
{
    size_t length = attempt ? strlen(attempt) : 0;

    return length > 0 && length < CKPT_ATTEMPT_SIZE &&
           strspn(attempt, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == length;
}

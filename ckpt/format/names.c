#include "config.h"

#include "ckpt/format/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PARTIAL   ".partial"
#define ABANDONED ".abandoned"

int shard_layout_of(struct shard_layout *layout, uint64_t elements, size_t nkinds)
{
    uint64_t segment, before;

    if (__builtin_mul_overflow(elements, 4, &segment) || segment > INT64_MAX / 2)
        return -1;
    layout->elements = elements;
    layout->stride = (segment + SHARD_ALIGN - 1) / SHARD_ALIGN * SHARD_ALIGN;
    if (__builtin_mul_overflow(layout->stride, nkinds - 1, &before) ||
        __builtin_add_overflow(before, segment, &layout->data_bytes) || layout->data_bytes > INT64_MAX / 2)
        return -1;
    layout->blocks = (layout->data_bytes + SHARD_BLOCK - 1) / SHARD_BLOCK;
    return 0;
}

size_t shard_block_bytes(const struct shard_layout *layout, uint64_t block)
{
    uint64_t left = layout->data_bytes - block * SHARD_BLOCK;

    return left < SHARD_BLOCK ? (size_t)left : SHARD_BLOCK;
}

#define SHARD_SUFFIX   ".safetensors"
#define PART_SUFFIX    ".json"
#define DRAINED_SUFFIX ".drained"

static void make_name(char name[FILE_NAME_SIZE], int shard, int shards, const char *suffix)
{
    snprintf(name, FILE_NAME_SIZE, "shard-%05d-of-%05d%s", shard, shards, suffix);
}

/* Reads the numbers, makes the name anew and compares: names that this muster would not write are not accepted. */
static bool parse_name(const char *name, const char *suffix, int *shard, int *shards)
{
    char again[FILE_NAME_SIZE];

    if (sscanf(name, "shard-%5d-of-%5d", shard, shards) != 2 || *shard < 0 || *shards <= *shard)
        return false;
    make_name(again, *shard, *shards, suffix);
    return strcmp(name, again) == 0;
}

void name_shard(char name[FILE_NAME_SIZE], int shard, int shards)
{
    make_name(name, shard, shards, SHARD_SUFFIX);
}

void name_part(char name[FILE_NAME_SIZE], int shard, int shards)
{
    make_name(name, shard, shards, PART_SUFFIX);
}

void name_drained(char name[FILE_NAME_SIZE], int shard, int shards)
{
    make_name(name, shard, shards, DRAINED_SUFFIX);
}

bool name_parse_shard(const char *name, int *shard, int *shards)
{
    return parse_name(name, SHARD_SUFFIX, shard, shards);
}

bool name_parse_part(const char *name, int *shard, int *shards)
{
    return parse_name(name, PART_SUFFIX, shard, shards);
}

bool name_parse_drained(const char *name, int *shard, int *shards)
{
    return parse_name(name, DRAINED_SUFFIX, shard, shards);
}

bool name_is_unfinished(const char *name)
{
    size_t length = strlen(name);

    return strncmp(name, "shard-", 6) == 0 && length > 4 && strcmp(name + length - 4, ".tmp") == 0;
}

void name_step(char name[FILE_NAME_SIZE], uint64_t step)
{
    snprintf(name, FILE_NAME_SIZE, "step-%08" PRIu64, step);
}

static void make_attempt_name(char name[FILE_NAME_SIZE], uint64_t step, const char *attempt, const char *suffix)
{
    snprintf(name, FILE_NAME_SIZE, "step-%08" PRIu64 ".%s%s", step, attempt, suffix);
}

void name_partial(char name[FILE_NAME_SIZE], uint64_t step, const char *attempt)
{
    make_attempt_name(name, step, attempt, PARTIAL);
}

void name_abandoned(char name[FILE_NAME_SIZE], uint64_t step, const char *attempt)
{
    make_attempt_name(name, step, attempt, ABANDONED);
}

bool name_parse_step(const char *name, uint64_t *step)
{
    char again[FILE_NAME_SIZE];

    if (sscanf(name, "step-%19" SCNu64, step) != 1)
        return false;
    name_step(again, *step);
    return strcmp(name, again) == 0;
}

static bool parse_attempt_name(const char *name, const char *suffix, uint64_t *step, char attempt[CKPT_ATTEMPT_SIZE])
{
    const char *dot = strchr(name, '.');
    size_t length = strlen(name), used;
    char again[FILE_NAME_SIZE];

    if (!dot || length <= strlen(suffix) || strcmp(name + length - strlen(suffix), suffix) != 0)
        return false;
    used = (size_t)(dot + 1 - name);
    if (length < used + strlen(suffix) || length - used - strlen(suffix) >= CKPT_ATTEMPT_SIZE)
        return false;
    memcpy(attempt, dot + 1, length - used - strlen(suffix));
    attempt[length - used - strlen(suffix)] = '\0';
    if (!name_is_attempt(attempt) || sscanf(name, "step-%19" SCNu64, step) != 1)
        return false;
    make_attempt_name(again, *step, attempt, suffix);
    return strcmp(name, again) == 0;
}

bool name_parse_partial(const char *name, uint64_t *step, char attempt[CKPT_ATTEMPT_SIZE])
{
    return parse_attempt_name(name, PARTIAL, step, attempt);
}

bool name_parse_abandoned(const char *name, uint64_t *step, char attempt[CKPT_ATTEMPT_SIZE])
{
    return parse_attempt_name(name, ABANDONED, step, attempt);
}

bool name_is_attempt(const char *attempt)
{
    size_t length = attempt ? strlen(attempt) : 0;

    return length > 0 && length < CKPT_ATTEMPT_SIZE &&
           strspn(attempt, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == length;
}

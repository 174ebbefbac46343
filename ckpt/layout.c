#include "config.h"

#include "ckpt/layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PARTIAL   ".partial"
#define ABANDONED ".abandoned"

int layout_of(struct layout *layout, uint64_t elements, size_t nkinds)
{
    uint64_t segment, before;

    if (__builtin_mul_overflow(elements, 4, &segment) || segment > INT64_MAX / 2)
        return -1;
    layout->elements = elements;
    layout->stride = (segment + LAYOUT_ALIGN - 1) / LAYOUT_ALIGN * LAYOUT_ALIGN;
    if (__builtin_mul_overflow(layout->stride, nkinds - 1, &before) ||
        __builtin_add_overflow(before, segment, &layout->data_bytes) || layout->data_bytes > INT64_MAX / 2)
        return -1;
    layout->blocks = (layout->data_bytes + LAYOUT_BLOCK - 1) / LAYOUT_BLOCK;
    return 0;
}

size_t layout_block_bytes(const struct layout *layout, uint64_t block)
{
    uint64_t left = layout->data_bytes - block * LAYOUT_BLOCK;

    return left < LAYOUT_BLOCK ? (size_t)left : LAYOUT_BLOCK;
}

void layout_shard_name(char name[LAYOUT_NAME_SIZE], int shard, int shards)
{
    snprintf(name, LAYOUT_NAME_SIZE, "shard-%05d-of-%05d.safetensors", shard, shards);
}

void layout_part_name(char name[LAYOUT_NAME_SIZE], int shard, int shards)
{
    snprintf(name, LAYOUT_NAME_SIZE, "shard-%05d-of-%05d.json", shard, shards);
}

void layout_drained_name(char name[LAYOUT_NAME_SIZE], int shard, int shards)
{
    snprintf(name, LAYOUT_NAME_SIZE, "shard-%05d-of-%05d.drained", shard, shards);
}

/* The parsers below read the numbers, write the name anew and compare: what we would not write, we do not read. */

bool layout_parse_shard(const char *name, int *shard, int *shards)
{
    char again[LAYOUT_NAME_SIZE];

    if (sscanf(name, "shard-%5d-of-%5d.safetensors", shard, shards) != 2 || *shard < 0 || *shards <= *shard)
        return false;
    layout_shard_name(again, *shard, *shards);
    return strcmp(name, again) == 0;
}

bool layout_parse_part(const char *name, int *shard, int *shards)
{
    char again[LAYOUT_NAME_SIZE];

    if (sscanf(name, "shard-%5d-of-%5d.json", shard, shards) != 2 || *shard < 0 || *shards <= *shard)
        return false;
    layout_part_name(again, *shard, *shards);
    return strcmp(name, again) == 0;
}

bool layout_parse_drained(const char *name, int *shard, int *shards)
{
    char again[LAYOUT_NAME_SIZE];

    if (sscanf(name, "shard-%5d-of-%5d.drained", shard, shards) != 2 || *shard < 0 || *shards <= *shard)
        return false;
    layout_drained_name(again, *shard, *shards);
    return strcmp(name, again) == 0;
}

bool layout_is_unfinished(const char *name)
{
    size_t length = strlen(name);

    return strncmp(name, "shard-", 6) == 0 && length > 4 && strcmp(name + length - 4, ".tmp") == 0;
}

void layout_step_name(char name[LAYOUT_NAME_SIZE], uint64_t step)
{
    snprintf(name, LAYOUT_NAME_SIZE, "step-%08" PRIu64, step);
}

static void attempt_name(char name[LAYOUT_NAME_SIZE], uint64_t step, const char *attempt, const char *suffix)
{
    snprintf(name, LAYOUT_NAME_SIZE, "step-%08" PRIu64 ".%s%s", step, attempt, suffix);
}

void layout_partial_name(char name[LAYOUT_NAME_SIZE], uint64_t step, const char *attempt)
{
    attempt_name(name, step, attempt, PARTIAL);
}

void layout_abandoned_name(char name[LAYOUT_NAME_SIZE], uint64_t step, const char *attempt)
{
    attempt_name(name, step, attempt, ABANDONED);
}

bool layout_parse_step(const char *name, uint64_t *step)
{
    char again[LAYOUT_NAME_SIZE];

    if (sscanf(name, "step-%19" SCNu64, step) != 1)
        return false;
    layout_step_name(again, *step);
    return strcmp(name, again) == 0;
}

static bool parse_attempt(const char *name, const char *suffix, uint64_t *step, char attempt[CKPT_ATTEMPT_SIZE])
{
    const char *dot = strchr(name, '.');
    size_t length = strlen(name), used;
    char again[LAYOUT_NAME_SIZE];

    if (!dot || length <= strlen(suffix) || strcmp(name + length - strlen(suffix), suffix) != 0)
        return false;
    used = (size_t)(dot + 1 - name);
    if (length < used + strlen(suffix) || length - used - strlen(suffix) >= CKPT_ATTEMPT_SIZE)
        return false;
    memcpy(attempt, dot + 1, length - used - strlen(suffix));
    attempt[length - used - strlen(suffix)] = '\0';
    if (!layout_attempt_is_valid(attempt) || sscanf(name, "step-%19" SCNu64, step) != 1)
        return false;
    attempt_name(again, *step, attempt, suffix);
    return strcmp(name, again) == 0;
}

bool layout_parse_partial(const char *name, uint64_t *step, char attempt[CKPT_ATTEMPT_SIZE])
{
    return parse_attempt(name, PARTIAL, step, attempt);
}

bool layout_parse_abandoned(const char *name, uint64_t *step, char attempt[CKPT_ATTEMPT_SIZE])
{
    return parse_attempt(name, ABANDONED, step, attempt);
}

bool layout_attempt_is_valid(const char *attempt)
{
    size_t length = attempt ? strlen(attempt) : 0;

    return length > 0 && length < CKPT_ATTEMPT_SIZE &&
           strspn(attempt, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == length;
}

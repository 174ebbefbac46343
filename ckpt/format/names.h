/*
 * names.h - the names of a checkpoint's files, and the layout of a shard's data.
 *
 * Everything here is arithmetic on the arguments; nothing touches the filesystem.
 */
#ifndef MUSTER_CKPT_FORMAT_NAMES_H
#define MUSTER_CKPT_FORMAT_NAMES_H

#include "ckpt/ckpt.h"

#define SHARD_ALIGN     4096
#define SHARD_BLOCK     ((size_t)4 << 20)
#define CKPT_MAX_SHARDS 99999
#define FILE_NAME_SIZE  160 /* room for any file or directory name below */

/*
 * The data of a shard: one segment of `elements` fp32 a kind, each at a multiple of SHARD_ALIGN from the data's start,
 * nothing after the last. Blocks of SHARD_BLOCK bytes, counted from the data's start, carry a crc32c each.
 */
struct shard_layout {
    uint64_t elements;   /* of one kind */
    uint64_t stride;     /* bytes from the start of one segment to the start of the next */
    uint64_t data_bytes; /* of all segments and the pads between them */
    uint64_t blocks;
};

/* Returns -1 if the bytes would pass 63 bits. nkinds is at least 1. */
int shard_layout_of(struct shard_layout *layout, uint64_t elements, size_t nkinds);

/* Bytes in block `block`: SHARD_BLOCK except in the last. */
size_t shard_block_bytes(const struct shard_layout *layout, uint64_t block);

/* "shard-00002-of-00004.safetensors", "shard-00002-of-00004.json", and the latter in a stage once it is drained */
void name_shard(char name[FILE_NAME_SIZE], int shard, int shards);
void name_part(char name[FILE_NAME_SIZE], int shard, int shards);
void name_drained(char name[FILE_NAME_SIZE], int shard, int shards);

/* Whether the name is one of these, and of which shard. */
bool name_parse_shard(const char *name, int *shard, int *shards);
bool name_parse_part(const char *name, int *shard, int *shards);
bool name_parse_drained(const char *name, int *shard, int *shards);

/* Whether it is a shard's or a part's temporary name (file_temporary_name). */
bool name_is_unfinished(const char *name);

/* "step-00000100", "step-00000100.ATTEMPT.partial", and the sign that an attempt was given up (stage.h) */
void name_step(char name[FILE_NAME_SIZE], uint64_t step);
void name_partial(char name[FILE_NAME_SIZE], uint64_t step, const char *attempt);
void name_abandoned(char name[FILE_NAME_SIZE], uint64_t step, const char *attempt);

/* Whether the name is one of these, exactly as it would have been written. */
bool name_parse_step(const char *name, uint64_t *step);
bool name_parse_partial(const char *name, uint64_t *step, char attempt[CKPT_ATTEMPT_SIZE]);
bool name_parse_abandoned(const char *name, uint64_t *step, char attempt[CKPT_ATTEMPT_SIZE]);

/* Letters, digits, '.', '_' and '-', at least one, and shorter than CKPT_ATTEMPT_SIZE: safe in a file name. */
bool name_is_attempt(const char *attempt);

#endif

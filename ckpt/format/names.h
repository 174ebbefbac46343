/*
 * names.h - the names of a checkpoint's files, and the layout of a shard's data (ckpt_step_path: ckpt.h).
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
 * The data of a shard: for each kind one entry of `elements` fp32 values, which begins at a multiple of SHARD_ALIGN
 * from the data's start. Nothing follows the last. An entry has the shard's pieces, one after the other. write_data
 * (commit.c) and copy_block (stage_shard.c, by the table of list_runs) write in this order. For reading, collect_pieces
 * (pieces.c) computes each piece's offset from it. Blocks of SHARD_BLOCK bytes, counted from the data's start, carry a
 * crc32c each.
 */
struct shard_layout {
    uint64_t elements;   /* of one kind */
    uint64_t stride;     /* bytes from the start of one entry to the start of the next */
    uint64_t data_bytes; /* of all entries and the pads between them */
    uint64_t blocks;
};

/* Returns -1 if the bytes would pass 62 bits. nkinds is at least 1. */
int shard_layout_of(struct shard_layout *layout, uint64_t elements, size_t nkinds);

/* Bytes in block `block`: SHARD_BLOCK except in the last. */
size_t shard_block_bytes(const struct shard_layout *layout, uint64_t block);

/* The files of a shard: its name is "shard-00002-of-00004" and one of these. */
#define SHARD_DATA    ".safetensors"
#define SHARD_PART    ".json"
#define SHARD_DRAINED ".drained" /* the part, in a stage, once the shard is drained */

void name_shard(char name[FILE_NAME_SIZE], const char *suffix, int shard, int shards);

/* True if the name is exactly what name_shard writes for that suffix and some shard. Sets *shard and *shards. */
bool name_parse_shard(const char *name, const char *suffix, int *shard, int *shards);

/* True for the temporary name of a shard or part (file_temporary_name). */
bool name_is_unfinished(const char *name);

/* "step-00000100", and whether the name is one. */
void name_step(char name[FILE_NAME_SIZE], uint64_t step);
bool name_parse_step(const char *name, uint64_t *step);

/* The directory of an attempt, "step-00000100.ATTEMPT.partial", and the marker of an abandoned one (attempt.h). */
#define ATTEMPT_PARTIAL   ".partial"
#define ATTEMPT_ABANDONED ".abandoned"

void name_attempt(char name[FILE_NAME_SIZE], const char *suffix, uint64_t step, const char *attempt);
bool name_parse_attempt(const char *name, const char *suffix, uint64_t *step, char attempt[CKPT_ATTEMPT_SIZE]);

/* Letters, digits, '.', '_' and '-', at least one, and shorter than CKPT_ATTEMPT_SIZE: safe in a file name. */
bool name_is_attempt(const char *attempt);

#endif

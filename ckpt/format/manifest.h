/*
 * manifest.h - the manifest: all tensors of a checkpoint, and the pieces in each shard. The struct, its JSON, and its
 * checks. The interface of ckpt/format.
 *
 * A manifest describes all shards of a checkpoint; a *part* is the same for one shard, written beside it by the rank
 * that wrote the shard. Both are one line of JSON whose first member is the crc32c of the file's own bytes, taken with
 * the checksum's eight digits as zeros.
 */
#ifndef MUSTER_CKPT_FORMAT_MANIFEST_H
#define MUSTER_CKPT_FORMAT_MANIFEST_H

#include "ckpt/ckpt.h"
#include "ckpt/file/file.h"
#include "ckpt/format/json_fields.h"

/* ---- the names of a checkpoint's files, and the layout of a shard's data (names.c) ------------------------------- */

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

/* ---- the manifest ------------------------------------------------------------------------------------------------ */

#define MANIFEST_NAME      "manifest.json"
#define MANIFEST_MAX_BYTES ((size_t)1 << 30)

struct manifest_shard {
    uint64_t data_offset; /* bytes of the safetensors header with the 8-byte length before it: where the data starts */
    uint32_t header_crc;  /* crc32c of these bytes */
    struct shard_layout layout;
    uint32_t *block_crcs; /* [layout.blocks] */
    struct ckpt_piece *pieces;
    size_t npieces;
    char host[65];
    uint64_t written; /* seconds since 1970 */
};

struct manifest {
    char version[32]; /* of the muster that wrote it */
    char attempt[CKPT_ATTEMPT_SIZE];
    struct ckpt_progress state;
    char *job_text;
    struct ckpt_tensor *tensors;
    size_t ntensors;
    char **kinds;
    size_t nkinds;
    int shards;                   /* of the checkpoint */
    int part;                     /* the one shard that is described here, or -1 for all */
    struct manifest_shard *shard; /* [1] in a part, [shards] in a manifest */
};

/* How many shard structs there are. */
static inline int manifest_count(const struct manifest *manifest)
{
    return manifest->part < 0 ? manifest->shards : 1;
}

/* Bytes that a shard's file must have. */
static inline uint64_t manifest_shard_bytes(const struct manifest_shard *shard)
{
    return shard->data_offset + shard->layout.data_bytes;
}

extern const struct file_format manifest_format, part_format;

/* The file begins with this and eight digits. */
#define MANIFEST_START  "{\"crc32c\":\""
#define MANIFEST_CRC_AT (sizeof MANIFEST_START - 1)

/* The crc32c of a manifest's text with its own checksum's digits as zeros. bytes is at least MANIFEST_CRC_AT + 8. */
uint32_t manifest_crc(const char *text, size_t bytes);

/* The members of "state". */
extern const struct json_field ckpt_state_fields[];

/* Malloc'ed text of *bytes bytes, or NULL. */
char *manifest_encode(const struct manifest *manifest, size_t *bytes, struct error *err);

/*
 * Parse and check. The text must be the part of shard `part` of `shards`, or a manifest if `part` is -1. NULL on
 * failure: CODE_CONFIG if another release wrote it in a format that is unknown here (json_fields.h), CODE_DATA if it is
 * not valid. The error does not name the file.
 */
struct manifest *manifest_decode(const char *text, size_t bytes, int part, int shards, struct error *err);

/* The same from a file, with its name in the error. */
struct manifest *manifest_read(const struct directory *directory, const char *name, int part, int shards,
                               struct error *err);

/* Open a shard's file for reading; its length must be the manifest's or part's: CODE_DATA. Returns the descriptor. */
int manifest_open_shard(const struct manifest *manifest, int shard, const struct directory *directory,
                        struct error *err);

/* The header of that open file, malloc'ed and checked against its checksum; NULL on failure. */
void *manifest_read_header(const struct manifest *manifest, int shard, int fd, const struct directory *directory,
                           struct error *err);

/* Write a manifest or part under its own name, and sync the directory. */
int manifest_write(const struct manifest *manifest, const struct directory *directory, struct error *err);

/* Check the values that do not belong to a shard: the state, and the sizes and names of the tables. */
int manifest_check(const struct manifest *manifest, struct error *err);

/*
 * Check that each piece of a shard is within its tensor, and set the shard's layout, which follows from the pieces.
 * manifest_check comes first. pieces.h checks that the pieces of all shards cover the tensors.
 */
int manifest_lay_out(const struct manifest *manifest, struct manifest_shard *shard, struct error *err);

/*
 * Creates this rank's part of the manifest and checks it. block_crcs is allocated, and the caller fills it in. *header
 * is the shard's safetensors header, malloc'ed. Empty pieces are left out. NULL on failure.
 */
struct manifest *manifest_create_part(const struct ckpt_save *save, void **header, struct error *err);

/* Check that two parts can belong to one checkpoint; the error names what differs. */
int manifest_agree(const struct manifest *a, const struct manifest *b, struct error *err);

/* Check the step and the attempt: CODE_DATA, without the file's name. */
int manifest_check_save(const struct manifest *manifest, uint64_t step, const char *attempt, struct error *err);

void manifest_destroy(struct manifest *manifest);

#endif

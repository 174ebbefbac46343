/*
 * manifest.h - what a checkpoint holds and where: the struct, its JSON, and what makes it valid.
 *
 * A manifest describes all shards of a checkpoint; a *part* is the same for one shard, written beside it by the rank
 * that wrote the shard. Both are one line of JSON whose first member is the crc32c of the file's own bytes, taken with
 * the checksum's eight digits as zeros.
 */
#ifndef MUSTER_CKPT_MANIFEST_H
#define MUSTER_CKPT_MANIFEST_H

#include "ckpt/ckpt.h"
#include "ckpt/layout.h"

#define MANIFEST_NAME      "manifest.json"
#define MANIFEST_MAX_BYTES ((size_t)1 << 30)

struct manifest_shard {
    uint64_t data_offset; /* bytes of the safetensors header, its length included: where the data starts */
    uint32_t header_crc;  /* crc32c of these bytes */
    struct layout layout;
    uint32_t *block_crcs; /* [layout.blocks] */
    struct ckpt_piece *pieces;
    size_t npieces;
    char host[65];
    uint64_t written; /* seconds since 1970 */
};

struct manifest {
    char version[32]; /* of the muster that wrote it */
    char attempt[CKPT_ATTEMPT_SIZE];
    struct ckpt_state state;
    char *job_text;
    struct ckpt_tensor *tensors;
    size_t ntensors;
    char **kinds;
    size_t nkinds;
    int shards;                   /* of the checkpoint */
    int part;                     /* the one shard that is described here, or -1 for all */
    struct manifest_shard *shard; /* [1] in a part, [shards] in a manifest */
};

/* The shard structs that are there. */
static inline int manifest_count(const struct manifest *manifest)
{
    return manifest->part < 0 ? manifest->shards : 1;
}

/* Bytes that a shard's file must have. */
static inline uint64_t manifest_shard_bytes(const struct manifest_shard *shard)
{
    return shard->data_offset + shard->layout.data_bytes;
}

/* Malloc'ed text of *bytes bytes, or NULL. */
char *manifest_encode(const struct manifest *manifest, size_t *bytes, struct error *err);

/*
 * Parse and check. `part` is the shard that the text must be the part of, out of `shards`; or -1 for a manifest. NULL
 * and CODE_DATA with what is wrong, or CODE_CONFIG when another release wrote it in a form that is unknown here (form.h),
 * without the file's name.
 */
struct manifest *manifest_decode(const char *text, size_t bytes, int part, int shards, struct error *err);

/*
 * Everything that must hold beyond the JSON's form: sizes and names of the tables, each piece within its tensor,
 * layouts that are those of the pieces. Sets the layout of each shard. Not whether the pieces cover the tensors: see
 * cover.h.
 */
int manifest_check(struct manifest *manifest, struct error *err);

/* Whether two parts can belong to one checkpoint; the error says what they do not agree on. */
int manifest_agree(const struct manifest *a, const struct manifest *b, struct error *err);

void manifest_destroy(struct manifest *manifest);

#endif

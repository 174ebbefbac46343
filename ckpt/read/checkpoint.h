/* checkpoint.h - an open checkpoint, within ckpt/. The interface of ckpt/read. */
#ifndef MUSTER_CKPT_READ_CHECKPOINT_H
#define MUSTER_CKPT_READ_CHECKPOINT_H

#include <stdatomic.h>

#include "ckpt/format/pieces.h"

struct ckpt {
    struct directory directory;
    struct manifest *manifest;
    struct piece_index index;
    const struct ckpt_tensor **by_name; /* [ntensors], sorted */
    atomic_bool *checked;               /* [shards] size and header were found right */
};

/* The checkpoint's tensor of that name, or NULL. Its index is its distance from manifest->tensors. */
const struct ckpt_tensor *checkpoint_find(const struct ckpt *ckpt, const char *name);

/* The index of that kind, or -1. */
int checkpoint_find_kind(const struct ckpt *ckpt, const char *kind);

/* ckpt_read of one kind, into one buffer: the pieces one after the other. */
int checkpoint_read_pieces(struct ckpt *ckpt, const struct ckpt_tensor *tensors, size_t ntensors, const char *kind,
                           const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err);

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/*
 * Reads blocks of a checkpoint's shards on several threads, and verifies each against its checksum.
 * All reads of a shard's data use it.
 *
 * The threads share the open files: a shard is opened when its first block is read, and at most one file a thread is
 * open at a time, however many shards there are. If blocks are read in the order of their places, as workers_run does
 * for a sorted list, each shard is opened once.
 */

/* The place of a block: SHARD_BLOCK bytes, or fewer at a shard's end. Places are in order by shard, then by block. */
struct block_place {
    int shard;
    uint64_t block;
};

static inline int block_place_compare(const struct block_place *a, const struct block_place *b)
{
    if (a->shard != b->shard)
        return a->shard < b->shard ? -1 : 1;
    return (a->block > b->block) - (a->block < b->block);
}

struct block_reader;

/* For threads 0 to threads - 1. The checkpoint is borrowed. */
struct block_reader *block_reader_create(const struct ckpt *ckpt, int threads, struct error *err);
void block_reader_destroy(struct block_reader *reader);

/* A buffer of the thread's own for block_reader_read; valid until block_reader_destroy. NULL when out of memory. */
void *block_reader_buffer(struct block_reader *reader, int thread, struct error *err);

/*
 * Read a block into buffer: SHARD_BLOCK bytes, aligned to SHARD_ALIGN. With `direct`, past the page cache where the
 * file system allows. The first read of a shard checks its size and header too. CODE_DATA names the file, and the
 * offset where there is one.
 */
int block_reader_read(struct block_reader *reader, const struct block_place *place, bool direct, void *buffer,
                      struct error *err);

#endif

/* checkpoint.h - an open checkpoint, within ckpt/. The interface of ckpt/read. */
#ifndef MUSTER_CKPT_READ_CHECKPOINT_H
#define MUSTER_CKPT_READ_CHECKPOINT_H

#include <stdatomic.h>

#include "ckpt/file/file.h"
#include "ckpt/format/pieces.h"

struct ckpt {
    struct directory directory;
    struct manifest *manifest;
    struct piece_index index;
    const struct ckpt_tensor **by_name; /* [ntensors], sorted */
    atomic_bool *checked;               /* [shards] checkpoint_open_shard found size and header right */
};

/*
 * Open a shard's file for reading. Checks its size against the manifest and, the first time, its header. Any thread may
 * call it. Returns the descriptor.
 */
int checkpoint_open_shard(const struct ckpt *ckpt, int shard, struct error *err);

/* Check the sizes and headers of all shards that were not checked before. */
int checkpoint_check_shards(struct ckpt *ckpt, struct error *err);

/* The checkpoint's tensor of that name, or NULL. Its index is its distance from manifest->tensors. */
const struct ckpt_tensor *checkpoint_find(const struct ckpt *ckpt, const char *name);

/* The index of that kind, or -1. */
int checkpoint_find_kind(const struct ckpt *ckpt, const char *kind);

/* ckpt_read of one kind, into one buffer: the pieces one after the other. */
int checkpoint_read_pieces(struct ckpt *ckpt, const struct ckpt_tensor *tensors, size_t ntensors, const char *kind,
                           const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err);

/* ---- blocks (block_reader.c) ------------------------------------------------------------------------------------- */

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

/* ---- one ckpt_read (read.c, together.c) -------------------------------------------------------------------------- */

/*
 * One ckpt_read: its plan, and the part of it that the processes of a node do together. read.c, together.c.
 *
 * A plan is a list of *copies*. A copy is the overlap of one piece of the reader with one piece of the checkpoint, for
 * one kind, within one block of a shard file. The copies are sorted by block. A few threads then take block after
 * block: each is read once, verified, and all its copies are made.
 */

#define READ_THREADS 4 /* enough in flight for a fast disk, and few enough for a node full of ranks */

struct copy {
    struct overlap walk; /* a: the reader's piece, b: the checkpoint's */
    struct block_place place;
    uint64_t base; /* bytes from the data's start to where element 0 of b lies */
    char *target;  /* where element 0 of a goes */
};

struct reading {
    struct ckpt *ckpt;
    struct block_reader *reader; /* of READ_THREADS threads */
    struct ckpt_piece *pieces;   /* the reader's, but `tensor` is an index into the checkpoint's table */
    struct copy *copies;
    size_t count, room;
    size_t *first; /* [blocks + 1] copies first[i] to first[i + 1] - 1 are of the i-th needed block */
    size_t blocks; /* the number of needed blocks */
    size_t *alone; /* [nalone] those needed blocks that this process reads for itself, in order */
    size_t nalone;
};

/* Make all copies of the i-th needed block. `bytes`: the block. */
void reading_copy(struct reading *reading, size_t i, const char *bytes);

/*
 * Of the blocks that several processes of the node need, reads this process's share, and makes its copies from all of
 * them. Sets `alone` and nalone to its other blocks. All processes of the node call it and get the same result.
 */
int reading_together(struct reading *reading, const struct ckpt_node *node, struct error *err);

#endif

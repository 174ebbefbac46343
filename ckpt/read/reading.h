/*
 * reading.h - one ckpt_read: its plan, and the part of it that the processes of a node do together. read.c, together.c.
 *
 * A plan is a list of *copies*. A copy is the overlap of one piece of the reader with one piece of the checkpoint, for
 * one kind, within one block of a shard file. The copies are sorted by block. A few threads then take block after
 * block: each is read once, verified, and all its copies are made.
 */
#ifndef MUSTER_CKPT_READ_READING_H
#define MUSTER_CKPT_READ_READING_H

#include "ckpt/read/block_reader.h"

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

/*
 * block_writer.h - one shard file, written in blocks that are checksummed on the way.
 *
 * The caller's bytes are copied into one of three 4 MiB buffers. When one is full its crc32c is taken, and one of two
 * threads writes it while the next is being filled: the checksum is of the caller's bytes, whether or not the disk
 * keeps them. Lent blocks are written from where they are. Writes go past the page cache (O_DIRECT) where the
 * filesystem allows; that is several times faster and leaves the node's memory alone.
 *
 * The file has a temporary name until block_writer_finish, which cuts it to length, syncs and renames it.
 */
#ifndef MUSTER_CKPT_FORMAT_BLOCK_WRITER_H
#define MUSTER_CKPT_FORMAT_BLOCK_WRITER_H

#include "ckpt/format/manifest.h"

struct block_writer;

/*
 * Create the file and write its header, whose length is a multiple of SHARD_ALIGN and at most SHARD_BLOCK. data_bytes
 * of data will follow; room for them is reserved now, so that a full disk is known at once. The directory is borrowed.
 */
struct block_writer *block_writer_create(const struct directory *directory, const char *name, const void *header,
                                         size_t header_bytes, uint64_t data_bytes, struct error *err);

/* Append data; NULL appends zeros. */
int block_writer_put(struct block_writer *writer, const void *data, uint64_t bytes, struct error *err);

/*
 * The same without a copy, for one block: SHARD_BLOCK bytes, or the last ones. They begin at a multiple of SHARD_ALIGN
 * in memory, and stay unchanged until block_writer_finish or block_writer_destroy. A block with another checksum is
 * CODE_DATA and is not written.
 */
int block_writer_lend(struct block_writer *writer, const void *block, size_t bytes, uint32_t crc, struct error *err);

/*
 * All data has been put: complete the file under its name. crcs [blocks] (may be NULL) receives the blocks' checksums.
 * 0, -1, or 1 if another process has removed the file meanwhile.
 */
int block_writer_finish(struct block_writer *writer, uint32_t *crcs, struct error *err);

/*
 * A copy that is stopped, and goes on later. After block_writer_keep, block_writer_destroy keeps the blocks that were
 * put, synced, in NAME.kept.tmp, if it can. block_writer_resume, called before any data is put, takes over what was kept
 * under that name, if anything: *blocks are there, and the caller's data goes on after them. -1: the file is lost.
 */
#define BLOCKS_KEPT ".kept.tmp"

void block_writer_keep(struct block_writer *writer);
int block_writer_resume(struct block_writer *writer, size_t *blocks, struct error *err);

/* Frees it, and removes the file unless it was finished or is kept. */
void block_writer_destroy(struct block_writer *writer);

#endif

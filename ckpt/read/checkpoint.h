/* checkpoint.h - an open checkpoint, within ckpt/. The door of ckpt/read. */
#ifndef MUSTER_CKPT_READ_CHECKPOINT_H
#define MUSTER_CKPT_READ_CHECKPOINT_H

#include <stdatomic.h>

#include "ckpt/file/file.h"
#include "ckpt/format/pieces.h"

struct ckpt {
    struct directory directory;
    struct manifest *manifest;
    struct cover cover;
    uint64_t bytes;
    const struct ckpt_tensor **by_name; /* [ntensors], sorted */
    atomic_bool *checked;               /* [shards] the shard's size and header were right */
};

/* The checkpoint's tensor of that name, or NULL. Its index is its distance from manifest->tensors. */
const struct ckpt_tensor *checkpoint_find(const struct ckpt *ckpt, const char *name);

/* The index of that kind, or -1. */
int checkpoint_find_kind(const struct ckpt *ckpt, const char *kind);

/* Check the sizes and headers of all shards that have not been checked yet. */
int checkpoint_check_all(const struct ckpt *ckpt, struct error *err);

/*
 * Open a shard's file; its length must be the manifest's, and when it is opened for the first time its header
 * is compared too. Returns the descriptor.
 */
int checkpoint_open_shard(const struct ckpt *ckpt, int shard, bool direct, struct error *err);

/* ckpt_read of one kind, into one buffer: the pieces one after the other. */
int checkpoint_read_pieces(struct ckpt *ckpt, const struct ckpt_tensor *tensors, size_t ntensors, const char *kind,
                           const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err);

/*
 * Read block `block` of a shard into buffer (SHARD_BLOCK bytes, aligned to SHARD_ALIGN) and verify its checksum.
 * With `direct` the read is rounded up to whole sectors, which the file's end cuts off.
 */
int checkpoint_read_block(const struct ckpt *ckpt, int shard, int fd, bool direct, uint64_t block, void *buffer,
                          struct error *err);

#endif

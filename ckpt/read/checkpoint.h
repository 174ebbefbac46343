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

#endif

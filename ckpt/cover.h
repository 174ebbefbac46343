/*
 * cover.h - an index of all pieces of a checkpoint by tensor, and the proof that they hold every element exactly once.
 */
#ifndef MUSTER_CKPT_COVER_H
#define MUSTER_CKPT_COVER_H

#include "ckpt/manifest.h"

struct cover_piece {
    const struct ckpt_piece *piece;
    int shard;
    uint64_t offset;      /* elements of the shard's segment before it */
    uint64_t first, last; /* its extent in the tensor, as of piece_extent */
    uint64_t reach;       /* the greatest `last` of this and all before it */
};

struct cover {
    struct cover_piece *pieces; /* by tensor, then by first */
    size_t *start;              /* [ntensors + 1] where each tensor's begin */
    const struct manifest *manifest;
};

/* The manifest is borrowed. Fails with CODE_DATA when an element is missing or there twice, or a tensor
 * has pieces of more than 4096 different boxes. */
int cover_create(struct cover *cover, const struct manifest *manifest, struct error *err);
void cover_destroy(struct cover *cover);

/*
 * The pieces that may overlap elements first..last of the tensor's row-major order:
 *
 *     for (i = cover_begin(cover, tensor, first); cover_in(cover, tensor, i, last); i++)
 */
size_t cover_begin(const struct cover *cover, size_t tensor, uint64_t first);
bool cover_in(const struct cover *cover, size_t tensor, size_t index, uint64_t last);

#endif

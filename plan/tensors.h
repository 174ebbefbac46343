/*
 * tensors.h - the elements of each unit on a rank, from the table in common/model/model_tensors.h. ckpt/models/units.h
 * describes their layout; plan/state.h counts their bytes.
 */
#ifndef MUSTER_PLAN_TENSORS_H
#define MUSTER_PLAN_TENSORS_H

#include <stddef.h>

#include "common/mesh.h"
#include "common/model/model_tensors.h"

enum {
    UNIT_ALIGN = 16,   /* elements; in fp32 one cache line */
    VOCAB_ALIGN = 128, /* a tp rank's vocabulary is padded to a multiple of this in memory, never in a file */
};

/* Rows of wte in a tp rank's memory. */
int vocabulary_padded(const struct model_shape *model, int tp);

struct unit_size {
    size_t count;      /* elements of the flat buffer; a multiple of dp * UNIT_ALIGN */
    size_t replicated; /* leading elements, the same on all tp ranks */
};

/* Adds a tensor to a unit's flat buffer; returns the element at which it begins. unit_finish comes after the last. */
size_t unit_add(struct unit_size *size, const struct model_shape *model, const struct model_tensor *tensor,
                const struct mesh *mesh);
void unit_finish(struct unit_size *size, const struct mesh *mesh);

/* All tensors of a unit; the same on every tp and dp rank that has it. */
struct unit_size unit_size_of(const struct model_shape *model, enum unit_kind kind, const struct mesh *mesh);

/* A dp rank's shard of a flat buffer of `count` elements: where it begins, and its elements. (A shard of a *checkpoint*
 * is the file with the pieces that one rank saves, of all its units.) */
size_t unit_shard(size_t count, int dp, int dp_rank, size_t *first);

#endif

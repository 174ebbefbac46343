/*
 * tensors.h - the tensors of a model's units, and the elements of each unit on a rank. ckpt/models/units.h builds the
 * list of units from this table and describes their layout; plan/state.h counts their bytes.
 */
#ifndef MUSTER_PLAN_TENSORS_H
#define MUSTER_PLAN_TENSORS_H

#include <stddef.h>

#include "common/job.h"
#include "common/mesh.h"

enum {
    UNIT_ALIGN = 16,   /* elements; in fp32 one cache line */
    VOCAB_ALIGN = 128, /* a tp rank's vocabulary is padded to a multiple of this in memory, never in a file */
    UNIT_MAX_TENSORS = 16,
};

enum unit_kind { UNIT_KIND_WTE, UNIT_KIND_POSITION, UNIT_KIND_BLOCK, UNIT_KIND_HEAD, UNIT_KINDS };

/* The tensors of a unit, in the order of its flat buffer. The replicated ones come first (unit.replicated). In these
 * enums the bias of a column-parallel layer is the weight's index + 1, and a norm's bias is its weight's index + 1:
 * linear_forward and norm_forward (trainer/model/context.c) rely on that. The names in files are in tensors.c:
 * BLOCK_QKV_WEIGHT is "h.N.attn.c_attn.weight". */
enum { WTE_WEIGHT };
enum { POSITION_WPE, POSITION_WTT };
enum {
    BLOCK_LN_1_WEIGHT,
    BLOCK_LN_1_BIAS,
    BLOCK_ATTN_PROJ_BIAS,
    BLOCK_LN_2_WEIGHT,
    BLOCK_LN_2_BIAS,
    BLOCK_MLP_PROJ_BIAS,
    /* attn.c_attn.weight, shape [d_in, 3, d_out]: axis 1 is Q, K, V. tp ranks split the last axis; since tp divides the
     * heads, each has whole heads. A rank's box [d, 3, d/tp] is the W[in, out] of linear_forward
     * (trainer/model/context.h). */
    BLOCK_QKV_WEIGHT,
    BLOCK_QKV_BIAS, /* [3, d] */
    BLOCK_ATTN_PROJ_WEIGHT,
    BLOCK_FC_WEIGHT,
    BLOCK_FC_BIAS,
    BLOCK_MLP_PROJ_WEIGHT,
};
enum {
    HEAD_LN_F_WEIGHT,
    HEAD_LN_F_BIAS,
    /* BERT only, from here on */
    HEAD_MLM_WEIGHT,
    HEAD_MLM_BIAS,
    HEAD_MLM_LN_WEIGHT,
    HEAD_MLM_LN_BIAS,
    HEAD_POOLER_WEIGHT,
    HEAD_POOLER_BIAS,
    HEAD_ORDER_WEIGHT,
    HEAD_ORDER_BIAS,
    HEAD_VOCAB_BIAS, /* split over the vocabulary */
};

/* A tensor's shape. split: the dimension that is divided among the tp ranks; UNIT_WHOLE: every tp rank has all. */
enum { UNIT_WHOLE = -1 };

struct unit_tensor_shape {
    const char *suffix; /* of its name */
    int ndim;
    int shape[3];
    int split;
    bool vocabulary; /* the split dimension is the vocabulary, which is padded in memory */
};

/* Writes at most UNIT_MAX_TENSORS shapes, in the order of the unit's flat buffer; returns how many. */
int unit_tensor_shapes(const struct model_shape *model, enum unit_kind kind, struct unit_tensor_shape *shapes);

/* Rows of wte in a tp rank's memory. */
int vocabulary_padded(const struct model_shape *model, int tp);

struct unit_size {
    size_t count;      /* elements of the flat buffer; a multiple of dp * UNIT_ALIGN */
    size_t replicated; /* leading elements, the same on all tp ranks */
};

/* Adds a tensor to a unit's flat buffer; returns the element at which it begins. unit_finish comes after the last. */
size_t unit_add(struct unit_size *size, const struct model_shape *model, const struct unit_tensor_shape *shape,
                const struct mesh *mesh);
void unit_finish(struct unit_size *size, const struct mesh *mesh);

/* All tensors of a unit; the same on every tp and dp rank that has it. */
struct unit_size unit_size_of(const struct model_shape *model, enum unit_kind kind, const struct mesh *mesh);

/* A dp rank's shard of a flat buffer of `count` elements: where it begins, and its elements. (A shard of a *checkpoint*
 * is the file with the pieces that one rank saves, of all its units.) */
size_t unit_shard(size_t count, int dp, int dp_rank, size_t *first);

#endif

/*
 * units.h - the model as a list of units: token embedding, positions, block 0..L-1, head. All parameters of a unit
 * (this rank's tensor-parallel slice) lie in one flat buffer; sharding, gathering, reducing and checkpointing know only
 * units and the tensors in them. Pure arithmetic: nothing here allocates device memory.
 *
 *     unit  |ln_1.weight| ... |mlp.c_proj.bias|attn.c_attn.weight| ... |mlp.c_proj.weight|padding|
 *           0    replicated on tp ranks       shared    tensors, split over tp ranks              count
 *     shard |    dp rank 0     |    dp rank 1     |    ...    |   dp rank dp-1   |
 *
 * count is a multiple of dp * UNIT_ALIGN. A pipeline stage holds only some of the units. The token embedding is a unit
 * of its own because it is tied to the projection of the head: with several stages, the first and the last both hold
 * it.
 */
#ifndef MUSTER_CKPT_MODELS_UNITS_H
#define MUSTER_CKPT_MODELS_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ckpt/ckpt.h"
#include "common/job.h"

enum {
    UNIT_ALIGN = 16,   /* elements; a shard is a whole number of cache lines */
    VOCAB_ALIGN = 128, /* a rank's slice of the vocabulary is padded to this many rows in memory, never in a file */
    UNIT_MAX_TENSORS = 16,
};

/* One tensor's place in its unit: a box of the logical tensor, whose name and shape are in units->tensors[index]. */
struct unit_tensor {
    uint32_t index;
    uint64_t start[CKPT_MAX_DIMS], shape[CKPT_MAX_DIMS];
    size_t offset; /* first element in the unit's flat buffer */
    size_t count;  /* elements of the box */
};

struct unit {
    char name[32];
    bool here; /* on this rank's stage; elsewhere it has no tensors and count is 0 */
    bool copy; /* the last stage's second token embedding: not saved, and not counted in norms */
    int ntensors;
    struct unit_tensor tensors[UNIT_MAX_TENSORS];
    size_t count;      /* of the flat buffer */
    size_t replicated; /* its first elements are the same on all tp ranks; their gradients are sums over these */
};

struct units {
    int nunits;
    struct unit *units;
    struct ckpt_tensor *tensors; /* the whole model, in canonical order; the same on every rank */
    size_t ntensors;
    bool saves_replicated;                /* tp rank 0: every element is saved and counted by one rank */
    int vocab_first, vocab, vocab_padded; /* this rank's slice of the vocabulary, and rows in memory */
};

enum { UNIT_WTE = 0, UNIT_POSITION = 1, UNIT_BLOCK0 = 2 };

/* The last unit: norms, and what BERT's losses need. */
int units_head(const struct units *units);

/* Indices into a unit's tensors. */
enum { WTE_WEIGHT };
enum { POSITION_WPE, POSITION_WTT };
enum {
    BLOCK_LN_1_WEIGHT,
    BLOCK_LN_1_BIAS,
    BLOCK_ATTN_PROJ_BIAS,
    BLOCK_LN_2_WEIGHT,
    BLOCK_LN_2_BIAS,
    BLOCK_PROJ_BIAS,
    BLOCK_ATTN_WEIGHT, /* logical shape [d, 3, d]: Q, K and V are split by heads, each alike */
    BLOCK_ATTN_BIAS,   /* [3, d] */
    BLOCK_ATTN_PROJ_WEIGHT,
    BLOCK_FC_WEIGHT,
    BLOCK_FC_BIAS,
    BLOCK_PROJ_WEIGHT,
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

/* Whose units: a rank's place in the mesh, and the layers of its pipeline stage. */
struct units_place {
    int dp, tp, tp_rank;
    bool first_stage, last_stage;
    const bool *layers; /* [layers] which are on this stage; NULL for all */
};

/* The units of a GPT-2 with Hugging Face's tensor names, or of Megatron's BERT. NULL when out of memory. */
struct units *units_create(const struct model_shape *shape, const struct units_place *place, struct error *err);
void units_destroy(struct units *units);

/* Elements of the largest block on this rank. */
size_t units_largest_block(const struct units *units);

/* How many of elements [first, first + count) of a unit are of this tensor; *begin is the tensor's own number of the
 * first of them. */
size_t unit_tensor_overlap(const struct unit_tensor *tensor, size_t first, size_t count, size_t *begin);

/* A data-parallel rank's part of a unit's flat buffer: where it begins, and its elements. */
size_t unit_shard(const struct unit *unit, int dp, int dp_rank, size_t *first);

/*
 * The parts of the logical tensors in elements [first, first + count) of a unit's flat buffer, as checkpoint pieces.
 * Writes at most UNIT_MAX_TENSORS pieces, and where each begins in the flat buffer; returns how many. With `saving`,
 * only what this rank is the one to save.
 */
size_t units_pieces(const struct units *units, int unit, size_t first, size_t count, bool saving,
                    struct ckpt_piece *pieces, size_t *offsets);

#endif

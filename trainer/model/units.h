/*
 * units.h - the model as a list of units: embedding, block 0..L-1, head. All parameters of a unit (this rank's
 * tensor-parallel slice) lie in one flat buffer; sharding, gathering, reducing and checkpointing know only units and
 * the tensors in them. Pure arithmetic: nothing here allocates device memory.
 *
 *     unit  |ln_1.weight|ln_1.bias|attn.c_attn.weight| ... |mlp.c_proj.bias|padding|
 *           0                                                              count (a multiple of dp * UNIT_ALIGN)
 *     shard |    dp rank 0     |    dp rank 1     |    ...    |   dp rank dp-1   |
 */
#ifndef MUSTER_TRAINER_MODEL_UNITS_H
#define MUSTER_TRAINER_MODEL_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ckpt/ckpt.h"
#include "common/job.h"

enum {
    UNIT_ALIGN = 16,   /* elements; a shard is a whole number of cache lines */
    VOCAB_ALIGN = 128, /* the vocabulary is padded to this many rows in memory, never in a checkpoint */
    UNIT_MAX_TENSORS = 12,
};

enum init { INIT_ZERO, INIT_ONE, INIT_NORMAL };

/* One tensor's place in its unit. Its logical name and shape are in units->tensors[index]. */
struct unit_tensor {
    uint32_t index;
    size_t offset; /* first element in the unit's flat buffer */
    size_t count;  /* elements of the logical tensor that this rank holds, without padding */
    bool decay;    /* weight decay applies */
    enum init init;
    double deviation; /* for INIT_NORMAL */
};

struct unit {
    char name[32];
    int ntensors;
    struct unit_tensor tensors[UNIT_MAX_TENSORS];
    size_t count; /* of the flat buffer */
};

struct units {
    int nunits;
    struct unit *units;
    struct ckpt_tensor *tensors; /* the whole model, in canonical order; the same on every rank */
    size_t ntensors;
    size_t max_count; /* of the largest unit */
};

/* Indices into the units of a GPT: unit 0 is the embedding (wte, wpe), then the blocks, last the final norm. */
enum { UNIT_EMBEDDING = 0, UNIT_BLOCK0 = 1 };

/* Indices into a unit's tensors. */
enum { EMBEDDING_WTE, EMBEDDING_WPE };
enum {
    BLOCK_LN_1_WEIGHT,
    BLOCK_LN_1_BIAS,
    BLOCK_ATTN_WEIGHT,
    BLOCK_ATTN_BIAS,
    BLOCK_ATTN_PROJ_WEIGHT,
    BLOCK_ATTN_PROJ_BIAS,
    BLOCK_LN_2_WEIGHT,
    BLOCK_LN_2_BIAS,
    BLOCK_FC_WEIGHT,
    BLOCK_FC_BIAS,
    BLOCK_PROJ_WEIGHT,
    BLOCK_PROJ_BIAS,
};
enum { HEAD_LN_F_WEIGHT, HEAD_LN_F_BIAS };

/* The units of a GPT-2 with Hugging Face's tensor names, for a dp group of this size. NULL when out of memory. */
struct units *units_create(const struct model_shape *shape, double init_std, int dp, struct error *err);
void units_destroy(struct units *units);

/* Rows of the padded token embedding: the stride of logits. */
int units_padded_vocab(const struct model_shape *shape);

/*
 * What of the logical tensors lies in elements [first, first + count) of a unit's flat buffer, as checkpoint pieces.
 * Writes at most UNIT_MAX_TENSORS pieces, and where each begins in the flat buffer; returns how many.
 */
size_t units_pieces(const struct units *units, int unit, size_t first, size_t count, struct ckpt_piece *pieces,
                    size_t *offsets);

/* Initial values of elements [first, first + count) of a unit, whatever the topology; padding is zero. */
void units_initialize(const struct units *units, int unit, uint64_t seed, size_t first, size_t count, float *out);

#endif

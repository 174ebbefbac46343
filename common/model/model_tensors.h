/*
 * model_tensors.h - the one table of a model's tensors, by unit. Parameters, FLOPs, bytes, a rank's pieces, initial
 * values and weight decay follow from it. A tensor that a model lacks is absent, and what would use it does nothing.
 *
 * Weights of products are [in, out] in GPT-2's layout, and [out, in] in Llama's; the vocabulary's are [V, d]. Tensors
 * with the same part are one product: in Llama's layout Q, K and V, and gate and up. They are one after the other in
 * the flat buffer, so one matmul computes them.
 */
#ifndef MUSTER_COMMON_MODEL_MODEL_TENSORS_H
#define MUSTER_COMMON_MODEL_MODEL_TENSORS_H

#include <stdint.h>

#include "common/model/model_shape.h"

/* A model is a list of units (ckpt/models/units.h). */
enum unit_kind { UNIT_KIND_WTE, UNIT_KIND_POSITION, UNIT_KIND_BLOCK, UNIT_KIND_HEAD, UNIT_KINDS };

enum {
    UNIT_MAX_TENSORS = 24,
    UNIT_WHOLE = -1, /* of `split`: every tp rank has all of the tensor */
};

/* A norm, a product or an embedding: weights, and perhaps biases. */
enum model_part {
    PART_WTE,
    PART_WPE,
    PART_WTT,
    PART_LN_1,
    PART_QKV,
    PART_Q_NORM,
    PART_K_NORM,
    PART_ATTN_PROJ,
    PART_LN_2,
    PART_FC, /* with a gate: gate and up */
    PART_MLP_PROJ,
    PART_LN_F,
    PART_MLM,
    PART_MLM_LN,
    PART_POOLER,
    PART_ORDER,
    PART_LOGITS, /* its weight is PART_WTE's unless the model is untied */
};
enum part_term { WEIGHT, BIAS };

enum tensor_role {
    ROLE_EMBEDDING, /* rows that are looked up */
    ROLE_PRODUCT,   /* of a product with every token */
    ROLE_RESIDUAL,  /* the same, whose result is added to what passes from block to block */
    ROLE_LOGITS,    /* of the projection to the vocabulary */
    ROLE_SAMPLE,    /* of a product with one row a sample */
    ROLE_SCALE,     /* of a norm */
    ROLE_BIAS,
};

enum tensor_initial {
    INITIAL_NORMAL, /* of deviation init_std */
    INITIAL_OUTPUT, /* of deviation init_std / sqrt(2 layers), unless init_depth is false */
    INITIAL_ONES,
    INITIAL_ZEROS,
};

struct model_tensor {
    enum model_part part;
    enum tensor_role role;
    const char *name; /* within its unit: model_block_prefix and "N." precede that of a block */
    int shape[3];
    int split;       /* the dimension that is divided among the tp ranks, or UNIT_WHOLE */
    bool vocabulary; /* that dimension is the vocabulary, which is padded in memory */
    bool joined;     /* follows the tensor before it without padding: another one of its part */
    bool out_in;     /* a product's weight is [out, in] */
    int ndim;
    uint64_t elements;
    enum tensor_initial initial;
    bool decays; /* weight decay applies */
};

/* True if every token is multiplied by it, in a product. */
static inline bool tensor_is_product(const struct model_tensor *tensor)
{
    return tensor->role == ROLE_PRODUCT || tensor->role == ROLE_RESIDUAL;
}

static inline bool tensor_is(const struct model_tensor *tensor, enum model_part part, enum part_term term)
{
    return tensor->part == part && (tensor->role == ROLE_BIAS) == (term == BIAS);
}

/* "h." or "model.layers.": what precedes a block's number in the names of its tensors. */
const char *model_block_prefix(const struct model_shape *model);

/* Writes the tensors of a unit in the order of its flat buffer, those that are not split first. Returns how many. */
int model_tensors(const struct model_shape *model, enum unit_kind kind, struct model_tensor tensors[UNIT_MAX_TENSORS]);

/* Elements of a part's weights, or of its biases; 0 where it has none. */
uint64_t model_elements(const struct model_shape *model, enum model_part part, enum part_term term);

/* Elements of all tensors of a unit; and of its products: a token's forward pass takes 2 FLOPs for each. */
uint64_t model_unit_elements(const struct model_shape *model, enum unit_kind kind);
uint64_t model_unit_products(const struct model_shape *model, enum unit_kind kind);

/*
 * The number of parameters, a tied head counted once. GPT:
 *
 *   V*d + s*d + L*(12d^2 + 13d) + 2d               embedding, positions, blocks, last LayerNorm
 *
 * A BERT (Megatron's, with a last LayerNorm since the blocks are pre-LN) has additionally
 *
 *   2*d                                            token types
 *   d^2 + d + 2d + V                               masked-token head: dense, LayerNorm, bias of the tied decoder
 *   d^2 + d + 2*d + 2                              pooler, and the sentence-order head
 *
 * A Llama, q and k being the widths of all heads' queries and keys, f the MLP's inner width:
 *
 *   V*d (twice if untied) + L*(2dq + 2dk + 3df + 2d) + d
 */
uint64_t model_parameters(const struct model_shape *model);

#endif

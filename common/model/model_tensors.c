#include "common/model/model_tensors.h"

#include <stddef.h>

/* Dimensions of tensors, and what a model must have for a tensor to be there. */
enum width { NO_WIDTH, HIDDEN, QUERIES, KEYS, HEAD, INNER, POSITIONS, TYPES, VOCABULARY, TWO, THREE, WIDTHS };
enum condition {
    ALWAYS,
    LEARNED,
    TYPED,
    NORM_BIASED,
    QKV_BIASED,
    BIASED,
    HEAD_NORMS,
    GATED,
    GATED_BIASED,
    MASKED,
    UNTIED,
    CONDITIONS,
};

struct row {
    enum unit_kind unit;
    enum model_part part;
    enum tensor_role role;
    const char *name;
    enum width shape[3];
    int split;
    enum condition condition;
};

/* attn.c_attn.weight is [d, 3, out]: axis 1 is Q, K, V. tp ranks split the last axis; since tp divides the heads, each
 * has whole heads. */
static const struct row gpt2[] = {
    {UNIT_KIND_WTE, PART_WTE, ROLE_EMBEDDING, "wte.weight", {VOCABULARY, HIDDEN}, 0, ALWAYS},

    {UNIT_KIND_POSITION, PART_WPE, ROLE_EMBEDDING, "wpe.weight", {POSITIONS, HIDDEN}, UNIT_WHOLE, LEARNED},
    {UNIT_KIND_POSITION, PART_WTT, ROLE_EMBEDDING, "wtt.weight", {TYPES, HIDDEN}, UNIT_WHOLE, TYPED},

    {UNIT_KIND_BLOCK, PART_LN_1, ROLE_SCALE, "ln_1.weight", {HIDDEN}, UNIT_WHOLE, ALWAYS},
    {UNIT_KIND_BLOCK, PART_LN_1, ROLE_BIAS, "ln_1.bias", {HIDDEN}, UNIT_WHOLE, NORM_BIASED},
    {UNIT_KIND_BLOCK, PART_ATTN_PROJ, ROLE_BIAS, "attn.c_proj.bias", {HIDDEN}, UNIT_WHOLE, BIASED},
    {UNIT_KIND_BLOCK, PART_LN_2, ROLE_SCALE, "ln_2.weight", {HIDDEN}, UNIT_WHOLE, ALWAYS},
    {UNIT_KIND_BLOCK, PART_LN_2, ROLE_BIAS, "ln_2.bias", {HIDDEN}, UNIT_WHOLE, NORM_BIASED},
    {UNIT_KIND_BLOCK, PART_MLP_PROJ, ROLE_BIAS, "mlp.c_proj.bias", {HIDDEN}, UNIT_WHOLE, BIASED},
    {UNIT_KIND_BLOCK, PART_QKV, ROLE_PRODUCT, "attn.c_attn.weight", {HIDDEN, THREE, QUERIES}, 2, ALWAYS},
    {UNIT_KIND_BLOCK, PART_QKV, ROLE_BIAS, "attn.c_attn.bias", {THREE, QUERIES}, 1, QKV_BIASED},
    {UNIT_KIND_BLOCK, PART_ATTN_PROJ, ROLE_RESIDUAL, "attn.c_proj.weight", {QUERIES, HIDDEN}, 0, ALWAYS},
    {UNIT_KIND_BLOCK, PART_FC, ROLE_PRODUCT, "mlp.c_fc.weight", {HIDDEN, INNER}, 1, ALWAYS},
    {UNIT_KIND_BLOCK, PART_FC, ROLE_BIAS, "mlp.c_fc.bias", {INNER}, 0, BIASED},
    {UNIT_KIND_BLOCK, PART_MLP_PROJ, ROLE_RESIDUAL, "mlp.c_proj.weight", {INNER, HIDDEN}, 0, ALWAYS},

    {UNIT_KIND_HEAD, PART_LN_F, ROLE_SCALE, "ln_f.weight", {HIDDEN}, UNIT_WHOLE, ALWAYS},
    {UNIT_KIND_HEAD, PART_LN_F, ROLE_BIAS, "ln_f.bias", {HIDDEN}, UNIT_WHOLE, NORM_BIASED},
    {UNIT_KIND_HEAD, PART_MLM, ROLE_PRODUCT, "mlm.dense.weight", {HIDDEN, HIDDEN}, UNIT_WHOLE, MASKED},
    {UNIT_KIND_HEAD, PART_MLM, ROLE_BIAS, "mlm.dense.bias", {HIDDEN}, UNIT_WHOLE, MASKED},
    {UNIT_KIND_HEAD, PART_MLM_LN, ROLE_SCALE, "mlm.ln.weight", {HIDDEN}, UNIT_WHOLE, MASKED},
    {UNIT_KIND_HEAD, PART_MLM_LN, ROLE_BIAS, "mlm.ln.bias", {HIDDEN}, UNIT_WHOLE, MASKED},
    {UNIT_KIND_HEAD, PART_POOLER, ROLE_SAMPLE, "pooler.weight", {HIDDEN, HIDDEN}, UNIT_WHOLE, MASKED},
    {UNIT_KIND_HEAD, PART_POOLER, ROLE_BIAS, "pooler.bias", {HIDDEN}, UNIT_WHOLE, MASKED},
    {UNIT_KIND_HEAD, PART_ORDER, ROLE_SAMPLE, "order.weight", {HIDDEN, TWO}, UNIT_WHOLE, MASKED},
    {UNIT_KIND_HEAD, PART_ORDER, ROLE_BIAS, "order.bias", {TWO}, UNIT_WHOLE, MASKED},
    {UNIT_KIND_HEAD, PART_LOGITS, ROLE_LOGITS, "lm_head.weight", {VOCABULARY, HIDDEN}, 0, UNTIED},
    {UNIT_KIND_HEAD, PART_LOGITS, ROLE_BIAS, "mlm.bias", {VOCABULARY}, 0, MASKED},
};

static const struct row llama[] = {
    {UNIT_KIND_WTE, PART_WTE, ROLE_EMBEDDING, "model.embed_tokens.weight", {VOCABULARY, HIDDEN}, 0, ALWAYS},

    {UNIT_KIND_POSITION,
     PART_WPE,
     ROLE_EMBEDDING,
     "model.embed_positions.weight",
     {POSITIONS, HIDDEN},
     UNIT_WHOLE,
     LEARNED},

    {UNIT_KIND_BLOCK, PART_LN_1, ROLE_SCALE, "input_layernorm.weight", {HIDDEN}, UNIT_WHOLE, ALWAYS},
    {UNIT_KIND_BLOCK, PART_LN_1, ROLE_BIAS, "input_layernorm.bias", {HIDDEN}, UNIT_WHOLE, NORM_BIASED},
    {UNIT_KIND_BLOCK, PART_Q_NORM, ROLE_SCALE, "self_attn.q_norm.weight", {HEAD}, UNIT_WHOLE, HEAD_NORMS},
    {UNIT_KIND_BLOCK, PART_K_NORM, ROLE_SCALE, "self_attn.k_norm.weight", {HEAD}, UNIT_WHOLE, HEAD_NORMS},
    {UNIT_KIND_BLOCK, PART_ATTN_PROJ, ROLE_BIAS, "self_attn.o_proj.bias", {HIDDEN}, UNIT_WHOLE, BIASED},
    {UNIT_KIND_BLOCK, PART_LN_2, ROLE_SCALE, "post_attention_layernorm.weight", {HIDDEN}, UNIT_WHOLE, ALWAYS},
    {UNIT_KIND_BLOCK, PART_LN_2, ROLE_BIAS, "post_attention_layernorm.bias", {HIDDEN}, UNIT_WHOLE, NORM_BIASED},
    {UNIT_KIND_BLOCK, PART_MLP_PROJ, ROLE_BIAS, "mlp.down_proj.bias", {HIDDEN}, UNIT_WHOLE, BIASED},
    {UNIT_KIND_BLOCK, PART_QKV, ROLE_PRODUCT, "self_attn.q_proj.weight", {QUERIES, HIDDEN}, 0, ALWAYS},
    {UNIT_KIND_BLOCK, PART_QKV, ROLE_PRODUCT, "self_attn.k_proj.weight", {KEYS, HIDDEN}, 0, ALWAYS},
    {UNIT_KIND_BLOCK, PART_QKV, ROLE_PRODUCT, "self_attn.v_proj.weight", {KEYS, HIDDEN}, 0, ALWAYS},
    {UNIT_KIND_BLOCK, PART_QKV, ROLE_BIAS, "self_attn.q_proj.bias", {QUERIES}, 0, QKV_BIASED},
    {UNIT_KIND_BLOCK, PART_QKV, ROLE_BIAS, "self_attn.k_proj.bias", {KEYS}, 0, QKV_BIASED},
    {UNIT_KIND_BLOCK, PART_QKV, ROLE_BIAS, "self_attn.v_proj.bias", {KEYS}, 0, QKV_BIASED},
    {UNIT_KIND_BLOCK, PART_ATTN_PROJ, ROLE_RESIDUAL, "self_attn.o_proj.weight", {HIDDEN, QUERIES}, 1, ALWAYS},
    {UNIT_KIND_BLOCK, PART_FC, ROLE_PRODUCT, "mlp.gate_proj.weight", {INNER, HIDDEN}, 0, GATED},
    {UNIT_KIND_BLOCK, PART_FC, ROLE_PRODUCT, "mlp.up_proj.weight", {INNER, HIDDEN}, 0, ALWAYS},
    {UNIT_KIND_BLOCK, PART_FC, ROLE_BIAS, "mlp.gate_proj.bias", {INNER}, 0, GATED_BIASED},
    {UNIT_KIND_BLOCK, PART_FC, ROLE_BIAS, "mlp.up_proj.bias", {INNER}, 0, BIASED},
    {UNIT_KIND_BLOCK, PART_MLP_PROJ, ROLE_RESIDUAL, "mlp.down_proj.weight", {HIDDEN, INNER}, 1, ALWAYS},

    {UNIT_KIND_HEAD, PART_LN_F, ROLE_SCALE, "model.norm.weight", {HIDDEN}, UNIT_WHOLE, ALWAYS},
    {UNIT_KIND_HEAD, PART_LN_F, ROLE_BIAS, "model.norm.bias", {HIDDEN}, UNIT_WHOLE, NORM_BIASED},
    {UNIT_KIND_HEAD, PART_LOGITS, ROLE_LOGITS, "lm_head.weight", {VOCABULARY, HIDDEN}, 0, UNTIED},
};

static const struct layout {
    const char *block_prefix;
    bool out_in;
    const struct row *rows;
    size_t count;
} layouts[] = {
    [LAYOUT_GPT2] = {"h.", false, gpt2, sizeof gpt2 / sizeof *gpt2},
    [LAYOUT_LLAMA] = {"model.layers.", true, llama, sizeof llama / sizeof *llama},
};

const char *model_block_prefix(const struct model_shape *m)
{
    return layouts[m->layout].block_prefix;
}

static bool has_tensor(const struct model_shape *m, enum condition condition)
{
    bool gated = m->activation == ACTIVATION_SWIGLU, biased = m->biases == BIASES_ALL;
    const bool has[CONDITIONS] = {
        [ALWAYS] = true,
        [LEARNED] = m->positions == POSITIONS_LEARNED,
        [TYPED] = m->token_types > 0,
        [NORM_BIASED] = biased && m->norm == NORM_LAYER,
        [QKV_BIASED] = m->biases != BIASES_NONE,
        [BIASED] = biased,
        [HEAD_NORMS] = m->qk_norm,
        [GATED] = gated,
        [GATED_BIASED] = gated && biased,
        [MASKED] = m->objective == OBJECTIVE_MASKED,
        [UNTIED] = m->untied,
    };

    return has[condition];
}

static struct model_tensor make_tensor(const struct model_shape *m, const struct row *row)
{
    const int widths[WIDTHS] = {
        [HIDDEN] = m->hidden,
        [QUERIES] = model_query_width(m),
        [KEYS] = model_key_width(m),
        [HEAD] = model_head_size(m),
        [INNER] = model_inner(m),
        [POSITIONS] = m->seq_length,
        [TYPES] = m->token_types,
        [VOCABULARY] = m->vocab,
        [TWO] = 2,
        [THREE] = 3,
    };
    struct model_tensor tensor = {.part = row->part,
                                  .role = row->role,
                                  .name = row->name,
                                  .split = row->split,
                                  .vocabulary = row->split == 0 && row->shape[0] == VOCABULARY,
                                  .out_in = layouts[m->layout].out_in,
                                  .initial = row->role == ROLE_RESIDUAL ? INITIAL_OUTPUT
                                             : row->role == ROLE_SCALE  ? INITIAL_ONES
                                             : row->role == ROLE_BIAS   ? INITIAL_ZEROS
                                                                        : INITIAL_NORMAL,
                                  .decays = row->role != ROLE_SCALE && row->role != ROLE_BIAS,
                                  .elements = 1};

    for (; tensor.ndim < 3 && row->shape[tensor.ndim]; tensor.ndim++)
        tensor.elements *= (uint64_t)(tensor.shape[tensor.ndim] = widths[row->shape[tensor.ndim]]);
    return tensor;
}

int model_tensors(const struct model_shape *m, enum unit_kind kind, struct model_tensor tensors[UNIT_MAX_TENSORS])
{
    const struct layout *layout = &layouts[m->layout];
    int count = 0;

    for (size_t i = 0; i < layout->count; i++)
        if (layout->rows[i].unit == kind && has_tensor(m, layout->rows[i].condition))
            tensors[count++] = make_tensor(m, &layout->rows[i]);
    for (int i = 1; i < count; i++)
        tensors[i].joined = tensors[i].part == tensors[i - 1].part &&
                            (tensors[i].role == ROLE_BIAS) == (tensors[i - 1].role == ROLE_BIAS);
    return count;
}

uint64_t model_elements(const struct model_shape *m, enum model_part part, enum part_term term)
{
    const struct layout *layout = &layouts[m->layout];
    uint64_t elements = 0;

    for (size_t i = 0; i < layout->count; i++) {
        const struct row *row = &layout->rows[i];

        if (row->part == part && (row->role == ROLE_BIAS) == (term == BIAS) && has_tensor(m, row->condition))
            elements += make_tensor(m, row).elements;
    }
    return elements;
}

uint64_t model_unit_elements(const struct model_shape *m, enum unit_kind kind)
{
    struct model_tensor tensors[UNIT_MAX_TENSORS];
    uint64_t elements = 0;

    for (int i = model_tensors(m, kind, tensors) - 1; i >= 0; i--)
        elements += tensors[i].elements;
    return elements;
}

uint64_t model_unit_products(const struct model_shape *m, enum unit_kind kind)
{
    struct model_tensor tensors[UNIT_MAX_TENSORS];
    uint64_t elements = 0;

    for (int i = model_tensors(m, kind, tensors) - 1; i >= 0; i--)
        elements += tensor_is_product(&tensors[i]) ? tensors[i].elements : 0;
    return elements;
}

uint64_t model_parameters(const struct model_shape *m)
{
    return model_unit_elements(m, UNIT_KIND_WTE) + model_unit_elements(m, UNIT_KIND_POSITION) +
           (uint64_t)m->layers * model_unit_elements(m, UNIT_KIND_BLOCK) + model_unit_elements(m, UNIT_KIND_HEAD);
}

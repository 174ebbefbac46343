#include "plan/tensors.h"

#include <string.h>

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

int unit_tensor_shapes(const struct model_shape *m, enum unit_kind kind, struct unit_tensor_shape *shapes)
{
    int d = m->hidden;
    bool bert = m->kind == MODEL_BERT;
    const int count[UNIT_KINDS] = {1, bert ? 2 : 1, BLOCK_MLP_PROJ_WEIGHT + 1,
                                   bert ? HEAD_VOCAB_BIAS + 1 : HEAD_LN_F_BIAS + 1};
    const struct unit_tensor_shape all[UNIT_KINDS][UNIT_MAX_TENSORS] = {
        [UNIT_KIND_WTE] = {[WTE_WEIGHT] = {"wte.weight", 2, {m->vocab, d}, 0, true}},
        [UNIT_KIND_POSITION] = {[POSITION_WPE] = {"wpe.weight", 2, {m->seq_length, d}, UNIT_WHOLE, false},
                                [POSITION_WTT] = {"wtt.weight", 2, {2, d}, UNIT_WHOLE, false}},
        [UNIT_KIND_BLOCK] = {[BLOCK_LN_1_WEIGHT] = {"ln_1.weight", 1, {d}, UNIT_WHOLE, false},
                             [BLOCK_LN_1_BIAS] = {"ln_1.bias", 1, {d}, UNIT_WHOLE, false},
                             [BLOCK_ATTN_PROJ_BIAS] = {"attn.c_proj.bias", 1, {d}, UNIT_WHOLE, false},
                             [BLOCK_LN_2_WEIGHT] = {"ln_2.weight", 1, {d}, UNIT_WHOLE, false},
                             [BLOCK_LN_2_BIAS] = {"ln_2.bias", 1, {d}, UNIT_WHOLE, false},
                             [BLOCK_MLP_PROJ_BIAS] = {"mlp.c_proj.bias", 1, {d}, UNIT_WHOLE, false},
                             [BLOCK_QKV_WEIGHT] = {"attn.c_attn.weight", 3, {d, 3, d}, 2, false},
                             [BLOCK_QKV_BIAS] = {"attn.c_attn.bias", 2, {3, d}, 1, false},
                             [BLOCK_ATTN_PROJ_WEIGHT] = {"attn.c_proj.weight", 2, {d, d}, 0, false},
                             [BLOCK_FC_WEIGHT] = {"mlp.c_fc.weight", 2, {d, 4 * d}, 1, false},
                             [BLOCK_FC_BIAS] = {"mlp.c_fc.bias", 1, {4 * d}, 0, false},
                             [BLOCK_MLP_PROJ_WEIGHT] = {"mlp.c_proj.weight", 2, {4 * d, d}, 0, false}},
        [UNIT_KIND_HEAD] = {[HEAD_LN_F_WEIGHT] = {"ln_f.weight", 1, {d}, UNIT_WHOLE, false},
                            [HEAD_LN_F_BIAS] = {"ln_f.bias", 1, {d}, UNIT_WHOLE, false},
                            [HEAD_MLM_WEIGHT] = {"mlm.dense.weight", 2, {d, d}, UNIT_WHOLE, false},
                            [HEAD_MLM_BIAS] = {"mlm.dense.bias", 1, {d}, UNIT_WHOLE, false},
                            [HEAD_MLM_LN_WEIGHT] = {"mlm.ln.weight", 1, {d}, UNIT_WHOLE, false},
                            [HEAD_MLM_LN_BIAS] = {"mlm.ln.bias", 1, {d}, UNIT_WHOLE, false},
                            [HEAD_POOLER_WEIGHT] = {"pooler.weight", 2, {d, d}, UNIT_WHOLE, false},
                            [HEAD_POOLER_BIAS] = {"pooler.bias", 1, {d}, UNIT_WHOLE, false},
                            [HEAD_ORDER_WEIGHT] = {"order.weight", 2, {d, 2}, UNIT_WHOLE, false},
                            [HEAD_ORDER_BIAS] = {"order.bias", 1, {2}, UNIT_WHOLE, false},
                            [HEAD_VOCAB_BIAS] = {"mlm.bias", 1, {m->vocab}, 0, true}},
    };

    memcpy(shapes, all[kind], (size_t)count[kind] * sizeof *shapes);
    return count[kind];
}

int vocabulary_padded(const struct model_shape *m, int tp)
{
    return (int)(round_up((size_t)m->vocab, (size_t)VOCAB_ALIGN * (size_t)tp) / (size_t)tp);
}

/* The padding rows directly follow a rank's rows of the vocabulary, so that wte is one matrix. A bias of the vocabulary
 * begins where the rest of the unit is a multiple of dp * UNIT_ALIGN. */
size_t unit_add(struct unit_size *size, const struct model_shape *m, const struct unit_tensor_shape *shape,
                const struct mesh *mesh)
{
    size_t elements = 1, offset;

    if (shape->vocabulary)
        unit_finish(size, mesh);
    for (int i = 0; i < shape->ndim; i++) {
        size_t all = (size_t)shape->shape[i], tp = (size_t)mesh->tp;

        elements *= i != shape->split   ? all
                    : shape->vocabulary ? (size_t)vocabulary_padded(m, mesh->tp)
                                        : (all + tp - 1) / tp;
    }
    offset = size->count;
    size->count += round_up(elements, UNIT_ALIGN);
    if (shape->split == UNIT_WHOLE)
        size->replicated = size->count;
    return offset;
}

void unit_finish(struct unit_size *size, const struct mesh *mesh)
{
    size->count = round_up(size->count, (size_t)mesh->dp * UNIT_ALIGN);
}

struct unit_size unit_size_of(const struct model_shape *m, enum unit_kind kind, const struct mesh *mesh)
{
    struct unit_tensor_shape shapes[UNIT_MAX_TENSORS];
    struct unit_size size = {0};
    int n = unit_tensor_shapes(m, kind, shapes);

    for (int i = 0; i < n; i++)
        unit_add(&size, m, &shapes[i], mesh);
    unit_finish(&size, mesh);
    return size;
}

size_t unit_shard(size_t count, int dp, int dp_rank, size_t *first)
{
    size_t each = count / (size_t)dp;

    *first = each * (size_t)dp_rank;
    return each;
}

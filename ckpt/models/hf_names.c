/* hf_names.c - names and shapes: the differences between Hugging Face's models and muster's. See hf.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/format/pieces.h"
#include "ckpt/models/hf_internal.h"

/* ---- MegatronBertForPreTraining ---------------------------------------------------------------------------------- */

/*
 * Names without ".weight" and ".bias". Both models have a norm before attention (attention.ln, ln_1), a norm before the
 * MLP (ln, ln_2), none after the embeddings, and one at the end (encoder.ln, ln_f), which the pooler and the masked
 * tokens' head follow.
 */
static const char *const bert_names[] = {
    [PART_WTE] = "bert.embeddings.word_embeddings",
    [PART_WPE] = "bert.embeddings.position_embeddings",
    [PART_WTT] = "bert.embeddings.token_type_embeddings",
    [PART_LN_1] = "attention.ln",
    [PART_QKV] = "attention.self.", /* query, key and value follow */
    [PART_ATTN_PROJ] = "attention.output.dense",
    [PART_LN_2] = "ln",
    [PART_FC] = "intermediate.dense",
    [PART_MLP_PROJ] = "output.dense",
    [PART_LN_F] = "bert.encoder.ln",
    [PART_MLM] = "cls.predictions.transform.dense",
    [PART_MLM_LN] = "cls.predictions.transform.LayerNorm",
    [PART_POOLER] = "bert.pooler.dense",
    [PART_ORDER] = "cls.seq_relationship",
    [PART_LOGITS] = "cls.predictions",
};

/* The tensors that one of a BERT's is for them, of a block if layer is not negative; returns how many: 1, or 3. Their
 * weights of products are [out, in]. */
static int name_bert(const struct model_tensor *row, int layer, const struct ckpt_tensor *ours,
                     struct hf_tensor *theirs)
{
    static const char *const parts[] = {"query", "key", "value"};
    const char *term = row->role == ROLE_BIAS ? ".bias" : ".weight";
    int count = row->part == PART_QKV ? 3 : 1;
    char prefix[40] = "";

    if (layer >= 0)
        snprintf(prefix, sizeof prefix, "bert.encoder.layer.%d.", layer);
    for (int i = 0; i < count; i++) {
        int ndim = ours->ndim - (count == 3);
        bool transposed = tensor_is_product(row) || row->role == ROLE_SAMPLE;
        uint64_t in = ours->shape[0], out = ours->shape[ours->ndim - 1];

        theirs[i].part = count == 3 ? i : -1;
        theirs[i].transposed = transposed;
        theirs[i].ndim = ndim;
        theirs[i].shape[0] = ndim == 1 || transposed ? out : in;
        theirs[i].shape[1] = ndim == 1 ? 1 : transposed ? in : out;
        snprintf(theirs[i].name, sizeof theirs->name, "%s%s%s%s", prefix, bert_names[row->part],
                 count == 3 ? parts[i] : "", term);
    }
    return count;
}

/* ---- the others -------------------------------------------------------------------------------------------------- */

/* A GPT-2's Q, K and V are on an axis of their own: [d, 3, d] and [3, d]. */
static int name_same(const struct model_tensor *row, const struct ckpt_tensor *ours, struct hf_tensor *theirs)
{
    bool apart = row->part == PART_QKV && !row->out_in;

    theirs->part = -1;
    theirs->ndim = ours->ndim - apart;
    theirs->shape[0] = ours->shape[0];
    theirs->shape[1] = theirs->ndim > 1 ? ours->shape[1] : 1;
    if (apart)
        theirs->shape[theirs->ndim - 1] *= ours->shape[theirs->ndim];
    snprintf(theirs->name, sizeof theirs->name, "%s", ours->name);
    return 1;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* The whole model's units have its tensors in order. */
static void add_tensor(struct hf_layout *layout, const struct hf_class *class, int unit, const struct unit_tensor *t)
{
    const struct units *units = layout->units;
    const struct ckpt_tensor *ours = &units->tensors[t->index];
    struct hf_tensor *theirs = layout->tensors + layout->count;
    int layer = unit < UNIT_BLOCK0 || unit == units_head(units) ? -1 : unit - UNIT_BLOCK0;
    int count = class->bert ? name_bert(&t->row, layer, ours, theirs) : name_same(&t->row, ours, theirs);

    for (int i = 0; i < count; i++)
        theirs[i].ours = t->index;
    layout->count += (size_t)count;
    layout->start[t->index + 1] = layout->count;
}

struct hf_layout *hf_layout_create(const struct hf_class *class, const struct model_shape *shape, struct error *err)
{
    struct hf_layout *layout = error_calloc(1, sizeof *layout, err);

    if (!layout || !(layout->units = units_create_whole(shape, err)) ||
        !(layout->tensors = error_calloc(3 * layout->units->ntensors, sizeof *layout->tensors, err)) ||
        !(layout->start = error_calloc(layout->units->ntensors + 1, sizeof *layout->start, err))) {
        hf_layout_destroy(layout);
        return NULL;
    }
    for (int u = 0; u < layout->units->nunits; u++)
        for (int i = 0; i < layout->units->units[u].ntensors; i++)
            add_tensor(layout, class, u, &layout->units->units[u].tensors[i]);
    return layout;
}

void hf_layout_destroy(struct hf_layout *layout)
{
    if (!layout)
        return;
    units_destroy(layout->units);
    free(layout->tensors);
    free(layout->start);
    free(layout);
}

uint64_t hf_tensor_elements(const struct hf_tensor *tensor)
{
    return box_elements(tensor->shape, tensor->ndim);
}

struct ckpt_piece hf_piece(const struct hf_layout *layout, const struct hf_tensor *tensor, uint64_t first,
                           uint64_t count)
{
    const struct ckpt_tensor *ours = &layout->units->tensors[tensor->ours];
    struct ckpt_piece piece = piece_of_tensor(tensor->ours, ours, first, count);
    int axis = tensor->transposed ? 1 : 0; /* that of Q, K and V */

    if (tensor->part >= 0) {
        piece.start[axis] = (uint64_t)tensor->part;
        piece.shape[axis] = 1;
    }
    if (tensor->transposed) {
        piece.start[ours->ndim - 1] = first / tensor->shape[1];
        piece.shape[ours->ndim - 1] = count / tensor->shape[1];
        piece.first = 0;
    }
    return piece;
}

void hf_name_nonfinite(struct hf_nonfinite *nonfinite, const struct hf_tensor *tensor, uint64_t element, float value)
{
    char place[64];

    if (tensor->ndim == 1)
        snprintf(place, sizeof place, "%" PRIu64, element);
    else
        snprintf(place, sizeof place, "%" PRIu64 ", %" PRIu64, element / tensor->shape[1], element % tensor->shape[1]);
    snprintf(nonfinite->first, sizeof nonfinite->first, "%s[%s] is %f", tensor->name, place, (double)value);
}

bool hf_is_buffer(const char *name)
{
    static const char *const ends[] = {"attn.bias", "attn.masked_bias", "self_attn.rotary_emb.inv_freq"};
    int layer, end = 0;

    if (strcmp(name, "bert.embeddings.position_ids") == 0)
        return true;
    if ((sscanf(name, "h.%9d.%n", &layer, &end) == 1 || sscanf(name, "model.layers.%9d.%n", &layer, &end) == 1) && end)
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
            if (strcmp(name + end, ends[i]) == 0)
                return true;
    return false;
}

/* hf_names.c - names and shapes: the differences between Hugging Face's models and muster's. See hf.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/format/pieces.h"
#include "ckpt/models/hf_internal.h"
#include "common/text.h"

/* ---- MegatronBertForPreTraining ---------------------------------------------------------------------------------- */

/*
 * Names without ".weight" and ".bias". Both models have a norm before attention (attention.ln, ln_1), a norm before the
 * MLP (ln, ln_2), none after the embeddings, and one at the end (encoder.ln, ln_f), which the pooler and the masked
 * tokens' head follow.
 */
static const struct bert_name {
    const char *ours, *theirs;
    bool linear; /* theirs is [out, in] */
} outside[] = {
    {"wte", "bert.embeddings.word_embeddings", false},
    {"wpe", "bert.embeddings.position_embeddings", false},
    {"wtt", "bert.embeddings.token_type_embeddings", false},
    {"ln_f", "bert.encoder.ln", false},
    {"mlm.dense", "cls.predictions.transform.dense", true},
    {"mlm.ln", "cls.predictions.transform.LayerNorm", false},
    {"mlm", "cls.predictions", false}, /* the bias of the logits */
    {"pooler", "bert.pooler.dense", true},
    {"order", "cls.seq_relationship", true},
};

static const struct bert_name in_block[] = {
    {"ln_1", "attention.ln", false},
    {"attn.c_attn", "attention.self.", true}, /* query, key and value follow */
    {"attn.c_proj", "attention.output.dense", true},
    {"ln_2", "ln", false},
    {"mlp.c_fc", "intermediate.dense", true},
    {"mlp.c_proj", "output.dense", true},
};

/* The tensors that one of a BERT's is for them; returns how many: 1, or 3. */
static int name_bert(const struct ckpt_tensor *ours, struct hf_tensor *theirs)
{
    static const char *const parts[] = {"query", "key", "value"};
    int layer, end = 0;
    bool block = sscanf(ours->name, "h.%d.%n", &layer, &end) == 1 && end > 0;
    const char *name = ours->name + end, *kind = strrchr(name, '.');
    const struct bert_name *row = block ? in_block : outside;
    char prefix[32] = "";
    int count;

    if (block)
        snprintf(prefix, sizeof prefix, "bert.encoder.layer.%d.", layer);
    /* Every tensor of units.c is in the tables. */
    while (strlen(row->ours) != (size_t)(kind - name) || strncmp(row->ours, name, (size_t)(kind - name)) != 0)
        row++;
    count = text_ends_with(row->theirs, "self.") ? 3 : 1;
    for (int i = 0; i < count; i++) {
        int ndim = ours->ndim - (count == 3);
        bool transposed = row->linear && ndim == 2;
        uint64_t in = ours->shape[0], out = ours->shape[ours->ndim - 1];

        theirs[i].part = count == 3 ? i : -1;
        theirs[i].transposed = transposed;
        theirs[i].ndim = ndim;
        theirs[i].shape[0] = ndim == 1 || transposed ? out : in;
        theirs[i].shape[1] = ndim == 1 ? 1 : transposed ? in : out;
        snprintf(theirs[i].name, sizeof theirs->name, "%s%s%s%s", prefix, row->theirs, count == 3 ? parts[i] : "",
                 kind);
    }
    return count;
}

/* ---- GPT2LMHeadModel --------------------------------------------------------------------------------------------- */

static int name_gpt(const struct ckpt_tensor *ours, struct hf_tensor *theirs)
{
    /* c_attn, [d, 3, d] and [3, d], has Q, K and V on an axis of their own. */
    bool apart = strstr(ours->name, ".attn.c_attn.") != NULL;

    theirs->part = -1;
    theirs->ndim = ours->ndim - apart;
    theirs->shape[0] = ours->shape[0];
    theirs->shape[1] = theirs->ndim > 1 ? ours->shape[1] : 1;
    if (apart)
        theirs->shape[theirs->ndim - 1] *= ours->shape[theirs->ndim];
    snprintf(theirs->name, sizeof theirs->name, "%s", ours->name);
    return 1;
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

struct hf_layout *hf_layout_create(const struct model_shape *shape, struct error *err)
{
    struct hf_layout *layout = error_calloc(1, sizeof *layout, err);

    if (!layout || !(layout->units = units_create_whole(shape, err)) ||
        !(layout->tensors = error_calloc(3 * layout->units->ntensors, sizeof *layout->tensors, err)) ||
        !(layout->start = error_calloc(layout->units->ntensors + 1, sizeof *layout->start, err))) {
        hf_layout_destroy(layout);
        return NULL;
    }
    for (size_t t = 0; t < layout->units->ntensors; t++) {
        struct hf_tensor *theirs = layout->tensors + layout->count;
        int count = (shape->kind == MODEL_BERT ? name_bert : name_gpt)(&layout->units->tensors[t], theirs);

        for (int i = 0; i < count; i++)
            theirs[i].ours = (uint32_t)t;
        layout->count += (size_t)count;
        layout->start[t + 1] = layout->count;
    }
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

const struct hf_twin *hf_twins(enum model_kind kind)
{
    static const struct hf_twin gpt[] = {{"lm_head.weight", "wte.weight"}, {NULL, NULL}};
    static const struct hf_twin bert[] = {{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
                                          {"cls.predictions.decoder.bias", "cls.predictions.bias"},
                                          {NULL, NULL}};

    return kind == MODEL_BERT ? bert : gpt;
}

bool hf_is_buffer(const char *name)
{
    int layer, end = 0;

    if (strcmp(name, "bert.embeddings.position_ids") == 0)
        return true;
    return sscanf(name, "h.%9d.attn.%n", &layer, &end) == 1 && end > 0 &&
           (strcmp(name + end, "bias") == 0 || strcmp(name + end, "masked_bias") == 0);
}

int hf_heads(struct model_shape *shape, const char *path, const char *source, int found, int given, struct error *err)
{
    shape->heads = found > 0 ? found : given;
    if (found > 0 && given > 0 && found != given)
        return error_set(err, CODE_USAGE, "%s: its %s has %d heads, --heads has %d; leave --heads out", path, source,
                         found, given);
    if (shape->heads < 1)
        return error_set(err, CODE_USAGE, "%s: missing --heads N, N dividing %d: its number of heads is in no %s", path,
                         shape->hidden, source);
    if (shape->hidden % shape->heads != 0)
        return error_set(err, found > 0 ? CODE_DATA : CODE_USAGE, "%s: %d heads do not divide its width of %d", path,
                         shape->heads, shape->hidden);
    return 0;
}

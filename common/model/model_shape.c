#include "common/model/model_shape.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define GPT2_SEQ_LENGTH 1024
#define GPT2_VOCAB      50257
#define BERT_SEQ_LENGTH 512
#define BERT_VOCAB      30522 /* of the published uncased WordPiece vocabulary */

const char *const model_kinds[] = {"gpt", "bert", NULL};
enum { GPT, BERT };

static const struct model_shape kinds[] = {
    [GPT] = {.objective = OBJECTIVE_CAUSAL},
    [BERT] = {.token_types = 2, .bidirectional = true, .objective = OBJECTIVE_MASKED},
};

void model_set_kind(struct model_shape *shape, int kind)
{
    const struct model_shape sizes = *shape;

    *shape = kinds[kind];
    memcpy(shape, &sizes, offsetof(struct model_shape, kv_heads)); /* those before it */
}

int model_check(const struct model_shape *m, struct error *err)
{
    const struct {
        bool has;
        const char *what;
    } unsupported[] = {
        {m->kv_heads && m->kv_heads != m->heads, "fewer heads of keys and values than of queries"},
        {m->no_positions, "no learned positions"},
        {m->no_biases, "no biases"},
        {m->untied, "a head of its own"},
    };

    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (unsupported[i].has)
            return error_set(err, CODE_CONFIG, "a model with %s is not supported", unsupported[i].what);
    return 0;
}

static const struct {
    const char *name;
    int kind, layers, hidden, heads, seq_length, vocab;
} presets[] = {
    {"gpt-tiny", GPT, 4, 128, 4, 128, 256}, /* bytes; a step takes milliseconds */
    {"gpt-125m", GPT, 12, 768, 12, GPT2_SEQ_LENGTH, GPT2_VOCAB},
    {"gpt-345m", GPT, 24, 1024, 16, GPT2_SEQ_LENGTH, GPT2_VOCAB},
    {"gpt-350m", GPT, 24, 1024, 16, GPT2_SEQ_LENGTH, GPT2_VOCAB}, /* both names are in use for GPT-2 medium */
    {"gpt-760m", GPT, 24, 1536, 12, GPT2_SEQ_LENGTH, GPT2_VOCAB},
    {"gpt-1b", GPT, 24, 2048, 16, GPT2_SEQ_LENGTH, GPT2_VOCAB},
    {"gpt-1.3b", GPT, 24, 2048, 32, GPT2_SEQ_LENGTH, GPT2_VOCAB},
    {"gpt-2.5b", GPT, 48, 2048, 16, GPT2_SEQ_LENGTH, GPT2_VOCAB},
    {"gpt-3b", GPT, 32, 2560, 20, GPT2_SEQ_LENGTH, GPT2_VOCAB},
    {"gpt-5.8b", GPT, 72, 2560, 32, GPT2_SEQ_LENGTH, GPT2_VOCAB},
    {"gpt-7b", GPT, 32, 4096, 32, GPT2_SEQ_LENGTH, GPT2_VOCAB},
    {"gpt-13b", GPT, 40, 5120, 40, GPT2_SEQ_LENGTH, GPT2_VOCAB},
    {"gpt-181b", GPT, 72, 14336, 64, GPT2_SEQ_LENGTH, GPT2_VOCAB},
    {"bert-tiny", BERT, 4, 128, 4, 128, 260}, /* bytes and the four special tokens */
    {"bert-345m", BERT, 24, 1024, 16, BERT_SEQ_LENGTH, BERT_VOCAB},
};

#define PRESET_COUNT (sizeof presets / sizeof presets[0])

int model_preset(struct model_shape *shape, int *kind, const char *name, struct error *err)
{
    char list[256] = "";
    size_t used = 0;

    for (size_t i = 0; i < PRESET_COUNT; i++) {
        if (strcmp(presets[i].name, name) == 0) {
            *kind = presets[i].kind;
            *shape = (struct model_shape){.layers = presets[i].layers,
                                          .hidden = presets[i].hidden,
                                          .heads = presets[i].heads,
                                          .seq_length = presets[i].seq_length,
                                          .vocab = presets[i].vocab};
            model_set_kind(shape, *kind);
            return 0;
        }
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", presets[i].name);
    }
    return error_set(err, CODE_CONFIG, "unknown preset \"%s\"; the presets are: %s", name, list);
}

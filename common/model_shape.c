#include <stdio.h>
#include <string.h>

#include "common/job.h"

#define GPT2_SEQ_LENGTH 1024
#define GPT2_VOCAB      50257
#define BERT_SEQ_LENGTH 512
#define BERT_VOCAB      30522 /* of the published uncased WordPiece vocabulary */

static const struct {
    const char *name;
    struct model_shape shape; /* layers, hidden, heads, seq_length, vocab, kind */
} presets[] = {
    {"gpt-tiny", {4, 128, 4, 128, 256, MODEL_GPT}}, /* bytes; a step takes milliseconds */
    {"gpt-125m", {12, 768, 12, GPT2_SEQ_LENGTH, GPT2_VOCAB, MODEL_GPT}},
    {"gpt-345m", {24, 1024, 16, GPT2_SEQ_LENGTH, GPT2_VOCAB, MODEL_GPT}},
    {"gpt-350m", {24, 1024, 16, GPT2_SEQ_LENGTH, GPT2_VOCAB, MODEL_GPT}}, /* both names are in use for GPT-2 medium */
    {"gpt-760m", {24, 1536, 12, GPT2_SEQ_LENGTH, GPT2_VOCAB, MODEL_GPT}},
    {"gpt-1b", {24, 2048, 16, GPT2_SEQ_LENGTH, GPT2_VOCAB, MODEL_GPT}},
    {"gpt-1.3b", {24, 2048, 32, GPT2_SEQ_LENGTH, GPT2_VOCAB, MODEL_GPT}},
    {"gpt-2.5b", {48, 2048, 16, GPT2_SEQ_LENGTH, GPT2_VOCAB, MODEL_GPT}},
    {"gpt-3b", {32, 2560, 20, GPT2_SEQ_LENGTH, GPT2_VOCAB, MODEL_GPT}},
    {"gpt-5.8b", {72, 2560, 32, GPT2_SEQ_LENGTH, GPT2_VOCAB, MODEL_GPT}},
    {"gpt-7b", {32, 4096, 32, GPT2_SEQ_LENGTH, GPT2_VOCAB, MODEL_GPT}},
    {"gpt-13b", {40, 5120, 40, GPT2_SEQ_LENGTH, GPT2_VOCAB, MODEL_GPT}},
    {"gpt-181b", {72, 14336, 64, GPT2_SEQ_LENGTH, GPT2_VOCAB, MODEL_GPT}},
    {"bert-tiny", {4, 128, 4, 128, 260, MODEL_BERT}}, /* bytes and the four special tokens */
    {"bert-345m", {24, 1024, 16, BERT_SEQ_LENGTH, BERT_VOCAB, MODEL_BERT}},
};

#define PRESET_COUNT (sizeof presets / sizeof presets[0])

int model_preset(struct model_shape *shape, const char *name, struct error *err)
{
    char list[256] = "";
    size_t used = 0;

    for (size_t i = 0; i < PRESET_COUNT; i++) {
        if (strcmp(presets[i].name, name) == 0) {
            *shape = presets[i].shape;
            return 0;
        }
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", presets[i].name);
    }
    return error_set(err, CODE_CONFIG, "unknown preset \"%s\"; the presets are: %s", name, list);
}

uint64_t model_parameters(const struct model_shape *shape)
{
    uint64_t l = (uint64_t)shape->layers, d = (uint64_t)shape->hidden;
    uint64_t s = (uint64_t)shape->seq_length, v = (uint64_t)shape->vocab;

    uint64_t n = v * d + s * d + l * (12 * d * d + 13 * d) + 2 * d;

    if (shape->kind == MODEL_BERT)
        n += 2 * d + (d * d + d + 2 * d + v) + (d * d + d) + (2 * d + 2);
    return n;
}

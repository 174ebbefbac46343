#include "common/model/model_shape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const model_kinds[] = {"gpt", "bert", "llama", NULL};
const char *const model_norms[] = {"layer", "rms", NULL};
const char *const model_activations[] = {"gelu", "swiglu", NULL};
const char *const model_position_names[] = {"learned", "rotary", NULL};
const char *const model_rope_scalings[] = {"none", "llama3", NULL};
const char *const model_bias_names[] = {"all", "qkv", "none", NULL};

enum { GPT, BERT, LLAMA };

static const struct model_shape kinds[] = {
    [GPT] = {0}, [BERT] = {BERT_FIELDS}, [LLAMA] = {LLAMA_FIELDS, .biases = BIASES_NONE}};

void model_set_kind(struct model_shape *shape, int kind)
{
    const struct model_shape sizes = *shape;

    *shape = kinds[kind];
    memcpy(shape, &sizes, offsetof(struct model_shape, kv_heads)); /* those before it */
}

int model_kind_of(const struct model_shape *m)
{
    int kind = LLAMA;

    while (kind > GPT && (kinds[kind].layout != m->layout || kinds[kind].objective != m->objective))
        kind--;
    return kind;
}

struct model_shape model_resolve(const struct model_shape *m)
{
    bool learned = m->positions == POSITIONS_LEARNED;
    struct model_shape all = *m;

    all.kv_heads = model_kv_heads(m);
    all.head_size = model_head_size(m);
    all.inner = model_inner(m);
    all.max_positions = learned ? m->seq_length : model_max_positions(m);
    all.norm_eps = model_norm_eps(m);
    all.rope_theta = learned ? 0 : m->rope_theta > 0 ? m->rope_theta : 1e4;
    all.rope_scaling = learned ? ROPE_SCALING_NONE : m->rope_scaling;
    if (all.rope_scaling == ROPE_SCALING_NONE)
        all.rope_factor = all.rope_low = all.rope_high = all.rope_original = 0;
    return all;
}

/* ---- presets: published sizes ------------------------------------------------------------------------------------ */

#define SIZES(l, d, h, s, v) .layers = l, .hidden = d, .heads = h, .seq_length = s, .vocab = v
#define GPT2(l, d, h)        SIZES(l, d, h, 1024, 50257)
#define LLAMA_BLOCK(kv, f)   LLAMA_FIELDS, .kv_heads = kv, .inner = f
#define PLAIN(eps, theta)    .biases = BIASES_NONE, .norm_eps = eps, .rope_theta = theta
#define QWEN2                .biases = BIASES_QKV, .norm_eps = 1e-6, .rope_theta = 1e6
#define QWEN3                PLAIN(1e-6, 1e6), .qk_norm = true, .head_size = 128, .max_positions = 40960
#define LLAMA3(factor)                                                                                                 \
    PLAIN(1e-5, 5e5), .rope_scaling = ROPE_SCALING_LLAMA3, .rope_factor = factor, .rope_low = 1, .rope_high = 4,       \
                      .rope_original = 8192, .max_positions = 131072

static const struct {
    const char *name;
    int kind;
    struct model_shape shape;
} presets[] = {
    {"gpt-tiny", GPT, {SIZES(4, 128, 4, 128, 256)}}, /* bytes; a step takes milliseconds */
    {"gpt-125m", GPT, {GPT2(12, 768, 12)}},
    {"gpt-345m", GPT, {GPT2(24, 1024, 16)}},
    {"gpt-350m", GPT, {GPT2(24, 1024, 16)}}, /* both names are in use for GPT-2 medium */
    {"gpt-760m", GPT, {GPT2(24, 1536, 12)}},
    {"gpt-1b", GPT, {GPT2(24, 2048, 16)}},
    {"gpt-1.3b", GPT, {GPT2(24, 2048, 32)}},
    {"gpt-2.5b", GPT, {GPT2(48, 2048, 16)}},
    {"gpt-3b", GPT, {GPT2(32, 2560, 20)}},
    {"gpt-5.8b", GPT, {GPT2(72, 2560, 32)}},
    {"gpt-7b", GPT, {GPT2(32, 4096, 32)}},
    {"gpt-13b", GPT, {GPT2(40, 5120, 40)}},
    {"gpt-181b", GPT, {GPT2(72, 14336, 64)}},
    {"bert-tiny", BERT, {SIZES(4, 128, 4, 128, 260), BERT_FIELDS}},      /* bytes and the four special tokens */
    {"bert-345m", BERT, {SIZES(24, 1024, 16, 512, 30522), BERT_FIELDS}}, /* the uncased WordPiece vocabulary */
    {"llama-tiny", LLAMA, {SIZES(8, 128, 8, 128, 256), LLAMA_BLOCK(4, 352), PLAIN(1e-5, 1e4)}}, /* bytes */
    {"smollm2-135m",
     LLAMA,
     {SIZES(30, 576, 9, 2048, 49152), LLAMA_BLOCK(3, 1536), PLAIN(1e-5, 1e5), .max_positions = 8192}},
    {"smollm2-360m",
     LLAMA,
     {SIZES(32, 960, 15, 2048, 49152), LLAMA_BLOCK(5, 2560), PLAIN(1e-5, 1e5), .max_positions = 8192}},
    {"smollm2-1.7b",
     LLAMA,
     {SIZES(24, 2048, 32, 2048, 49152), LLAMA_BLOCK(32, 8192), PLAIN(1e-5, 1.3e5), .max_positions = 8192}},
    {"tinyllama-1.1b",
     LLAMA,
     {SIZES(22, 2048, 32, 2048, 32000), LLAMA_BLOCK(4, 5632), PLAIN(1e-5, 1e4), .untied = true}},
    {"llama-2-7b", LLAMA, {SIZES(32, 4096, 32, 4096, 32000), LLAMA_BLOCK(32, 11008), PLAIN(1e-5, 1e4), .untied = true}},
    {"llama-3.2-1b", LLAMA, {SIZES(16, 2048, 32, 8192, 128256), LLAMA_BLOCK(8, 8192), LLAMA3(32)}},
    {"llama-3.2-3b", LLAMA, {SIZES(28, 3072, 24, 8192, 128256), LLAMA_BLOCK(8, 8192), LLAMA3(32)}},
    {"llama-3.1-8b", LLAMA, {SIZES(32, 4096, 32, 8192, 128256), LLAMA_BLOCK(8, 14336), LLAMA3(8), .untied = true}},
    {"llama-3.1-70b", LLAMA, {SIZES(80, 8192, 64, 8192, 128256), LLAMA_BLOCK(8, 28672), LLAMA3(8), .untied = true}},
    {"llama-3.1-405b", LLAMA, {SIZES(126, 16384, 128, 8192, 128256), LLAMA_BLOCK(8, 53248), LLAMA3(8), .untied = true}},
    {"mistral-7b",
     LLAMA,
     {SIZES(32, 4096, 32, 8192, 32000), LLAMA_BLOCK(8, 14336), PLAIN(1e-5, 1e4), .untied = true, .window = 4096,
      .max_positions = 32768}},
    {"qwen2.5-0.5b", LLAMA, {SIZES(24, 896, 14, 4096, 151936), LLAMA_BLOCK(2, 4864), QWEN2, .max_positions = 32768}},
    {"qwen2.5-7b",
     LLAMA,
     {SIZES(28, 3584, 28, 4096, 152064), LLAMA_BLOCK(4, 18944), QWEN2, .untied = true, .max_positions = 131072}},
    {"qwen3-0.6b", LLAMA, {SIZES(28, 1024, 16, 4096, 151936), LLAMA_BLOCK(8, 3072), QWEN3}},
    {"qwen3-8b", LLAMA, {SIZES(36, 4096, 32, 4096, 151936), LLAMA_BLOCK(8, 12288), QWEN3, .untied = true}},
};

#define PRESET_COUNT (sizeof presets / sizeof presets[0])

int model_preset(struct model_shape *shape, int *kind, const char *name, struct error *err)
{
    char list[512] = "";
    size_t used = 0;

    for (size_t i = 0; i < PRESET_COUNT; i++) {
        if (strcmp(presets[i].name, name) == 0) {
            *kind = presets[i].kind;
            *shape = presets[i].shape;
            return 0;
        }
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", presets[i].name);
    }
    return error_set(err, CODE_CONFIG, "unknown preset \"%s\"; the presets are: %s", name, list);
}

/* ---- what the fields mean together ------------------------------------------------------------------------------- */

int model_check(const struct model_shape *m, struct error *err)
{
    bool packed = m->layout == LAYOUT_GPT2, rotary = m->positions == POSITIONS_ROTARY;
    bool scaled = m->rope_scaling == ROPE_SCALING_LLAMA3;
    const struct {
        bool wrong;
        const char *what;
    } rules[] = {
        {m->heads % model_kv_heads(m) != 0, "model.kv_heads must divide model.heads"},
        {packed && m->kv_heads && m->kv_heads != m->heads, "fewer kv_heads than heads need model.kind = \"llama\""},
        {packed && m->activation == ACTIVATION_SWIGLU, "model.activation = \"swiglu\" needs model.kind = \"llama\""},
        {packed && m->qk_norm, "model.qk_norm needs model.kind = \"llama\""},
        {m->objective == OBJECTIVE_MASKED && (rotary || m->norm != NORM_LAYER || m->biases != BIASES_ALL),
         "a BERT needs model.positions = \"learned\", norm = \"layer\" and biases = \"all\""},
        {rotary && model_head_size(m) % 2 != 0, "rotary positions need an even head size"},
        {scaled && !(m->rope_factor >= 1 && m->rope_low > 0 && m->rope_high > m->rope_low && m->rope_original > 0),
         "model.rope_scaling = \"llama3\" needs rope_factor, rope_low < rope_high and rope_original"},
        {m->window && m->bidirectional, "model.window is for models that predict the next token"},
    };

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].wrong)
            return error_set(err, CODE_CONFIG, "%s", rules[i].what);
    return 0;
}

int model_largest_tp(const struct model_shape *m, int most)
{
    while (most > 1 && model_kv_heads(m) % most != 0)
        most--;
    return most;
}

static double rope_frequency(const struct model_shape *m, int i)
{
    double theta = m->rope_theta > 0 ? m->rope_theta : 1e4, f = pow(theta, -2.0 * i / model_head_size(m));
    double turns = m->rope_original * f / (2 * M_PI); /* within the original length */
    double mix = (turns - m->rope_low) / (m->rope_high - m->rope_low);

    if (m->rope_scaling == ROPE_SCALING_NONE || turns > m->rope_high)
        return f;
    return turns < m->rope_low ? f / m->rope_factor : (1 - mix) * f / m->rope_factor + mix * f;
}

void model_angles(const struct model_shape *m, float *angles)
{
    int half = model_head_size(m) / 2;

    for (int i = 0; i < half; i++) {
        double f = rope_frequency(m, i);

        for (int p = 0; p < m->seq_length; p++) {
            angles[(size_t)p * 2 * (size_t)half + (size_t)i] = (float)cos(p * f);
            angles[(size_t)p * 2 * (size_t)half + (size_t)(half + i)] = (float)sin(p * f);
        }
    }
}

/* hf_classes.c - the classes of transformers that muster has, as data. See hf_internal.h. */
#include <stdio.h>
#include <string.h>

#include "ckpt/models/hf_internal.h"

#define KEY(name, other_name, kind, member)                                                                            \
    {                                                                                                                  \
        name, other_name, kind, offsetof(struct job, member)                                                           \
    }
#define LLAMA_KEYS                                                                                                     \
    KEY("hidden_size", NULL, HF_SIZE, model.hidden), KEY("num_hidden_layers", NULL, HF_SIZE, model.layers),            \
        KEY("num_attention_heads", NULL, HF_SIZE, model.heads),                                                        \
        KEY("num_key_value_heads", NULL, HF_SIZE_0, model.kv_heads),                                                   \
        KEY("head_dim", NULL, HF_SIZE_0, model.head_size), KEY("intermediate_size", NULL, HF_SIZE, model.inner),       \
        KEY("vocab_size", NULL, HF_SIZE, model.vocab),                                                                 \
        KEY("max_position_embeddings", NULL, HF_SIZE, model.max_positions),                                            \
        KEY("rms_norm_eps", NULL, HF_NUMBER, model.norm_eps), KEY("tie_word_embeddings", NULL, HF_TIED, model.untied), \
        KEY("attention_dropout", NULL, HF_WRITTEN, dropout.attention)
#define LLAMA_CLASS                                                                                                    \
    .activation = "hidden_act", .absent = "silu", .written = "silu", .synonyms = {"silu", "swish"},                    \
    .twins = {{"lm_head.weight", "model.embed_tokens.weight"}}, .end = -1
#define LLAMA_SHAPE(l, d, h, f, v) /* of a missing key */                                                              \
    LLAMA_FIELDS, .layers = l, .hidden = d, .heads = h, .inner = f, .vocab = v, .norm_eps = 1e-6, .untied = true
#define GELU_TANH                                                                                                      \
    {                                                                                                                  \
        "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate"                                                  \
    }

static const char other_attention[] = "another attention cannot be imported";
static const char own_head[] = "a head of its own cannot be imported";

/* What transformers' configurations say. Of two classes that have a model, the first one is exported. */
static const struct hf_class classes[] = {
    {.model_type = "gpt2",
     .name = "GPT2LMHeadModel",
     .family = "GPT2",
     .shape = {.layers = 12, .hidden = 768, .heads = 12, .seq_length = 1024, .vocab = 50257, .norm_eps = 1e-5},
     .activation = "activation_function",
     .absent = "gelu_new",
     .written = "gelu_new",
     .synonyms = GELU_TANH,
     .keys = {KEY("n_embd", "hidden_size", HF_SIZE, model.hidden),
              KEY("n_layer", "num_hidden_layers", HF_SIZE, model.layers),
              KEY("n_positions", "max_position_embeddings", HF_SIZE, model.seq_length),
              KEY("vocab_size", NULL, HF_SIZE, model.vocab), KEY("n_head", "num_attention_heads", HF_SIZE, model.heads),
              KEY("n_inner", NULL, HF_SIZE_0, model.inner), KEY("layer_norm_epsilon", NULL, HF_NUMBER, model.norm_eps),
              KEY("embd_pdrop", NULL, HF_WRITTEN, dropout.hidden), KEY("resid_pdrop", NULL, HF_WRITTEN, dropout.hidden),
              KEY("attn_pdrop", NULL, HF_WRITTEN, dropout.attention)},
     .fixed = {{"tie_word_embeddings", true, NULL, own_head},
               {"scale_attn_weights", true, NULL, other_attention},
               {"scale_attn_by_inverse_layer_idx", false, NULL, other_attention},
               {"add_cross_attention", false, NULL, other_attention}},
     .prefixed = true,
     .twins = {{"lm_head.weight", "wte.weight"}},
     .end = 50256},
    {.model_type = "megatron-bert",
     .name = "MegatronBertForPreTraining",
     .family = "MegatronBert",
     .shape = {BERT_FIELDS, .layers = 24, .hidden = 1024, .heads = 16, .seq_length = 512, .vocab = 29056, .inner = 4096,
               .norm_eps = 1e-12},
     .activation = "hidden_act",
     .absent = "gelu",
     .written = "gelu_new",
     .synonyms = GELU_TANH,
     .keys = {KEY("hidden_size", NULL, HF_SIZE, model.hidden), KEY("num_hidden_layers", NULL, HF_SIZE, model.layers),
              KEY("max_position_embeddings", NULL, HF_SIZE, model.seq_length),
              KEY("vocab_size", NULL, HF_SIZE, model.vocab), KEY("num_attention_heads", NULL, HF_SIZE, model.heads),
              KEY("intermediate_size", NULL, HF_SIZE, model.inner),
              KEY("type_vocab_size", NULL, HF_SIZE, model.token_types),
              KEY("layer_norm_eps", NULL, HF_NUMBER, model.norm_eps),
              KEY("hidden_dropout_prob", NULL, HF_WRITTEN, dropout.hidden),
              KEY("attention_probs_dropout_prob", NULL, HF_WRITTEN, dropout.attention)},
     .fixed = {{"tie_word_embeddings", true, NULL, own_head},
               {"is_decoder", false, NULL, other_attention},
               {"add_cross_attention", false, NULL, other_attention},
               {"position_embedding_type", true, "absolute", "other positions cannot be imported"}},
     .bert = true,
     .twins = {{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
               {"cls.predictions.decoder.bias", "cls.predictions.bias"}},
     .end = -1},
    {.model_type = "llama",
     .name = "LlamaForCausalLM",
     .family = "Llama",
     .shape = {LLAMA_SHAPE(32, 4096, 32, 11008, 32000), .max_positions = 2048, .biases = BIASES_NONE},
     .whole_heads = true,
     LLAMA_CLASS,
     .keys = {LLAMA_KEYS, KEY("attention_bias", "mlp_bias", HF_BIASES, model.biases)}},
    {.model_type = "mistral",
     .name = "MistralForCausalLM",
     .family = "Mistral",
     .shape = {LLAMA_SHAPE(32, 4096, 32, 14336, 32000), .kv_heads = 8, .max_positions = 131072, .window = 4096,
               .biases = BIASES_NONE},
     LLAMA_CLASS,
     .keys = {LLAMA_KEYS, KEY("sliding_window", NULL, HF_SIZE_0, model.window)}},
    {.model_type = "qwen2",
     .name = "Qwen2ForCausalLM",
     .family = "Qwen2",
     .shape = {LLAMA_SHAPE(32, 4096, 32, 22016, 151936), .kv_heads = 32, .max_positions = 32768, .window = 4096,
               .biases = BIASES_QKV},
     LLAMA_CLASS,
     .keys = {LLAMA_KEYS, KEY("sliding_window", NULL, HF_WINDOW, model.window)}},
    {.model_type = "qwen3",
     .name = "Qwen3ForCausalLM",
     .family = "Qwen3",
     .shape = {LLAMA_SHAPE(32, 4096, 32, 22016, 151936), .kv_heads = 32, .head_size = 128, .max_positions = 32768,
               .window = 4096, .biases = BIASES_NONE, .qk_norm = true},
     LLAMA_CLASS,
     .keys = {LLAMA_KEYS, KEY("sliding_window", NULL, HF_WINDOW, model.window)},
     .fixed = {{"attention_bias", false, NULL, "biases of attention alone cannot be imported"}}},
};
enum { CLASSES = sizeof classes / sizeof *classes };

/* Models that people have, and what sets them apart. */
static const struct {
    const char *model_type, *has;
} others[] = {
    {"bert", "norms follow the residual sums; muster's BERT has its norms before attention and MLP: import a "
             "\"megatron-bert\" (MegatronBertForPreTraining)"},
    {"olmo2", "norms follow attention and MLP, and cover all heads at once"},
    {"granite", "embeddings, residual sums, attention and logits are multiplied by factors of their own"},
    {"phi3", "Q, K and V are one tensor, and so are gate and up, and whose rotations may be scaled by longrope"},
    {"gemma", "norms multiply by 1 + w, and whose embeddings are scaled"},
    {"gemma2", "norms multiply by 1 + w, and whose logits are capped"},
    {"gemma3", "norms multiply by 1 + w, and whose layers differ in window and rope_theta"},
    {"gemma3_text", "norms multiply by 1 + w, and whose layers differ in window and rope_theta"},
};

static int fail_type(const char *type, struct error *err)
{
    char list[160] = "";

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(type, others[i].model_type) == 0)
            return error_set(err, CODE_DATA, "model_type is \"%s\", whose %s", type, others[i].has);
    for (int i = 0; i < CLASSES; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", classes[i].model_type);
    return error_set(err, CODE_DATA, "model_type is \"%.40s\"; the ones that can be imported are %s", type, list);
}

/* By model_type; where that is missing, by the class that wrote the model; a config.json with neither is a GPT-2's. */
const struct hf_class *hf_class_find(json_t *config, struct error *err)
{
    json_t *type = json_object_get(config, "model_type");
    json_t *class = json_array_get(json_object_get(config, "architectures"), 0);
    const char *type_name = json_is_string(type) ? json_string_value(type) : "";
    const char *class_name = json_is_string(class) ? json_string_value(class) : "";

    for (const struct hf_class *c = classes; c < classes + CLASSES; c++)
        if (type ? strcmp(type_name, c->model_type) == 0
                 : !class || strncmp(class_name, c->family, strlen(c->family)) == 0)
            return c;
    if (type)
        fail_type(type_name, err);
    else
        error_set(err, CODE_DATA, "architectures has \"%.60s\", and there is no model_type", class_name);
    return NULL;
}

/* ---- of a model -------------------------------------------------------------------------------------------------- */

struct hf_differences {
    char first[160];
    int count;
};

static void note_difference(const char *path, const char *theirs, const char *ours, void *arg)
{
    struct hf_differences *differences = arg;

    if (differences->count++ == 0)
        snprintf(differences->first, sizeof differences->first, "%s = %s instead of %s", path, theirs, ours);
}

/* The model of that class that is most like this one: it takes over all fields that have keys. */
static struct model_shape take_keys(const struct hf_class *class, const struct model_shape *shape)
{
    struct job like = {.model = class->shape}, job = {.model = *shape};

    like.model.seq_length = shape->seq_length; /* a Llama's job chooses it */
    if (class->shape.positions == POSITIONS_ROTARY) {
        like.model.rope_theta = shape->rope_theta;
        like.model.rope_scaling = shape->rope_scaling;
        like.model.rope_factor = shape->rope_factor;
        like.model.rope_low = shape->rope_low;
        like.model.rope_high = shape->rope_high;
        like.model.rope_original = shape->rope_original;
    }
    for (const struct hf_key *key = class->keys; key->key; key++) {
        size_t size = key->type == HF_TIED ? sizeof(bool) : key->type == HF_NUMBER ? sizeof(double) : sizeof(int);

        if (key->type != HF_WRITTEN && (key->type != HF_BIASES || shape->biases != BIASES_QKV))
            memcpy((char *)&like + key->field, (const char *)&job + key->field, size);
    }
    return like.model;
}

const struct hf_class *hf_class_for(const struct model_shape *shape, struct error *err)
{
    struct hf_differences least = {.count = 0};
    const struct hf_class *best = NULL;

    for (const struct hf_class *class = classes; class < classes + CLASSES; class ++) {
        struct model_shape like = take_keys(class, shape);
        struct hf_differences differences = {.count = 0};

        if (class->whole_heads && shape->hidden % shape->heads != 0)
            continue;
        job_each_model_difference(&like, shape, note_difference, &differences);
        if (differences.count == 0)
            return class;
        if (!best || differences.count < least.count) {
            best = class;
            least = differences;
        }
    }
    error_set(err, CODE_CONFIG, "transformers has no such model: the nearest, %s, has %s", best->name, least.first);
    return NULL;
}

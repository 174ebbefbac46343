/* hf_config.c - Hugging Face's config.json: what it must have for an import, and what an export has. */
#include <math.h>
#include <string.h>

#include "ckpt/models/hf_internal.h"

/* ---- import ------------------------------------------------------------------------------------------------------ */

/* Flags, and the value that each must have, which is also that of a missing key. */
struct flag {
    const char *key;
    bool value;
    const char *why;
};

/* A size: its key, a second name that counts more, and the value of a missing key (transformers' default). */
struct size {
    const char *key, *alias;
    int absent;
};

enum { SIZE_HIDDEN, SIZE_LAYERS, SIZE_SEQ, SIZE_VOCAB, SIZE_HEADS, SIZES };

/* What transformers' GPT2Config and MegatronBertConfig say, in the order of the first of model_kinds. */
static const struct config_rules {
    const char *model_type, *architecture;
    const char *activation, *absent_activation;
    const char *epsilon;
    double absent_epsilon;
    struct size sizes[SIZES];
    const char *inner; /* the MLP's width; null is model_inner */
    int absent_inner;  /* 0: null */
    struct flag flags[6];
} rules[] = {
    {"gpt2",
     "GPT2",
     "activation_function",
     "gelu_new",
     "layer_norm_epsilon",
     1e-5,
     {[SIZE_HIDDEN] = {"n_embd", "hidden_size", 768},
      [SIZE_LAYERS] = {"n_layer", "num_hidden_layers", 12},
      [SIZE_SEQ] = {"n_positions", "max_position_embeddings", 1024},
      [SIZE_VOCAB] = {"vocab_size", NULL, 50257},
      [SIZE_HEADS] = {"n_head", "num_attention_heads", 12}},
     "n_inner",
     0,
     {{"tie_word_embeddings", true, "a head of its own cannot be imported"},
      {"scale_attn_weights", true, "another attention cannot be imported"},
      {"scale_attn_by_inverse_layer_idx", false, "another attention cannot be imported"},
      {"add_cross_attention", false, "another attention cannot be imported"}}},
    {"megatron-bert",
     "MegatronBert",
     "hidden_act",
     "gelu",
     "layer_norm_eps",
     1e-12,
     {[SIZE_HIDDEN] = {"hidden_size", NULL, 1024},
      [SIZE_LAYERS] = {"num_hidden_layers", NULL, 24},
      [SIZE_SEQ] = {"max_position_embeddings", NULL, 512},
      [SIZE_VOCAB] = {"vocab_size", NULL, 29056},
      [SIZE_HEADS] = {"num_attention_heads", NULL, 16}},
     "intermediate_size",
     4096,
     {{"tie_word_embeddings", true, "a head of its own cannot be imported"},
      {"is_decoder", false, "another attention cannot be imported"},
      {"add_cross_attention", false, "another attention cannot be imported"}}},
};

/* transformers tests a flag by Python's rule: null and 0 are false, any other number is true. */
static bool has_truth(json_t *value, bool truth)
{
    if (json_is_boolean(value) || json_is_null(value))
        return json_is_true(value) == truth;
    return json_is_number(value) && (json_number_value(value) != 0) == truth;
}

static int check_flags(json_t *config, const struct config_rules *rule, struct error *err)
{
    for (const struct flag *flag = rule->flags; flag->key; flag++) {
        json_t *value = json_object_get(config, flag->key);

        if (value && !has_truth(value, flag->value))
            return error_set(err, CODE_DATA, "%s must be %s: %s", flag->key, flag->value ? "true" : "false", flag->why);
    }
    return 0;
}

/* Names of the approximation of GELU by tanh, and how they are written. */
static int check_activation(json_t *config, const struct config_rules *rule, struct error *err)
{
    static const char *const tanh_gelu[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate"};
    json_t *value = json_object_get(config, rule->activation);
    const char *name = !value ? rule->absent_activation : json_is_string(value) ? json_string_value(value) : "";

    for (size_t i = 0; i < sizeof tanh_gelu / sizeof *tanh_gelu; i++)
        if (strcmp(name, tanh_gelu[i]) == 0)
            return 0;
    return error_set(err, CODE_DATA, "%s is %s\"%.40s\", must be \"gelu_new\": other activations cannot be imported",
                     rule->activation, value ? "" : "missing, which means ", name);
}

static int check_epsilon(json_t *config, const struct config_rules *rule, struct error *err)
{
    json_t *value = json_object_get(config, rule->epsilon);
    double epsilon = value ? json_number_value(value) : rule->absent_epsilon;

    if (value && !json_is_number(value))
        return error_set(err, CODE_DATA, "%s must be a number", rule->epsilon);
    if (fabs(epsilon - HF_EPSILON) > 1e-9)
        return error_set(err, CODE_DATA, "%s is %s%g, must be %g", rule->epsilon, value ? "" : "missing, which means ",
                         epsilon, HF_EPSILON);
    return 0;
}

/* Keys that change the model and that no muster model has. */
static int check_strangers(json_t *config, struct error *err)
{
    static const struct {
        const char *key, *why;
    } strangers[] = {
        {"quantization_config", "quantized weights cannot be imported; save the model with plain ones"},
        {"pruned_heads", "a model with pruned heads cannot be imported"},
        {"auto_map", "a model with Python code of its own cannot be imported"},
    };

    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        json_t *value = json_object_get(config, strangers[i].key);

        if (value && !json_is_null(value) && !(json_is_object(value) && json_object_size(value) == 0))
            return error_set(err, CODE_DATA, "has %s: %s", strangers[i].key, strangers[i].why);
    }
    return 0;
}

/* By model_type; where that is missing, by the class that wrote the model; a config.json with neither is a GPT-2's. */
static int find_kind(json_t *config, int *kind, struct error *err)
{
    json_t *type = json_object_get(config, "model_type");
    json_t *class = json_array_get(json_object_get(config, "architectures"), 0);
    const char *type_name = json_is_string(type) ? json_string_value(type) : "";
    const char *class_name = json_is_string(class) ? json_string_value(class) : "";

    for (*kind = 0; *kind < (int)(sizeof rules / sizeof *rules); ++*kind)
        if (type ? strcmp(type_name, rules[*kind].model_type) == 0
                 : !class || strncmp(class_name, rules[*kind].architecture, strlen(rules[*kind].architecture)) == 0)
            return 0;
    if (!type)
        return error_set(err, CODE_DATA, "architectures has \"%.60s\", must be a GPT2 or MegatronBert class",
                         class_name);
    if (strcmp(type_name, "bert") == 0)
        return error_set(err, CODE_DATA,
                         "model_type is \"bert\", whose norms follow the residual sums; muster's BERT has its norms "
                         "before attention and MLP: import a \"megatron-bert\" (MegatronBertForPreTraining)");
    return error_set(err, CODE_DATA, "model_type is \"%.40s\", must be \"gpt2\" or \"megatron-bert\"", type_name);
}

int hf_config_check_type(json_t *config, struct model_shape *shape, struct error *err)
{
    json_t *positions = json_object_get(config, "position_embedding_type");
    int kind;

    if (find_kind(config, &kind, err) < 0 || check_strangers(config, err) < 0 ||
        check_activation(config, &rules[kind], err) < 0 || check_epsilon(config, &rules[kind], err) < 0)
        return -1;
    model_set_kind(shape, kind);
    if (shape->objective == OBJECTIVE_MASKED && positions &&
        (!json_is_string(positions) || strcmp(json_string_value(positions), "absolute") != 0))
        return error_set(err, CODE_DATA, "position_embedding_type must be \"absolute\"");
    return check_flags(config, &rules[kind], err);
}

/* The value of a size in config.json; `absent` when neither of its keys is there. */
static int read_size(json_t *config, const struct size *size, int absent, long long *value, struct error *err)
{
    const char *const keys[] = {size->key, size->alias};
    bool found = false;

    *value = absent;
    for (int i = 0; i < 2; i++) {
        json_t *number = keys[i] ? json_object_get(config, keys[i]) : NULL;

        if (!number)
            continue;
        if (!json_is_integer(number) || json_integer_value(number) < 1)
            return error_set(err, CODE_DATA, "%s must be an integer of at least 1", keys[i]);
        if (found && json_integer_value(number) != *value)
            return error_set(err, CODE_DATA, "%s is %lld, but %s is %lld", keys[0], *value, keys[1],
                             (long long)json_integer_value(number));
        *value = json_integer_value(number);
        found = true;
    }
    return found;
}

static int check_size(json_t *config, const struct size *size, int ours, struct error *err)
{
    long long value;
    int found = read_size(config, size, size->absent, &value, err);

    if (found < 0)
        return -1;
    if (value != ours)
        return error_set(err, CODE_DATA, "%s is %s%lld, but the tensors make it %d", size->key,
                         found ? "" : "missing, which means ", value, ours);
    return 0;
}

int hf_config_check_sizes(json_t *config, const struct model_shape *shape, int given, int *heads, struct error *err)
{
    const struct config_rules *rule = &rules[shape->objective == OBJECTIVE_MASKED];
    const int ours[] = {[SIZE_HIDDEN] = shape->hidden,
                        [SIZE_LAYERS] = shape->layers,
                        [SIZE_SEQ] = shape->seq_length,
                        [SIZE_VOCAB] = shape->vocab};
    struct size inner = {rule->inner, NULL, rule->absent_inner ? rule->absent_inner : model_inner(shape)};
    long long found;

    for (int i = 0; i < SIZE_HEADS; i++)
        if (check_size(config, &rule->sizes[i], ours[i], err) < 0)
            return -1;
    if (!json_is_null(json_object_get(config, rule->inner)) && check_size(config, &inner, model_inner(shape), err) < 0)
        return -1;
    if (read_size(config, &rule->sizes[SIZE_HEADS], given ? 0 : rule->sizes[SIZE_HEADS].absent, &found, err) < 0)
        return -1;
    if (found > shape->hidden || (found > 0 && shape->hidden % found != 0))
        return error_set(err, CODE_DATA, "%s is %lld, must divide %s = %d", rule->sizes[SIZE_HEADS].key, found,
                         rule->sizes[SIZE_HIDDEN].key, shape->hidden);
    *heads = (int)found;
    return 0;
}

/* ---- export ------------------------------------------------------------------------------------------------------ */

static json_t *make_gpt(const struct job *job)
{
    const struct model_shape *shape = &job->model;
    double hidden = job->dropout.hidden, attention = job->dropout.attention;

    return json_pack("{s:[s], s:s, s:s, s:f, s:f, s:f, s:f, s:i, s:i, s:i, s:n, s:i, s:b}", "architectures",
                     "GPT2LMHeadModel", "model_type", "gpt2", "activation_function", "gelu_new", "layer_norm_epsilon",
                     HF_EPSILON, "embd_pdrop", hidden, "resid_pdrop", hidden, "attn_pdrop", attention, "n_embd",
                     shape->hidden, "n_head", shape->heads, "n_layer", shape->layers, "n_inner", "n_positions",
                     shape->seq_length, "scale_attn_weights", 1);
}

static json_t *make_bert(const struct job *job)
{
    const struct model_shape *shape = &job->model;
    double hidden = job->dropout.hidden, attention = job->dropout.attention;

    return json_pack("{s:[s], s:s, s:s, s:f, s:f, s:f, s:i, s:i, s:i, s:i, s:i, s:i, s:s}", "architectures",
                     "MegatronBertForPreTraining", "model_type", "megatron-bert", "hidden_act", "gelu_new",
                     "layer_norm_eps", HF_EPSILON, "hidden_dropout_prob", hidden, "attention_probs_dropout_prob",
                     attention, "hidden_size", shape->hidden, "num_attention_heads", shape->heads, "num_hidden_layers",
                     shape->layers, "intermediate_size", model_inner(shape), "max_position_embeddings",
                     shape->seq_length, "type_vocab_size", 2, "position_embedding_type", "absolute");
}

static json_t *json_id(int64_t id)
{
    return id < 0 ? json_null() : json_integer(id);
}

json_t *hf_config_make(const struct job *job, const struct hf_ids *ids, enum dtype dtype)
{
    json_t *config = (job->model.objective == OBJECTIVE_MASKED ? make_bert : make_gpt)(job);

    if (!config)
        return NULL;
    json_object_set_new(config, "initializer_range", json_real(job->init_std));
    json_object_set_new(config, "tie_word_embeddings", json_true());
    json_object_set_new(config, "torch_dtype", json_string(hf_dtypes[dtype].torch));
    json_object_set_new(config, "vocab_size", json_integer(job->model.vocab));
    /* Ids are given even if there are none: a missing key would have GPT-2's, or 0, of which there may be no token. */
    json_object_set_new(config, "bos_token_id", json_id(ids->begin));
    json_object_set_new(config, "eos_token_id", json_id(ids->end));
    json_object_set_new(config, "pad_token_id", json_id(ids->pad));
    return config;
}

json_t *hf_generation_make(const struct hf_ids *ids)
{
    return json_pack("{s:o, s:o, s:o}", "bos_token_id", json_id(ids->begin), "eos_token_id", json_id(ids->end),
                     "pad_token_id", json_id(ids->pad));
}

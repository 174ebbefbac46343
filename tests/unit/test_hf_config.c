/* config.json of Llama, Mistral, Qwen2 and Qwen3: the model that it describes, what is refused, and there and back. */
#include "ckpt/models/hf_internal.h"
#include "tests/cmocka_test.h"
#include "tests/unit/model_fields.h"

static void note(const char *path, const char *in_a, const char *in_b, void *arg)
{
    char *text = arg;

    snprintf(text + strlen(text), 1024 - strlen(text), "%s %s %s\n", path, in_a, in_b);
}

static int read_text(const char *text, struct model_shape *shape, struct error *err)
{
    json_t *config = json_loads(text, 0, NULL);
    const struct hf_class *class;
    int result;

    if (!config)
        fail_msg("no JSON: %s", text);
    class = hf_class_find(config, err);
    result = class ? hf_config_read(config, class, 0, shape, err) : -1;
    json_decref(config);
    return result;
}

#define SMOLLM2                                                                                                        \
    "\"model_type\": \"llama\", \"hidden_size\": 576, \"num_hidden_layers\": 30, \"num_attention_heads\": 9, "         \
    "\"num_key_value_heads\": 3, \"intermediate_size\": 1536, \"vocab_size\": 49152, \"rms_norm_eps\": 1e-05, "        \
    "\"max_position_embeddings\": 8192, \"tie_word_embeddings\": true"
#define LLAMA_1B                                                                                                       \
    "\"model_type\": \"llama\", \"hidden_size\": 2048, \"num_hidden_layers\": 16, \"num_attention_heads\": 32, "       \
    "\"num_key_value_heads\": 8, \"head_dim\": 64, \"intermediate_size\": 8192, \"vocab_size\": 128256, "              \
    "\"rms_norm_eps\": 1e-05, \"max_position_embeddings\": 131072, \"tie_word_embeddings\": true"
#define LLAMA3                                                                                                         \
    "\"factor\": 32.0, \"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0, "                                          \
    "\"original_max_position_embeddings\": 8192"

/* As people published them: the model is the preset's but for seq_length, which a job chooses. */
static void published_models_are_the_presets(void **state)
{
    static const struct {
        const char *preset, *text;
    } models[] = {
        {"smollm2-135m", "{" SMOLLM2 ", \"rope_theta\": 100000, \"rope_scaling\": null}"},
        {"smollm2-135m", "{" SMOLLM2 ", \"rope_parameters\": {\"rope_theta\": 1e5, \"rope_type\": \"default\"}}"},
        {"smollm2-135m", "{" SMOLLM2 ", \"rope_theta\": 1e5, \"rope_scaling\": {\"rope_type\": null}, \"mlp_bias\": 0, "
                         "\"rope_parameters\": {\"rope_type\": \"yarn\"}, \"attention_bias\": false}"},
        {"llama-3.2-1b",
         "{" LLAMA_1B ", \"rope_theta\": 500000.0, \"rope_scaling\": {\"rope_type\": \"llama3\", " LLAMA3 "}}"},
        {"llama-3.2-1b",
         "{" LLAMA_1B ", \"rope_theta\": 500000, \"rope_scaling\": {\"type\": \"llama3\", " LLAMA3 "}}"},
        {"llama-3.2-1b", "{" LLAMA_1B ", \"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": \"llama3\", " LLAMA3
                         "}, \"pad_token_id\": null}"},
        {"mistral-7b", "{\"model_type\": \"mistral\", \"rms_norm_eps\": 1e-05, \"max_position_embeddings\": 32768}"},
        {"qwen2.5-0.5b",
         "{\"model_type\": \"qwen2\", \"hidden_size\": 896, \"num_hidden_layers\": 24, \"num_attention_heads\": 14, "
         "\"num_key_value_heads\": 2, \"intermediate_size\": 4864, \"rope_theta\": 1000000.0, "
         "\"max_window_layers\": 24, \"sliding_window\": 32768, \"use_sliding_window\": false, "
         "\"tie_word_embeddings\": true}"},
        {"qwen3-0.6b",
         "{\"model_type\": \"qwen3\", \"hidden_size\": 1024, \"num_hidden_layers\": 28, \"num_attention_heads\": 16, "
         "\"num_key_value_heads\": 8, \"intermediate_size\": 3072, \"rope_theta\": 1000000, \"sliding_window\": null, "
         "\"max_position_embeddings\": 40960, \"tie_word_embeddings\": true}"},
    };

    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct model_shape preset, shape;
        char differences[1024] = "";
        struct error err;
        int kind;

        assert_int_equal(model_preset(&preset, &kind, models[i].preset, &err), 0);
        if (read_text(models[i].text, &shape, &err) < 0)
            fail_msg("%s: %s", models[i].preset, err.text);
        preset.max_positions = model_max_positions(&preset);
        assert_int_equal(shape.seq_length, preset.max_positions < 8192 ? preset.max_positions : 8192);
        preset.seq_length = shape.seq_length;
        job_each_model_difference(&preset, &shape, note, differences);
        if (differences[0])
            fail_msg("%s: %s", models[i].preset, differences);
    }
}

#define TINY(type, more) "{\"model_type\": \"" type "\", \"num_hidden_layers\": 4" more "}"

static void windows_and_biases_are_those_of_all_layers(void **state)
{
    static const struct {
        const char *text;
        int window;
        enum model_biases biases;
    } models[] = {
        {TINY("llama", ", \"attention_bias\": true, \"mlp_bias\": true, \"sliding_window\": 5"), 0, BIASES_ALL},
        {TINY("mistral", ""), 4096, BIASES_NONE},
        {TINY("mistral", ", \"sliding_window\": null"), 0, BIASES_NONE},
        {TINY("mistral", ", \"sliding_window\": 7"), 7, BIASES_NONE},
        {TINY("qwen2", ", \"sliding_window\": 7"), 0, BIASES_QKV},
        {TINY("qwen2", ", \"sliding_window\": 7, \"use_sliding_window\": true"), 0, BIASES_QKV}, /* from layer 28 on */
        {TINY("qwen2", ", \"use_sliding_window\": true, \"max_window_layers\": 0"), 4096, BIASES_QKV},
        {TINY("qwen3", ", \"sliding_window\": 7, \"use_sliding_window\": true, \"max_window_layers\": 9"), 0,
         BIASES_NONE},
        {TINY("qwen3", ", \"sliding_window\": 7, \"use_sliding_window\": true, \"layer_types\": [\"sliding_attention\","
                       " \"sliding_attention\", \"sliding_attention\", \"sliding_attention\"]"),
         7, BIASES_NONE},
        {TINY("qwen3", ", \"sliding_window\": null, \"layer_types\": [\"full_attention\", \"full_attention\", "
                       "\"full_attention\", \"full_attention\"]"),
         0, BIASES_NONE},
    };

    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct model_shape shape;
        struct error err;

        if (read_text(models[i].text, &shape, &err) < 0)
            fail_msg("%zu: %s", i, err.text);
        assert_int_equal(shape.window, models[i].window);
        assert_int_equal(shape.biases, models[i].biases);
    }
}

#define ROPE(rope) TINY("llama", ", \"rope_scaling\": {" rope "}")

static void what_muster_has_not_is_named(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {ROPE("\"rope_type\": \"yarn\", \"factor\": 4.0"), "rope_type is \"yarn\", which scales each wavelength by"},
        {ROPE("\"type\": \"linear\", \"factor\": 4.0"), "rope_type is \"linear\", which divides positions by a factor"},
        {ROPE("\"type\": \"dynamic\", \"factor\": 4.0"), "rope_type is \"dynamic\", which raises rope_theta"},
        {ROPE("\"type\": \"longrope\""), "rope_type is \"longrope\", which has factors for each wavelength"},
        {ROPE("\"type\": \"su\""), "rope_type is \"su\": must be default or llama3"},
        {ROPE("\"type\": 7"), "rope_type is \"\": must be default or llama3"},
        {ROPE("\"type\": \"llama3\", \"factor\": 4.0"), "rope_type llama3 needs factor, low_freq_factor, high"},
        {ROPE("\"type\": \"llama3\", " LLAMA3 ", \"factor\": 0"), "factor must be a number of more than 0"},
        {ROPE("\"partial_rotary_factor\": 0.5"), "rope_scaling: has partial_rotary_factor: muster rotates whole heads"},
        {TINY("llama", ", \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 5}}"),
         "layers that differ cannot"},
        {TINY("llama", ", \"rope_parameters\": 7"), "rope_parameters must be an object"},
        {TINY("llama", ", \"rope_theta\": 5e5, \"rope_parameters\": {\"rope_theta\": 1e4}"),
         "rope_theta is 500000, but rope_parameters makes it 10000"},
        {TINY("llama", ", \"rope_scaling\": {\"type\": \"default\"}, \"rope_parameters\": {\"rope_theta\": 5e5}"),
         "rope_parameters' rope_theta is 500000, but rope_scaling makes it 10000"},
        {TINY("llama", ", \"rope_theta\": \"1e4\""), "rope_theta must be a number of more than 0"},
        {TINY("llama", ", \"attention_bias\": true"), "attention_bias and mlp_bias differ: muster has biases of both"},
        {TINY("llama", ", \"mlp_bias\": true"), "attention_bias and mlp_bias differ"},
        {TINY("qwen3", ", \"attention_bias\": true"), "attention_bias must be false: biases of attention alone cannot"},
        {TINY("qwen2", ", \"use_sliding_window\": true, \"max_window_layers\": 3"), "1 of 4 layers have a window"},
        {TINY("qwen2", ", \"use_sliding_window\": true, \"layer_types\": [\"sliding_attention\", \"full_attention\", "
                       "\"full_attention\", \"full_attention\"]"),
         "1 of 4 layers have a window (layer_types, max_window_layers): muster's have all the same"},
        {TINY("qwen2", ", \"layer_types\": [\"full_attention\"]"), "layer_types has 1 layers, there are 4"},
        {TINY("qwen2", ", \"layer_types\": [\"chunked_attention\"]"), "layer_types has \"chunked_attention\", must be"},
        {TINY("qwen2", ", \"layer_types\": [\"sliding_attention\", \"sliding_attention\", \"sliding_attention\", "
                       "\"sliding_attention\"]"),
         "layer_types has sliding_attention, but there is no window"},
        {TINY("llama", ", \"hidden_act\": \"gelu\""), "hidden_act is \"gelu\", must be \"silu\""},
        {TINY("llama", ", \"num_key_value_heads\": 0"), "num_key_value_heads must be an integer of at least 1"},
        {TINY("llama", ", \"num_attention_heads\": null"), "num_attention_heads must be an integer of at least 1"},
        {TINY("llama", ", \"tie_word_embeddings\": \"true\""), "tie_word_embeddings must be true or false"},
        {TINY("llama", ", \"rms_norm_eps\": 0"), "rms_norm_eps must be a number of more than 0"},
        {TINY("llama", ", \"residual_multiplier\": 0.2"), "has residual_multiplier: muster has no such factor"},
        {TINY("olmo2", ""), "model_type is \"olmo2\", whose norms follow attention and MLP, and cover all heads"},
        {TINY("granite", ""), "model_type is \"granite\", whose embeddings, residual sums, attention and logits"},
        {TINY("phi3", ""), "model_type is \"phi3\", whose Q, K and V are one tensor"},
        {TINY("gemma", ""), "model_type is \"gemma\", whose norms multiply by 1 + w"},
        {TINY("gemma2", ""), "model_type is \"gemma2\", whose norms multiply by 1 + w, and whose logits are capped"},
        {TINY("gemma3_text", ""), "model_type is \"gemma3_text\", whose norms"},
        {TINY("qwen2_moe", ""), "model_type is \"qwen2_moe\"; the ones that can be imported are gpt2, megatron-bert, "
                                "llama, mistral, qwen2, qwen3"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_shape shape;
        struct error err = {0};

        if (read_text(cases[i].text, &shape, &err) == 0)
            fail_msg("%s must be refused: %s", cases[i].text, cases[i].says);
        if (err.code != CODE_DATA || !strstr(err.text, cases[i].says))
            fail_msg("%s: \"%s\" should have \"%s\"", cases[i].text, err.text, cases[i].says);
    }
}

static const char *class_name(const struct model_shape *shape, struct error *err)
{
    const struct hf_class *class = hf_class_for(shape, err);

    return class ? class->name : err->text;
}

/* The text of an export's config.json, and the model that it describes. */
static char *there_and_back(const struct model_shape *from, struct model_shape *to)
{
    struct job job = {.model = *from, .init_std = 0.02};
    const struct hf_ids ids = {-1, -1, -1};
    struct error err;
    const struct hf_class *class = hf_class_for(from, &err);
    json_t *config;
    char *text;

    if (!class)
        fail_msg("%s", err.text);
    config = hf_config_make(class, &job, &ids, DTYPE_BF16);
    text = json_dumps(config, JSON_REAL_PRECISION(15) | JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(config);
    if (read_text(text, to, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    return text;
}

static void every_preset_survives_an_export(void **state)
{
    static const struct {
        const char *preset, *class;
    } presets[] = {
        {"gpt-125m", "GPT2LMHeadModel"},        {"bert-345m", "MegatronBertForPreTraining"},
        {"llama-tiny", "LlamaForCausalLM"},     {"smollm2-135m", "LlamaForCausalLM"},
        {"tinyllama-1.1b", "LlamaForCausalLM"}, {"llama-3.1-8b", "LlamaForCausalLM"},
        {"mistral-7b", "MistralForCausalLM"},   {"qwen2.5-7b", "Qwen2ForCausalLM"},
        {"qwen3-8b", "Qwen3ForCausalLM"},       {"qwen3-0.6b", "Qwen3ForCausalLM"},
    };

    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        struct model_shape shape, back;
        char differences[1024] = "";
        struct error err;
        int kind;

        assert_int_equal(model_preset(&shape, &kind, presets[i].preset, &err), 0);
        assert_string_equal(class_name(&shape, &err), presets[i].class);
        free(there_and_back(&shape, &back));
        shape.max_positions = model_max_positions(&shape);
        shape.seq_length = back.seq_length;
        job_each_model_difference(&shape, &back, note, differences);
        if (differences[0])
            fail_msg("%s: %s", presets[i].preset, differences);
    }
}

/* transformers 4 reads rope_theta and rope_scaling, 5 rope_parameters. */
static void all_of_the_rope_keys_are_written(void **state)
{
    struct model_shape shape, back;
    struct error err;
    char *text;
    int kind;

    assert_int_equal(model_preset(&shape, &kind, "llama-3.2-1b", &err), 0);
    text = there_and_back(&shape, &back);
    assert_non_null(strstr(text, "\"rope_theta\":500000.0"));
    assert_non_null(strstr(text, "\"rope_scaling\":{\"factor\":32.0,\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,"
                                 "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"}"));
    assert_non_null(strstr(text,
                           "\"rope_parameters\":{\"factor\":32.0,\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,"
                           "\"original_max_position_embeddings\":8192,\"rope_theta\":500000.0,"
                           "\"rope_type\":\"llama3\"}"));
    assert_non_null(strstr(text, "\"torch_dtype\":\"bfloat16\""));
    assert_non_null(strstr(text, "\"dtype\":\"bfloat16\""));
    assert_non_null(strstr(text, "\"head_dim\":64"));
    assert_non_null(strstr(text, "\"max_position_embeddings\":131072"));
    free(text);
}

static void a_class_is_chosen_by_fields(void **state)
{
    static const struct {
        struct model_shape shape;
        const char *class;
    } cases[] = {
        {{MODEL_SIZES(2, 24, 4, 16, 99), LLAMA_FIELDS, .biases = BIASES_ALL}, "LlamaForCausalLM"},
        {{MODEL_SIZES(2, 24, 5, 16, 99), LLAMA_FIELDS, .biases = BIASES_NONE, .head_size = 4}, "MistralForCausalLM"},
        {{MODEL_SIZES(2, 24, 4, 16, 99), LLAMA_FIELDS, .biases = BIASES_QKV, .window = 3}, "Qwen2ForCausalLM"},
        {{MODEL_SIZES(2, 24, 4, 16, 99), LLAMA_FIELDS, .biases = BIASES_NONE, .window = 3, .qk_norm = true},
         "Qwen3ForCausalLM"},
        {{MODEL_SIZES(2, 24, 4, 16, 99), .inner = 30, .norm_eps = 1e-3}, "GPT2LMHeadModel"},
        {{MODEL_SIZES(2, 24, 4, 16, 99), LLAMA_FIELDS, .biases = BIASES_QKV, .qk_norm = true},
         "transformers has no such model: the nearest, Qwen2ForCausalLM, has model.qk_norm = false instead of true"},
        {{MODEL_SIZES(2, 24, 4, 16, 99), .window = 3},
         "transformers has no such model: the nearest, GPT2LMHeadModel, has model.window = 0 instead of 3"},
        {{MODEL_SIZES(2, 24, 4, 16, 99), .untied = true},
         "transformers has no such model: the nearest, GPT2LMHeadModel, has model.untied = false instead of true"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = {0};

        assert_string_equal(class_name(&cases[i].shape, &err), cases[i].class);
        assert_int_equal(err.code, strchr(cases[i].class, ' ') ? CODE_CONFIG : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_models_are_the_presets),
        cmocka_unit_test(windows_and_biases_are_those_of_all_layers),
        cmocka_unit_test(what_muster_has_not_is_named),
        cmocka_unit_test(every_preset_survives_an_export),
        cmocka_unit_test(all_of_the_rope_keys_are_written),
        cmocka_unit_test(a_class_is_chosen_by_fields),
    };

    return cmocka_run_group_tests_name("hf_config", tests, NULL, NULL);
}

/* To Hugging Face's files and back; and files that are not what they should be. */
#include "ckpt/models/hf_internal.h"
#include "common/dtype.h"
#include "common/safetensors.h"
#include "tests/cmocka_test.h"
#include "tests/unit/model_fields.h"
#include "tests/unit/test_ckpt_model.h"
#include "tests/unit/test_ckpt_world.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct model_shape gpt = {.layers = 2, .hidden = 24, .heads = 4, .seq_length = 16, .vocab = 131};
static const struct model_shape bert = {
    .layers = 2, .hidden = 24, .heads = 4, .seq_length = 16, .vocab = 131, BERT_FIELDS};
static const struct model_shape llama = {MODEL_SIZES(2, 24, 4, 16, 131),
                                         LLAMA_FIELDS,
                                         .biases = BIASES_NONE,
                                         .kv_heads = 2,
                                         .head_size = 8,
                                         .inner = 40,
                                         .max_positions = 16,
                                         .norm_eps = 1e-6,
                                         .qk_norm = true};
static const struct model_shape untied_llama = {MODEL_SIZES(2, 24, 4, 16, 131), LLAMA_FIELDS, .biases = BIASES_ALL,
                                                .max_positions = 16, .untied = true};
static const struct rewrite_to alone = {.mesh = {1, 1, 1}};

/* Each with its checkpoint. */
static struct {
    const struct model_shape *shape;
    struct mesh mesh;
    char path[600];
} models[] = {{&gpt, {3, 2, 2}, ""}, {&bert, {2, 2, 1}, ""}, {&llama, {3, 2, 2}, ""}, {&untied_llama, {2, 1, 2}, ""}};

static char dir[256], *checkpoint = models[0].path;
static struct hf_nonfinite nonfinite;

static int make(void **state)
{
    scratch_create(dir, scratch_fast());
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char name[16], path[512];

        snprintf(name, sizeof name, "from%zu", i);
        model_write(models[i].shape, &models[i].mesh, 1, join(path, dir, name));
        ckpt_step_path(models[i].path, sizeof models[i].path, path, 5);
    }
    return 0;
}

static int unmake(void **state)
{
    scratch_destroy(dir);
    return 0;
}

static const char *checkpoint_of(const struct model_shape *shape)
{
    size_t i = 0;

    while (models[i].shape != shape)
        i++;
    return models[i].path;
}

static int export_from(const char *from, const char *name, const struct hf_export *how, struct error *err)
{
    struct ckpt *ckpt = ckpt_open(from, err);
    char path[512];
    int result;

    assert_non_null(ckpt);
    result = hf_export(ckpt, join(path, dir, name), how, err);
    ckpt_close(ckpt);
    return result;
}

static int import_from(const char *path, const char *name, const struct rewrite_to *to, int heads,
                       struct model_shape *shape, struct hf_nonfinite *bad, struct error *err)
{
    struct hf_model *model = hf_model_open(path, heads, err);
    int result = model ? hf_import(model, name, to, err) : -1;

    if (model) {
        *shape = *hf_model_shape(model);
        *bad = *hf_model_nonfinite(model);
    }
    hf_model_close(model);
    return result;
}

static int export_to(const char *name, const struct hf_export *how, struct error *err)
{
    return export_from(checkpoint, name, how, err);
}

static float through_bf16(float value)
{
    return bf16_to_float(bf16_of_float(value));
}

static float through_f16(float value)
{
    return f16_to_float(f16_of_float(value));
}

static void there_and_back(void **state)
{
    static const struct {
        const struct model_shape *shape;
        struct hf_export how;
        float (*round)(float);
        struct mesh mesh;
    } trips[] = {
        {&gpt, {.dtype = DTYPE_F32, .shard_bytes = 1 << 30}, NULL, {1, 1, 1}},
        {&gpt, {.dtype = DTYPE_F32, .shard_bytes = 5000}, NULL, {5, 4, 1}},
        {&gpt, {.dtype = DTYPE_BF16, .shard_bytes = 1 << 30}, through_bf16, {1, 1, 3}},
        {&gpt, {.dtype = DTYPE_F16, .shard_bytes = 1}, through_f16, {2, 2, 2}}, /* a tensor a file */
        {&bert, {.dtype = DTYPE_F32, .shard_bytes = 1 << 30}, NULL, {1, 1, 1}},
        {&bert, {.dtype = DTYPE_F32, .shard_bytes = 5000}, NULL, {5, 4, 1}},
        {&bert, {.dtype = DTYPE_BF16, .shard_bytes = 1}, through_bf16, {2, 2, 2}},
        {&llama, {.dtype = DTYPE_F32, .shard_bytes = 1 << 30}, NULL, {1, 1, 1}},
        {&llama, {.dtype = DTYPE_BF16, .shard_bytes = 1}, through_bf16, {2, 2, 2}},
        {&untied_llama, {.dtype = DTYPE_F32, .shard_bytes = 5000}, NULL, {5, 4, 1}},
        {&untied_llama, {.dtype = DTYPE_F16, .shard_bytes = 1}, through_f16, {1, 1, 1}},
    };
    for (size_t i = 0; i < sizeof trips / sizeof *trips; i++) {
        char theirs[512], ours[512], path[600];
        struct rewrite_to how = {.mesh = trips[i].mesh};
        struct model_shape shape;
        struct ckpt *ckpt;
        struct error err;

        snprintf(path, sizeof path, "hf%zu", i);
        if (export_from(checkpoint_of(trips[i].shape), path, &trips[i].how, &err) < 0)
            fail_msg("%s", err.text);
        join(theirs, dir, path);
        snprintf(path, sizeof path, "back%zu", i);
        if (import_from(theirs, join(ours, dir, path), &how, 0, &shape, &nonfinite, &err) < 0)
            fail_msg("%s", err.text);
        assert_memory_equal(&shape, trips[i].shape, sizeof shape);
        assert_true(model_matches(trips[i].shape, ours, 0, trips[i].round, true));
        assert_int_equal(access(join(path, theirs, HF_INDEX), F_OK), trips[i].how.shard_bytes == 1 << 30 ? -1 : 0);
        ckpt_step_path(path, sizeof path, ours, 0);
        ckpt = ckpt_open(path, &err);
        assert_non_null(ckpt);
        assert_non_null(strstr(ckpt_job_text(ckpt), "heads = 4; seq_length = 16; vocab = 131;"));
        assert_int_equal(ckpt_summary(ckpt).shards, mesh_world(&trips[i].mesh));
        ckpt_close(ckpt);
    }
}

static void one_file_with_heads_given(void **state)
{
    const struct hf_export how = {.shard_bytes = 1 << 30};
    char theirs[512], file[512], ours[512];
    struct model_shape shape;
    struct error err;

    assert_int_equal(export_to("single", &how, &err), 0);
    join(theirs, dir, "single");
    assert_int_equal(import_from(theirs, join(ours, dir, "single.back"), &alone, 6, &shape, &nonfinite, &err), -1);
    assert_int_equal(err.code, CODE_USAGE);
    assert_non_null(strstr(err.text, "has 4 heads, --heads has 6"));
    assert_int_equal(unlink(join(file, theirs, HF_CONFIG)), 0);
    join(file, theirs, HF_MODEL);
    assert_int_equal(import_from(file, join(ours, dir, "single.back"), &alone, 0, &shape, &nonfinite, &err), -1);
    assert_int_equal(err.code, CODE_USAGE);
    assert_non_null(strstr(err.text, "--heads"));
    assert_int_equal(import_from(file, ours, &alone, 5, &shape, &nonfinite, &err), -1);
    assert_non_null(strstr(err.text, "5 heads do not divide its width of 24"));
    assert_int_equal(import_from(file, ours, &alone, 6, &shape, &nonfinite, &err), 0);
    assert_int_equal(shape.heads, 6);
    assert_true(model_matches(&gpt, ours, 0, NULL, true));
    assert_int_equal(export_to("single", &how, &err), -1); /* nothing of it may be mixed with what is there */
    assert_non_null(strstr(err.text, "is not empty"));
}

/* Replace the first `old` in a file of `model` by `new`, of any length. */
static void edit(const char *model, const char *name, const char *old, const char *new)
{
    char path[512], *text, *at, *made;
    size_t bytes, before;

    join(path, model, name);
    text = read_file(path, &bytes);
    at = strstr(text, old);
    assert_non_null(at);
    before = (size_t)(at - text);
    made = malloc(bytes + strlen(new) + 1);
    assert_non_null(made);
    memcpy(made, text, before);
    strcpy(made + before, new);
    strcat(made, at + strlen(old));
    write_file(path, made, strlen(made));
    free(made);
    free(text);
}

static void to_parent(const char *model)
{
    edit(model, HF_INDEX, "model-00001-of", "../model-00001-of");
}

static void to_root(const char *model)
{
    edit(model, HF_INDEX, "\"model-00001-of", "\"/model-00001-of");
}

static void to_nowhere(const char *model)
{
    char path[512];

    assert_int_equal(unlink(join(path, model, "model-00001-of-00002.safetensors")), 0);
    assert_int_equal(symlink("../../blobs/0123", path), 0);
}

static void missing(const char *model)
{
    char path[512];

    assert_int_equal(unlink(join(path, model, "model-00002-of-00002.safetensors")), 0);
}

static void pickle(const char *model)
{
    char path[512], other[512];

    assert_int_equal(rename(join(path, model, HF_INDEX), join(other, model, "pytorch_model.bin.index.json")), 0);
}

/* Another name, of the same length, for a tensor. */
static void rename_tensor(const char *model, const char *old, const char *new)
{
    for (int file = 1; file <= 2; file++) {
        char name[64], path[512], *text, *at;
        size_t bytes;

        snprintf(name, sizeof name, "model-%05d-of-00002.safetensors", file);
        text = read_file(join(path, model, name), &bytes);
        at = memmem(text, bytes, old, strlen(old));
        if (at) {
            memcpy(at, new, strlen(new));
            write_file(path, text, bytes);
        }
        free(text);
    }
}

static void lacks_one(const char *model)
{
    rename_tensor(model, "h.1.ln_2.bias", "h.1.ln_2.bios");
}

static void has_another(const char *model)
{
    rename_tensor(model, "h.1.ln_2.bias", "h.1.ln_2.aias");
}

static void cut(const char *model)
{
    char path[512];
    struct stat info;

    join(path, model, "model-00002-of-00002.safetensors");
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size - 1), 0);
}

static void no_map(const char *model)
{
    edit(model, HF_INDEX, "weight_map", "weight_nap");
}

static void relu(const char *model)
{
    edit(model, HF_CONFIG, "gelu_new", "relu");
}

static void untied(const char *model)
{
    edit(model, HF_CONFIG, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
}

static void untied_by_zero(const char *model)
{
    edit(model, HF_CONFIG, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": 0");
}

static void unscaled_by_zero(const char *model)
{
    edit(model, HF_CONFIG, "\"scale_attn_weights\": true", "\"scale_attn_weights\": 0");
}

static void unscaled_by_null(const char *model)
{
    edit(model, HF_CONFIG, "\"scale_attn_weights\": true", "\"scale_attn_weights\": null");
}

static void scaled_by_a_string(const char *model)
{
    edit(model, HF_CONFIG, "\"scale_attn_weights\": true", "\"scale_attn_weights\": \"false\"");
}

static void scaled_by_layer(const char *model)
{
    edit(model, HF_CONFIG, "inverse_layer_idx\": false", "inverse_layer_idx\": 1");
}

static void crossed(const char *model)
{
    edit(model, HF_CONFIG, "cross_attention\": false", "cross_attention\": 0.5");
}

/* A model of another type has other tensors too; what helps is its type. */
static void of_type(const char *model, const char *type)
{
    lacks_one(model);
    missing(model);
    edit(model, HF_CONFIG, "\"gpt2\"", type);
}

static void falcon(const char *model)
{
    of_type(model, "\"falcon\"");
}

static void granite(const char *model)
{
    of_type(model, "\"granite\"");
}

/* Bytes [*begin, *end) of a file are the tensor's. */
static void find_data(const char *text, size_t bytes, const char *name, size_t *begin, size_t *end)
{
    struct safetensors st = {0};
    const struct safetensors_entry *entry;
    struct error err;

    if (safetensors_parse(&st, text, bytes, bytes, &err) < 0)
        fail_msg("%s", err.text);
    entry = safetensors_find(&st, name);
    assert_non_null(entry);
    *begin = st.data_offset + entry->begin;
    *end = st.data_offset + entry->end;
    safetensors_destroy(&st);
}

/* Another file of the model, with wte.weight's data as lm_head.weight of `rows` rows and the element that differs. */
static void add_head(const char *model, uint64_t rows, size_t differs)
{
    struct safetensors_entry entry = {.name = "lm_head.weight", .dtype = "F32", .ndim = 2, .shape = {rows, 24}};
    char path[512], *text, *file;
    size_t bytes, begin, end, header_bytes;
    struct error err;
    void *header;

    text = read_file(join(path, model, "model-00001-of-00002.safetensors"), &bytes);
    find_data(text, bytes, HF_PREFIX "wte.weight", &begin, &end);
    assert_int_equal(safetensors_layout(&entry, 1, NULL, 1, 1, &header, &header_bytes, &err), 0);
    file = malloc(header_bytes + entry.end);
    assert_non_null(file);
    memcpy(file, header, header_bytes);
    memcpy(file + header_bytes, text + begin, entry.end);
    file[header_bytes + 4 * differs] ^= differs > 0;
    write_file(join(path, model, "head.safetensors"), file, header_bytes + entry.end);
    edit(model, HF_INDEX, "\"weight_map\": {", "\"weight_map\": {\"lm_head.weight\": \"head.safetensors\", ");
    free(file);
    free(header);
    free(text);
}

static void other_head(const char *model)
{
    add_head(model, 131, 130 * 24 + 7);
}

static void shorter_head(const char *model)
{
    add_head(model, 130, 0);
}

static void more_layers(const char *model)
{
    edit(model, HF_CONFIG, "\"n_layer\": 2", "\"n_layer\": 3");
}

static void many_layers(const char *model)
{
    edit(model, HF_CONFIG, "\"n_layer\": 2", "\"n_layer\": 20000000000000000000");
}

static void no_epsilon(const char *model)
{
    edit(model, HF_CONFIG, "\"layer_norm_epsilon\": 1", "\"layer_norm_epsilon\": NaN, \"b\": 1");
}

static void no_config(const char *model)
{
    edit(model, HF_CONFIG, "{", "[");
}

/* Hugging Face's cache: snapshots/REVISION has links to blobs/HASH. */
static void a_snapshot_of_links_is_imported(void **state)
{
    const struct hf_export how = {.shard_bytes = 40000};
    char theirs[512], ours[512];
    struct model_shape shape;
    struct error err;

    assert_int_equal(export_to("cache", &how, &err), 0);
    shell("cd %s/cache && mkdir -p blobs snapshots/main && i=0 && for f in *.*; do i=$((i + 1)) && mv $f blobs/$i && "
          "ln -s ../../blobs/$i snapshots/main/$f || exit 1; done",
          dir);
    if (import_from(join(theirs, dir, "cache/snapshots/main"), join(ours, dir, "cached"), &alone, 0, &shape, &nonfinite,
                    &err) < 0)
        fail_msg("%s", err.text);
    assert_true(model_matches(&gpt, ours, 0, NULL, true));
    to_nowhere(theirs);
    assert_int_equal(import_from(theirs, join(ours, dir, "lost"), &alone, 0, &shape, &nonfinite, &err), -1);
    assert_int_equal(err.code, CODE_IO);
    assert_non_null(strstr(err.text, "model-00001-of-00002.safetensors, a link to ../../blobs/0123: No such file"));
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        void (*damage)(const char *model);
        const char *says;
    } cases[] = {
        {to_parent, "\"../model-00001-of-00002.safetensors\" is not the plain name"},
        {to_root, "\"/model-00001-of-00002.safetensors\" is not the plain name"},
        {missing, "model-00002-of-00002.safetensors: No such file"},
        {pickle, "has no model.safetensors, and pytorch_model.bin is not read: write it anew with"},
        {lacks_one, "tensor \"h.1.ln_2.bias\" is missing"},
        {has_another, "tensor \"h.1.ln_2.bias\" is missing"},
        {cut, "model-00002-of-00002.safetensors"},
        {no_map, "weight_map must be"},
        {relu, "activation_function is \"relu\""},
        {untied, "tie_word_embeddings must be true"},
        {untied_by_zero, "tie_word_embeddings must be true"},
        {unscaled_by_zero, "scale_attn_weights must be true"},
        {unscaled_by_null, "scale_attn_weights must be true"},
        {scaled_by_a_string, "scale_attn_weights must be true"},
        {scaled_by_layer, "scale_attn_by_inverse_layer_idx must be false"},
        {crossed, "add_cross_attention must be false"},
        {falcon, "config.json: model_type is \"falcon\"; the ones that can be imported are gpt2, megatron-bert, llama"},
        {granite, "config.json: model_type is \"granite\", whose embeddings, residual sums, attention and logits are"},
        {other_head, "lm_head.weight differs from wte.weight at [130, 7]"},
        {shorter_head, "lm_head.weight has another shape than wte.weight"},
        {more_layers, "tensor \"h.2.ln_1.weight\" is missing"},
        {many_layers, "n_layer must be an integer of at least 1"},
        {no_epsilon, "layer_norm_epsilon must be a number"},
        {no_config, "config.json:"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct hf_export how = {.shard_bytes = 40000};
        char name[32], theirs[512], ours[512];
        struct model_shape shape;
        struct error err = {0};

        snprintf(name, sizeof name, "bad%zu", i);
        assert_int_equal(export_to(name, &how, &err), 0);
        join(theirs, dir, name);
        cases[i].damage(theirs);
        snprintf(name, sizeof name, "bad%zu.back", i);
        if (import_from(theirs, join(ours, dir, name), &alone, 0, &shape, &nonfinite, &err) == 0)
            fail_msg("%zu: must be refused: \"%s\"", i, cases[i].says);
        if (err.code != CODE_DATA || !strstr(err.text, cases[i].says))
            fail_msg("%zu: %d, \"%s\" should have \"%s\"", i, err.code, err.text, cases[i].says);
        assert_int_equal(access(ours, F_OK), -1);
    }
}

/* Neither a head that is not there, nor one that would not be used; and no shape but the config's. */
static void a_llama_has_exactly_its_tensors(void **state)
{
    static const struct {
        const struct model_shape *shape;
        const char *tensor, *renamed; /* of one length */
        const char *key, *value, *says;
    } cases[] = {
        {&untied_llama, "lm_head.weight", "lm_haed.weight", "{", "{", "tensor \"lm_head.weight\" is missing"},
        {&llama, "", "", "embeddings\": true", "embeddings\": false", "tensor \"lm_head.weight\" is missing"},
        {&untied_llama, "", "", "embeddings\": false", "embeddings\": true",
         "lm_head.weight differs from model.embed_tokens.weight at [0, 0], and tie_word_embeddings is true"},
        {&llama, "1.self_attn.k_norm", "1.self_attn.k_nrom", "{", "{",
         "tensor \"model.layers.1.self_attn.k_norm.weight\" is missing"},
        {&llama, "", "", "qwen3", "llama", "tensor \"model.layers.0.self_attn.k_norm.weight\" is not one of a Llama"},
        {&llama, "", "", "value_heads\": 2", "value_heads\": 4", "k_proj.weight\" is [16, 24], must be [32, 24]"},
        {&llama, "", "", "hidden_layers\": 2", "hidden_layers\": 1", "is not one of a Qwen3ForCausalLM"},
        {&llama, "", "", "value_heads\": 2", "value_heads\": 3", "model.kv_heads must divide model.heads"},
    };
    const struct hf_export how = {.shard_bytes = 1 << 30};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[32], theirs[512], ours[512], path[512], *text;
        struct model_shape shape;
        struct error err = {0};
        size_t bytes, length = strlen(cases[i].tensor);

        snprintf(name, sizeof name, "llama%zu", i);
        assert_int_equal(export_from(checkpoint_of(cases[i].shape), name, &how, &err), 0);
        join(theirs, dir, name);
        text = read_file(join(path, theirs, HF_MODEL), &bytes);
        memcpy(memmem(text, bytes, cases[i].tensor, length), cases[i].renamed, length);
        write_file(path, text, bytes);
        free(text);
        edit(theirs, HF_CONFIG, cases[i].key, cases[i].value);
        if (cases[i].key[0] == 'q')
            edit(theirs, HF_CONFIG, "Qwen3", "Llama");
        if (import_from(theirs, join(ours, dir, "llama.back"), &alone, 0, &shape, &nonfinite, &err) == 0)
            fail_msg("%zu: must be refused: \"%s\"", i, cases[i].says);
        if (err.code != CODE_DATA || !strstr(err.text, cases[i].says))
            fail_msg("%zu: %d, \"%s\" should have \"%s\"", i, err.code, err.text, cases[i].says);
    }
}

/* Numbers for booleans, values that do not matter, a head that is wte.weight's copy, and an index that transformers
 * would not look at. */
static void what_is_equal_is_taken(void **state)
{
    const struct hf_export how = {.shard_bytes = 40000}, whole = {.shard_bytes = 1 << 30};
    static const char stale[] = "{\"weight_map\": {\"wte.weight\": \"stale.safetensors\"}}";
    char theirs[512], ours[512], path[512];
    struct model_shape shape;
    struct error err;

    assert_int_equal(export_to("equal", &how, &err), 0);
    join(theirs, dir, "equal");
    add_head(theirs, 131, 0);
    edit(theirs, HF_CONFIG, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": 1");
    edit(theirs, HF_CONFIG, "\"scale_attn_weights\": true", "\"scale_attn_weights\": 1.0");
    edit(theirs, HF_CONFIG, "inverse_layer_idx\": false", "inverse_layer_idx\": 0");
    edit(theirs, HF_CONFIG, "cross_attention\": false", "cross_attention\": null");
    edit(theirs, HF_CONFIG, "{", "{\"a\": 1000000000000000019884624838656, \"b\": [NaN, -Infinity, 1e999], ");
    edit(theirs, HF_INDEX, "{", "\xef\xbb\xbf{\"a\": 18446744073709551616, \"b\": NaN, \"b\": \"\\ud800\", ");
    if (import_from(theirs, join(ours, dir, "equal.back"), &alone, 0, &shape, &nonfinite, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(model_matches(&gpt, ours, 0, NULL, true));
    assert_int_equal(nonfinite.count, 0);

    assert_int_equal(export_to("both", &whole, &err), 0);
    join(theirs, dir, "both");
    write_file(join(path, theirs, HF_INDEX), stale, strlen(stale));
    if (import_from(theirs, join(ours, dir, "both.back"), &alone, 0, &shape, &nonfinite, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(model_matches(&gpt, ours, 0, NULL, true));
}

/* The count, and the first in the model's order, whichever thread read it. */
static void nonfinite_weights_are_reported(void **state)
{
    static const struct {
        const char *name;
        size_t element;
        float value;
    } bad[] = {{"wte.weight", 130 * 24 + 5, INFINITY},
               {"h.1.attn.c_attn.weight", 3 * 72 + 50, -INFINITY},
               {"h.0.ln_1.bias", 11, NAN}};
    static const struct rewrite_to how = {.mesh = {2, 2, 2}};
    const struct hf_export whole = {.shard_bytes = 1 << 30};

    for (size_t skip = 0; skip < 3; skip++) { /* the first ones are left as they are */
        static const char *const says[] = {"wte.weight[130, 5] is inf", "h.0.ln_1.bias[11] is nan",
                                           "h.0.ln_1.bias[11] is nan"};
        char name[64], theirs[512], ours[512], path[512], *text;
        size_t bytes, begin, end;
        struct model_shape shape;
        struct error err;

        snprintf(name, sizeof name, "nan%zu", skip);
        assert_int_equal(export_to(name, &whole, &err), 0);
        join(theirs, dir, name);
        text = read_file(join(path, theirs, HF_MODEL), &bytes);
        for (size_t i = skip; i < 3; i++) {
            snprintf(name, sizeof name, HF_PREFIX "%s", bad[i].name);
            find_data(text, bytes, name, &begin, &end);
            memcpy(text + begin + 4 * bad[i].element, &bad[i].value, 4);
        }
        write_file(path, text, bytes);
        free(text);
        snprintf(name, sizeof name, "nan%zu.back", skip);
        if (import_from(theirs, join(ours, dir, name), &how, 0, &shape, &nonfinite, &err) < 0)
            fail_msg("%s", err.text);
        assert_int_equal(nonfinite.count, 3 - skip);
        assert_non_null(strstr(nonfinite.first, says[skip]));
    }
}

/* What fp32 holds and fp16 does not. */
static void weights_too_large_for_fp16_are_reported(void **state)
{
    const struct hf_export whole = {.shard_bytes = 1 << 30};
    const struct hf_export half = {.dtype = DTYPE_F16, .shard_bytes = 1 << 30, .nonfinite = &nonfinite};
    static const float large = 1e6F;
    char theirs[512], ours[512], path[512], *text;
    size_t bytes, begin, end;
    struct model_shape shape;
    struct error err;

    assert_int_equal(export_to("large", &whole, &err), 0);
    text = read_file(join(path, join(theirs, dir, "large"), HF_MODEL), &bytes);
    find_data(text, bytes, HF_PREFIX "h.1.attn.c_attn.weight", &begin, &end);
    memcpy(text + begin + 4 * (2 * 72 + 3), &large, 4);
    write_file(path, text, bytes);
    free(text);
    assert_int_equal(import_from(theirs, join(ours, dir, "large.back"), &alone, 0, &shape, &nonfinite, &err), 0);
    assert_int_equal(nonfinite.count, 0);
    ckpt_step_path(path, sizeof path, ours, 0);
    assert_int_equal(export_from(path, "half", &half, &err), 0);
    assert_int_equal(nonfinite.count, 1);
    assert_string_equal(nonfinite.first, "h.1.attn.c_attn.weight[2, 3] is inf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(one_file_with_heads_given),
        cmocka_unit_test(a_snapshot_of_links_is_imported),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(a_llama_has_exactly_its_tensors),
        cmocka_unit_test(what_is_equal_is_taken),
        cmocka_unit_test(nonfinite_weights_are_reported),
        cmocka_unit_test(weights_too_large_for_fp16_are_reported),
    };

    return cmocka_run_group_tests(tests, make, unmake);
}

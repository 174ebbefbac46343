/* To Hugging Face's files and back; and files that are not what they should be. */
#include "ckpt/hf.h"
#include "common/half.h"
#include "tests/unit/test_ckpt_model.h"
#include "tests/unit/test_ckpt_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const struct model_shape gpt = {.layers = 2, .hidden = 24, .heads = 4, .seq_length = 16, .vocab = 131};
static const struct hf_import alone = {.mesh = {1, 1, 1}};

static char dir[256], checkpoint[600];

static int make(void **state)
{
    char path[512];

    (void)state;
    scratch_create(dir, scratch_fast());
    model_write(&gpt, &(struct mesh){3, 2, 2}, 1, join(path, dir, "from"));
    ckpt_step_path(checkpoint, sizeof checkpoint, path, 5);
    return 0;
}

static int unmake(void **state)
{
    (void)state;
    scratch_destroy(dir);
    return 0;
}

static int export_to(const char *name, const struct hf_export *how, struct error *err)
{
    struct ckpt *ckpt = ckpt_open(checkpoint, err);
    char path[512];
    int result;

    assert_non_null(ckpt);
    result = hf_export(ckpt, join(path, dir, name), how, err);
    ckpt_close(ckpt);
    return result;
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
        struct hf_export how;
        float (*round)(float);
        struct mesh mesh;
    } trips[] = {
        {{.dtype = DTYPE_F32, .shard_bytes = 1 << 30}, NULL, {1, 1, 1}},
        {{.dtype = DTYPE_F32, .shard_bytes = 5000}, NULL, {5, 4, 1}},
        {{.dtype = DTYPE_BF16, .shard_bytes = 1 << 30}, through_bf16, {1, 1, 3}},
        {{.dtype = DTYPE_F16, .shard_bytes = 1}, through_f16, {2, 2, 2}}, /* a tensor a file */
    };
    (void)state;
    for (size_t i = 0; i < sizeof trips / sizeof *trips; i++) {
        char theirs[512], ours[512], path[600];
        struct hf_import how = {.mesh = trips[i].mesh};
        struct model_shape shape;
        struct ckpt *ckpt;
        struct error err;

        snprintf(path, sizeof path, "hf%zu", i);
        if (export_to(path, &trips[i].how, &err) < 0)
            fail_msg("%s", err.text);
        join(theirs, dir, path);
        snprintf(path, sizeof path, "back%zu", i);
        if (hf_import(theirs, join(ours, dir, path), &how, &shape, &err) < 0)
            fail_msg("%s", err.text);
        assert_memory_equal(&shape, &gpt, sizeof gpt);
        assert_true(model_matches(&gpt, ours, 0, trips[i].round, true));
        assert_int_equal(access(join(path, theirs, HF_INDEX), F_OK), trips[i].how.shard_bytes == 1 << 30 ? -1 : 0);
        ckpt_step_path(path, sizeof path, ours, 0);
        ckpt = ckpt_open(path, &err);
        assert_non_null(ckpt);
        assert_non_null(strstr(ckpt_job_text(ckpt), "heads = 4; seq_length = 16; vocab = 131;"));
        assert_int_equal(ckpt_shards(ckpt), mesh_world(&trips[i].mesh));
        ckpt_close(ckpt);
    }
}

static void one_file_with_heads_given(void **state)
{
    const struct hf_export how = {.shard_bytes = 1 << 30};
    struct hf_import with_heads = alone;
    char theirs[512], file[512], ours[512];
    struct model_shape shape;
    struct error err;

    (void)state;
    assert_int_equal(export_to("single", &how, &err), 0);
    join(theirs, dir, "single");
    with_heads.heads = 6; /* config.json says 4 */
    assert_int_equal(hf_import(theirs, join(ours, dir, "single.back"), &with_heads, &shape, &err), -1);
    assert_int_equal(err.code, CODE_USAGE);
    assert_non_null(strstr(err.text, "says that it has 4 heads, and --heads says 6"));
    assert_int_equal(unlink(join(file, theirs, HF_CONFIG)), 0);
    join(file, theirs, HF_MODEL);
    assert_int_equal(hf_import(file, join(ours, dir, "single.back"), &alone, &shape, &err), -1);
    assert_int_equal(err.code, CODE_USAGE);
    assert_non_null(strstr(err.text, "--heads"));
    with_heads.heads = 5;
    assert_int_equal(hf_import(file, ours, &with_heads, &shape, &err), -1);
    assert_non_null(strstr(err.text, "5 heads do not divide its width of 24"));
    with_heads.heads = 6;
    assert_int_equal(hf_import(file, ours, &with_heads, &shape, &err), 0);
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
    text = slurp(path, &bytes);
    at = strstr(text, old);
    assert_non_null(at);
    before = (size_t)(at - text);
    made = malloc(bytes + strlen(new) + 1);
    assert_non_null(made);
    memcpy(made, text, before);
    strcpy(made + before, new);
    strcat(made, at + strlen(old));
    spew(path, made, strlen(made));
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

static void to_link(const char *model)
{
    char path[512], target[512];

    join(path, model, "model-00001-of-00002.safetensors");
    join(target, model, "elsewhere");
    assert_int_equal(rename(path, target), 0);
    assert_int_equal(symlink("elsewhere", path), 0);
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
        text = slurp(join(path, model, name), &bytes);
        at = memmem(text, bytes, old, strlen(old));
        if (at) {
            memcpy(at, new, strlen(new));
            spew(path, text, bytes);
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

static void more_layers(const char *model)
{
    edit(model, HF_CONFIG, "\"n_layer\": 2", "\"n_layer\": 3");
}

static void no_config(const char *model)
{
    edit(model, HF_CONFIG, "{", "[");
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        void (*damage)(const char *model);
        const char *says;
    } cases[] = {
        {to_parent, "\"../model-00001-of-00002.safetensors\" is no plain name"},
        {to_root, "\"/model-00001-of-00002.safetensors\" is no plain name"},
        {to_link, "model-00001-of-00002.safetensors is a symbolic link"},
        {missing, "model-00002-of-00002.safetensors: No such file"},
        {pickle, "has no model.safetensors, and pytorch_model.bin is not read: write it anew with"},
        {lacks_one, "no GPT or BERT: tensor \"h.1.ln_2.bias\" is missing"},
        {has_another, "no GPT or BERT: they have no tensor \"h.1.ln_2.aias\""},
        {cut, "model-00002-of-00002.safetensors"},
        {no_map, "weight_map must be"},
        {relu, "activation_function is \"relu\""},
        {untied, "tie_word_embeddings is false"},
        {more_layers, "n_layer is 3, but the tensors make it 2"},
        {no_config, "config.json:"},
    };

    (void)state;
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
        assert_int_equal(hf_import(theirs, join(ours, dir, name), &alone, &shape, &err), -1);
        if (err.code != CODE_DATA || !strstr(err.text, cases[i].says))
            fail_msg("%zu: %d, \"%s\" should have \"%s\"", i, err.code, err.text, cases[i].says);
        assert_int_equal(access(ours, F_OK), -1);
    }
}

static void only_a_gpt_is_exported(void **state)
{
    struct model_shape bert = gpt;
    struct hf_export how = {.shard_bytes = 1 << 30};
    char path[512], good[600];
    struct error err;

    (void)state;
    bert.kind = MODEL_BERT;
    model_write(&bert, &(struct mesh){1, 1, 1}, 1, join(path, dir, "bert"));
    memcpy(good, checkpoint, sizeof good);
    ckpt_step_path(checkpoint, sizeof checkpoint, path, 5);
    assert_int_equal(export_to("bert.hf", &how, &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    assert_non_null(strstr(err.text, "is of a BERT"));
    memcpy(checkpoint, good, sizeof good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(one_file_with_heads_given),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(only_a_gpt_is_exported),
    };

    return cmocka_run_group_tests(tests, make, unmake);
}

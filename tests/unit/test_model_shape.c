/* Presets and the number of parameters, against published counts. */
#include <math.h>
#include <stdlib.h>

#include "common/job.h"
#include "tests/cmocka_test.h"
#include "tests/unit/model_fields.h"

/* N of MosaicML's tables at V = 50257, and GPT-2's own four sizes at s = 1024 as Hugging Face counts them. */
static void published_parameter_counts(void **state)
{
    static const struct {
        struct model_shape shape;
        uint64_t parameters;
    } rows[] = {
        {{MODEL_SIZES(12, 768, 12, 2048, 50257)}, 125226240},    {{MODEL_SIZES(24, 1536, 12, 16384, 50257)}, 782320128},
        {{MODEL_SIZES(40, 5120, 40, 2048, 50257)}, 12853386240}, {{MODEL_SIZES(12, 768, 12, 1024, 50257)}, 124439808},
        {{MODEL_SIZES(24, 1024, 16, 1024, 50257)}, 354823168},   {{MODEL_SIZES(36, 1280, 20, 1024, 50257)}, 774030080},
        {{MODEL_SIZES(48, 1600, 25, 1024, 50257)}, 1557611200},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_true(model_parameters(&rows[i].shape) == rows[i].parameters);
}

/* Megatron's BERT of 24 layers is its "345M": 336 million parameters with this vocabulary. Counted tensor by tensor. */
static void bert_counts_its_heads_and_token_types(void **state)
{
    const struct model_shape shape = {MODEL_SIZES(24, 1024, 16, 512, 30522), BERT_FIELDS};
    const uint64_t d = 1024, embeddings = (30522 + 512 + 2) * d, norm = 2 * d;
    const uint64_t block = norm + (d * 3 * d + 3 * d) + (d * d + d) + norm + (d * 4 * d + 4 * d) + (4 * d * d + d);
    const uint64_t lm_head = d * d + d + norm + 30522, pooler = d * d + d, binary_head = 2 * d + 2;

    assert_true(model_parameters(&shape) == embeddings + 24 * block + norm + lm_head + pooler + binary_head);
    assert_true(model_parameters(&shape) == 336226108);
}

static int count_tensors(struct model_shape shape, enum unit_kind kind, const char *name)
{
    struct model_tensor tensors[UNIT_MAX_TENSORS];
    int n = model_tensors(&shape, kind, tensors), count = 0;

    for (int i = 0; i < n; i++)
        count += !name || strcmp(tensors[i].name, name) == 0;
    return count;
}

static void absent_tensors_are_not_in_the_table(void **state)
{
    const struct model_shape gpt = {MODEL_SIZES(2, 24, 4, 8, 32)}, bert = {MODEL_SIZES(2, 24, 4, 8, 32), BERT_FIELDS};
    struct model_shape other = gpt;
    struct model_tensor tensors[UNIT_MAX_TENSORS];

    assert_int_equal(count_tensors(gpt, UNIT_KIND_POSITION, NULL), 1);
    assert_int_equal(count_tensors(bert, UNIT_KIND_POSITION, "wtt.weight"), 1);
    assert_int_equal(count_tensors(gpt, UNIT_KIND_HEAD, NULL), 2);
    assert_int_equal(count_tensors(bert, UNIT_KIND_HEAD, NULL), 11);
    other.positions = POSITIONS_ROTARY;
    other.biases = BIASES_NONE;
    other.untied = true;
    assert_int_equal(count_tensors(other, UNIT_KIND_POSITION, NULL), 0);
    assert_int_equal(count_tensors(other, UNIT_KIND_HEAD, "lm_head.weight"), 1);
    for (int i = model_tensors(&other, UNIT_KIND_BLOCK, tensors); i > 0; i--)
        assert_true(tensors[i - 1].role != ROLE_BIAS);
    assert_int_equal(count_tensors(other, UNIT_KIND_BLOCK, NULL), 6);
    assert_true(model_parameters(&other) ==
                model_parameters(&gpt) - 8 * 24 - 2 * (4 * 24 + 3 * 24 + 4 * 24) - 24 + 32 * 24);
}

static void widths_are_fields(void **state)
{
    struct model_shape shape = {MODEL_SIZES(2, 24, 4, 8, 32)};

    assert_int_equal(model_head_size(&shape), 6);
    assert_int_equal(model_qkv_width(&shape), 72);
    assert_int_equal(model_inner(&shape), 96);
    assert_true(model_unit_products(&shape, UNIT_KIND_BLOCK) == 12 * 24 * 24);
    shape.head_size = 10;
    shape.inner = 50;
    assert_int_equal(model_query_width(&shape), 40);
    assert_true(model_elements(&shape, PART_QKV, WEIGHT) == 24 * 3 * 40);
    assert_true(model_elements(&shape, PART_QKV, BIAS) == 3 * 40);
    assert_true(model_elements(&shape, PART_ATTN_PROJ, WEIGHT) == 40 * 24);
    assert_true(model_unit_products(&shape, UNIT_KIND_BLOCK) == 4 * 24 * 40 + 2 * 24 * 50);
    shape.kv_heads = 2;
    assert_int_equal(model_qkv_width(&shape), 40 + 2 * 20);
}

static void what_the_trainer_cannot_compute_is_refused(void **state)
{
    const struct model_shape good[] = {{MODEL_SIZES(2, 24, 4, 8, 32)}, {MODEL_SIZES(2, 24, 4, 8, 32), BERT_FIELDS}};
    const struct model_shape bad[] = {
        {MODEL_SIZES(2, 24, 4, 8, 32), .kv_heads = 2},
        {MODEL_SIZES(2, 24, 4, 8, 32), .kv_heads = 3, .layout = LAYOUT_LLAMA},
        {MODEL_SIZES(2, 24, 4, 8, 32), .activation = ACTIVATION_SWIGLU},
        {MODEL_SIZES(2, 24, 4, 8, 32), .qk_norm = true},
        {MODEL_SIZES(2, 24, 8, 8, 32), .positions = POSITIONS_ROTARY},
        {MODEL_SIZES(2, 24, 4, 8, 32), .positions = POSITIONS_ROTARY, .rope_scaling = ROPE_SCALING_LLAMA3},
        {MODEL_SIZES(2, 24, 4, 8, 32), BERT_FIELDS, .norm = NORM_RMS},
        {MODEL_SIZES(2, 24, 4, 8, 32), BERT_FIELDS, .window = 2}};
    struct error err;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(model_check(&good[i], &err), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(model_check(&bad[i], &err), -1);
        assert_int_equal(err.code, CODE_CONFIG);
    }
}

static void presets_have_the_sizes_of_the_design(void **state)
{
    static const struct {
        const char *name;
        int layers, hidden, heads;
    } rows[] = {
        {"gpt-125m", 12, 768, 12},  {"gpt-345m", 24, 1024, 16}, {"gpt-350m", 24, 1024, 16}, {"gpt-760m", 24, 1536, 12},
        {"gpt-1b", 24, 2048, 16},   {"gpt-1.3b", 24, 2048, 32}, {"gpt-2.5b", 48, 2048, 16}, {"gpt-3b", 32, 2560, 20},
        {"gpt-5.8b", 72, 2560, 32}, {"gpt-7b", 32, 4096, 32},   {"gpt-13b", 40, 5120, 40},  {"gpt-181b", 72, 14336, 64},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct model_shape shape;
        int kind;

        assert_int_equal(model_preset(&shape, &kind, rows[i].name, NULL), 0);
        assert_int_equal(shape.layers, rows[i].layers);
        assert_int_equal(shape.hidden, rows[i].hidden);
        assert_int_equal(shape.heads, rows[i].heads);
        assert_int_equal(shape.seq_length, 1024);
        assert_int_equal(shape.vocab, 50257);
        assert_int_equal(shape.objective, OBJECTIVE_CAUSAL);
        assert_int_equal(shape.hidden % shape.heads, 0);
    }
}

/* As transformers counts them. */
static void llama_presets_have_the_published_counts(void **state)
{
    static const struct {
        const char *name;
        uint64_t parameters;
    } rows[] = {
        {"tinyllama-1.1b", 1100048384}, {"smollm2-135m", 134515008},      {"smollm2-360m", 361821120},
        {"smollm2-1.7b", 1711376384},   {"llama-2-7b", 6738415616},       {"llama-3.2-1b", 1235814400},
        {"llama-3.2-3b", 3212749824},   {"llama-3.1-8b", 8030261248},     {"llama-3.1-70b", 70553706496},
        {"mistral-7b", 7241732096},     {"llama-3.1-405b", 405853388800}, {"qwen2.5-0.5b", 494032768},
        {"qwen2.5-7b", 7615616512},     {"qwen3-0.6b", 596049920},        {"qwen3-8b", 8190735360},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct model_shape shape;
        int kind;

        assert_int_equal(model_preset(&shape, &kind, rows[i].name, NULL), 0);
        assert_int_equal(model_check(&shape, NULL), 0);
        if (model_parameters(&shape) != rows[i].parameters)
            fail_msg("%s has %zu parameters", rows[i].name, (size_t)model_parameters(&shape));
    }
}

/* Frequencies of Llama 3.1 8B, computed by transformers 5.24.0: position 1's angle. */
static void llama3_scales_the_slow_rotations(void **state)
{
    static const struct {
        int pair;
        double frequency;
    } rows[] = {{29, 0.002166570763503359}, {34, 0.0001785078127679964}, {63, 3.068925988914511e-07}};
    struct model_shape shape;
    float *angles;
    int kind;

    assert_int_equal(model_preset(&shape, &kind, "llama-3.1-8b", NULL), 0);
    shape.seq_length = 1001;
    angles = calloc(1001, 128 * sizeof *angles);
    assert_non_null(angles);
    model_angles(&shape, angles);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const float *at = angles + 1000 * 128 + rows[i].pair;

        assert_float_equal(at[0], cos(1000 * rows[i].frequency), 1e-6);
        assert_float_equal(at[64], sin(1000 * rows[i].frequency), 1e-6);
    }
    assert_true(angles[0] == 1 && angles[64] == 0);
    free(angles);
}

static void bert_presets(void **state)
{
    struct model_shape shape;
    int kind;

    assert_int_equal(model_preset(&shape, &kind, "bert-345m", NULL), 0);
    assert_memory_equal(&shape, (&(struct model_shape){MODEL_SIZES(24, 1024, 16, 512, 30522), BERT_FIELDS}),
                        sizeof shape);
    assert_int_equal(model_preset(&shape, &kind, "bert-tiny", NULL), 0);
    assert_memory_equal(&shape, (&(struct model_shape){MODEL_SIZES(4, 128, 4, 128, 260), BERT_FIELDS}), sizeof shape);
}

static void tiny_is_for_bytes(void **state)
{
    struct model_shape shape;
    int kind;

    assert_int_equal(model_preset(&shape, &kind, "gpt-tiny", NULL), 0);
    assert_int_equal(shape.layers, 4);
    assert_int_equal(shape.hidden, 128);
    assert_int_equal(shape.heads, 4);
    assert_int_equal(shape.seq_length, 128);
    assert_int_equal(shape.vocab, 256);
}

static void unknown_presets_list_the_known_ones(void **state)
{
    struct model_shape shape;
    int kind;
    struct error err;

    assert_int_equal(model_preset(&shape, &kind, "bert-346m", &err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_non_null(strstr(err.text, "\"bert-346m\""));
    assert_non_null(strstr(err.text, "gpt-tiny, gpt-125m"));
    assert_non_null(strstr(err.text, "gpt-181b"));
    assert_non_null(strstr(err.text, "bert-345m"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_parameter_counts),
        cmocka_unit_test(bert_counts_its_heads_and_token_types),
        cmocka_unit_test(absent_tensors_are_not_in_the_table),
        cmocka_unit_test(widths_are_fields),
        cmocka_unit_test(what_the_trainer_cannot_compute_is_refused),
        cmocka_unit_test(presets_have_the_sizes_of_the_design),
        cmocka_unit_test(llama_presets_have_the_published_counts),
        cmocka_unit_test(llama3_scales_the_slow_rotations),
        cmocka_unit_test(bert_presets),
        cmocka_unit_test(tiny_is_for_bytes),
        cmocka_unit_test(unknown_presets_list_the_known_ones),
    };

    return cmocka_run_group_tests_name("model_shape", tests, NULL, NULL);
}

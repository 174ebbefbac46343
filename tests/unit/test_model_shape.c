/* Presets and the number of parameters, against published counts. */
#include "common/job.h"
#include "tests/cmocka_test.h"

/* N of MosaicML's tables at V = 50257, and GPT-2's own four sizes at s = 1024 as Hugging Face counts them. */
static void published_parameter_counts(void **state)
{
    static const struct {
        struct model_shape shape;
        uint64_t parameters;
    } rows[] = {
        {{12, 768, 12, 2048, 50257, MODEL_GPT}, 125226240},    {{24, 1536, 12, 16384, 50257, MODEL_GPT}, 782320128},
        {{40, 5120, 40, 2048, 50257, MODEL_GPT}, 12853386240}, {{12, 768, 12, 1024, 50257, MODEL_GPT}, 124439808},
        {{24, 1024, 16, 1024, 50257, MODEL_GPT}, 354823168},   {{36, 1280, 20, 1024, 50257, MODEL_GPT}, 774030080},
        {{48, 1600, 25, 1024, 50257, MODEL_GPT}, 1557611200},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_true(model_parameters(&rows[i].shape) == rows[i].parameters);
}

/* (layers, hidden, heads) of doc/design's list. */
/* Megatron's BERT of 24 layers is its "345M": 336 million parameters with this vocabulary. Counted tensor by tensor. */
static void bert_counts_its_heads_and_token_types(void **state)
{
    const struct model_shape shape = {24, 1024, 16, 512, 30522, MODEL_BERT};
    const uint64_t d = 1024, embeddings = (30522 + 512 + 2) * d, norm = 2 * d;
    const uint64_t block = norm + (d * 3 * d + 3 * d) + (d * d + d) + norm + (d * 4 * d + 4 * d) + (4 * d * d + d);
    const uint64_t lm_head = d * d + d + norm + 30522, pooler = d * d + d, binary_head = 2 * d + 2;

    assert_true(model_parameters(&shape) == embeddings + 24 * block + norm + lm_head + pooler + binary_head);
    assert_true(model_parameters(&shape) == 336226108);
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

        assert_int_equal(model_preset(&shape, rows[i].name, NULL), 0);
        assert_int_equal(shape.layers, rows[i].layers);
        assert_int_equal(shape.hidden, rows[i].hidden);
        assert_int_equal(shape.heads, rows[i].heads);
        assert_int_equal(shape.seq_length, 1024);
        assert_int_equal(shape.vocab, 50257);
        assert_int_equal(shape.kind, MODEL_GPT);
        assert_int_equal(shape.hidden % shape.heads, 0);
    }
}

static void bert_presets(void **state)
{
    struct model_shape shape;

    assert_int_equal(model_preset(&shape, "bert-345m", NULL), 0);
    assert_memory_equal(&shape, (&(struct model_shape){24, 1024, 16, 512, 30522, MODEL_BERT}), sizeof shape);
    assert_int_equal(model_preset(&shape, "bert-tiny", NULL), 0);
    assert_memory_equal(&shape, (&(struct model_shape){4, 128, 4, 128, 260, MODEL_BERT}), sizeof shape);
}

static void tiny_is_for_bytes(void **state)
{
    struct model_shape shape;

    assert_int_equal(model_preset(&shape, "gpt-tiny", NULL), 0);
    assert_int_equal(shape.layers, 4);
    assert_int_equal(shape.hidden, 128);
    assert_int_equal(shape.heads, 4);
    assert_int_equal(shape.seq_length, 128);
    assert_int_equal(shape.vocab, 256);
}

static void unknown_presets_list_the_known_ones(void **state)
{
    struct model_shape shape;
    struct error err;

    assert_int_equal(model_preset(&shape, "bert-346m", &err), -1);
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
        cmocka_unit_test(presets_have_the_sizes_of_the_design),
        cmocka_unit_test(bert_presets),
        cmocka_unit_test(tiny_is_for_bytes),
        cmocka_unit_test(unknown_presets_list_the_known_ones),
    };

    return cmocka_run_group_tests_name("model_shape", tests, NULL, NULL);
}

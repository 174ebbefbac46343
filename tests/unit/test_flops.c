/* The formulas against rows that others published: BigScience's training logs and MosaicML's llm-foundry tables. */
#include <math.h>

#include "plan/cost.h"
#include "tests/cmocka_test.h"
#include "tests/unit/model_fields.h"

static void assert_close(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.10g, not %.10g within %g", value, expected, tolerance);
}

/* The same before 2022: rows of February 2022. */
static void megatron_before(void **state)
{
    const struct model_shape shape = {MODEL_SIZES(80, 13824, 96, 2048, 250880)};

    assert_close(flops_megatron_before(&shape, 2048.0 * 2048.0, true) / 147.43 / 320 * 1e-12, 130.53, 0.05);
}

/* TFLOPs a GPU of the log line of Megatron, as BigScience ran it: batch 2048 of 2048 tokens, with recompute. */
static void bigscience(void **state)
{
    static const struct {
        int layers, hidden, gpus;
        double seconds, tflops;
    } rows[] = {
        {72, 14336, 384, 120.18, 134.15},
        {72, 14336, 384, 110.48, 145.92},
        {80, 13824, 320, 147.04, 135.92},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct model_shape shape = {MODEL_SIZES(rows[i].layers, rows[i].hidden, 64, 2048, 250880)};
        double flops = flops_megatron(&shape, 2048.0 * 2048.0, true);

        assert_close(flops / rows[i].seconds / rows[i].gpus * 1e-12, rows[i].tflops, 0.01);
    }
}

/* llm-foundry's tables, 8 A100 of 312 TFLOP/s. Where it does not recompute, hfu is mfu. */
static const struct {
    struct model_shape shape;
    bool recompute;
    double sequences_per_s, mfu_star, mfu, hfu_star, hfu;
} mosaicml_rows[] = {
    {{MODEL_SIZES(12, 768, 12, 2048, 50257)}, false, 358.5442, 0.2210, 0.2433, 0.2210, 0.2433},
    {{MODEL_SIZES(24, 1536, 12, 16384, 50257)}, false, 5.6506, 0.1741, 0.2637, 0.1741, 0.2637},
    {{MODEL_SIZES(40, 5120, 40, 2048, 50257)}, true, 6.8014, 0.4304, 0.4397, 0.5738, 0.5879},
};

#define MOSAICML_ROWS (sizeof mosaicml_rows / sizeof mosaicml_rows[0])
#define A100_NODE     (8 * 312e12)

static void mosaicml(void **state)
{
    for (size_t i = 0; i < MOSAICML_ROWS; i++) {
        const struct model_shape *m = &mosaicml_rows[i].shape;
        double tokens = mosaicml_rows[i].sequences_per_s * m->seq_length;
        bool recompute = mosaicml_rows[i].recompute;

        /* four digits, and the throughput's seventh */
        assert_close(flops_mosaicml(m, tokens, false, false) / A100_NODE, mosaicml_rows[i].mfu_star, 0.51e-4);
        assert_close(flops_mosaicml(m, tokens, false, true) / A100_NODE, mosaicml_rows[i].mfu, 0.51e-4);
        assert_close(flops_mosaicml(m, tokens, recompute, false) / A100_NODE, mosaicml_rows[i].hfu_star, 0.51e-4);
        assert_close(flops_mosaicml(m, tokens, recompute, true) / A100_NODE, mosaicml_rows[i].hfu, 0.51e-4);
    }
}

/* MosaicML's mfu adds 4 Lds for attention, a third of PaLM's 12 Lds. So PaLM's MFU, ours, is mfu* + 3 (mfu - mfu*). */
static void palm_from_mosaicmls_rows(void **state)
{
    for (size_t i = 0; i < MOSAICML_ROWS; i++) {
        const struct model_shape *m = &mosaicml_rows[i].shape;
        double tokens = mosaicml_rows[i].sequences_per_s * m->seq_length;
        double attention = mosaicml_rows[i].mfu - mosaicml_rows[i].mfu_star;

        assert_close(flops_model(m, tokens) / A100_NODE, mosaicml_rows[i].mfu_star + attention * 3, 4e-4);
    }
}

static void recompute_costs_a_forward_pass_more(void **state)
{
    const struct model_shape shape = {MODEL_SIZES(12, 768, 12, 1024, 50257)};
    double n = (double)model_parameters(&shape), lds = 12.0 * 768 * 1024;

    assert_close(flops_model(&shape, 1), 6 * n + 12 * lds, 1e-3);
    assert_close(flops_hardware(&shape, 1000, RECOMPUTE_NONE), flops_model(&shape, 1000), 0);
    assert_close(flops_hardware(&shape, 1, RECOMPUTE_FULL), 8 * n + 16 * lds, 1e-3);
    assert_close(flops_hardware(&shape, 1, RECOMPUTE_SELECTIVE), 6 * n + 16 * lds + 6.0 * 12 * 768 * 768, 1e-3);
    assert_close(flops_megatron(&shape, 1000, true) / flops_megatron(&shape, 1000, false), 4.0 / 3.0, 1e-12);
    assert_close(flops_model(&shape, 2000), 2 * flops_model(&shape, 1000), 0);
}

/* BERT's attention counts as a GPT's; its own parameters are in N. */
static void bert_counts_as_a_gpt_of_its_parameters(void **state)
{
    const struct model_shape bert = {MODEL_SIZES(24, 1024, 16, 512, 30522), BERT_FIELDS};

    assert_close(flops_model(&bert, 1), 6.0 * 336226108 + 12.0 * 24 * 1024 * 512, 1e-3);
}

/* Llama 3.1 8B at 8192 tokens: the two counts that its published rates go by. */
static void a_causal_attention_counts_half_or_whole(void **state)
{
    struct model_shape shape;
    int kind;

    assert_int_equal(model_preset(&shape, &kind, "llama-3.1-8b", NULL), 0);
    assert_close(flops_model(&shape, 1), 57.91e9, 0.01e9);
    assert_close(flops_causal(&shape, 1), 51.47e9, 0.01e9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bigscience),
        cmocka_unit_test(megatron_before),
        cmocka_unit_test(mosaicml),
        cmocka_unit_test(palm_from_mosaicmls_rows),
        cmocka_unit_test(recompute_costs_a_forward_pass_more),
        cmocka_unit_test(bert_counts_as_a_gpt_of_its_parameters),
        cmocka_unit_test(a_causal_attention_counts_half_or_whole),
    };

    return cmocka_run_group_tests_name("flops", tests, NULL, NULL);
}

/* The formulas against rows that others published: BigScience's training logs and MosaicML's llm-foundry tables. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "common/flops.h"

static void assert_close(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.10g, not %.10g within %g", value, expected, tolerance);
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

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct model_shape shape = {rows[i].layers, rows[i].hidden, 64, 2048, 250880, MODEL_GPT};
        double flops = flops_megatron(&shape, 2048.0 * 2048.0, true);

        assert_close(flops / rows[i].seconds / rows[i].gpus * 1e-12, rows[i].tflops, 0.01);
    }
}

/*
 * MosaicML, 8 A100 of 312 TFLOP/s. Its mfu* counts 6N a token and no attention, and its mfu adds 4 Lds for attention, a
 * third of PaLM's 12 Lds. So PaLM's MFU, ours, is mfu* + 3 (mfu - mfu*).
 */
static void mosaicml(void **state)
{
    static const struct {
        struct model_shape shape;
        double sequences_per_s, mfu_star, mfu;
    } rows[] = {
        {{12, 768, 12, 2048, 50257, MODEL_GPT}, 358.5442, 0.2210, 0.2433},
        {{24, 1536, 12, 16384, 50257, MODEL_GPT}, 5.6506, 0.1741, 0.2637},
        {{40, 5120, 40, 2048, 50257, MODEL_GPT}, 6.8014, 0.4304, 0.4397},
    };
    const double peak = 8 * 312e12;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct model_shape *m = &rows[i].shape;
        double tokens = rows[i].sequences_per_s * m->seq_length;
        double without = 6.0 * (double)model_parameters(m) * tokens / peak;
        double attention = rows[i].mfu - rows[i].mfu_star;

        assert_close(without, rows[i].mfu_star, 1e-4);
        assert_close(flops_model(m, tokens) / peak, rows[i].mfu_star + attention * 3, 4e-4);
    }
}

static void recompute_costs_a_forward_pass_more(void **state)
{
    const struct model_shape shape = {12, 768, 12, 1024, 50257, MODEL_GPT};

    (void)state;
    assert_close(flops_hardware(&shape, 1000, false), flops_model(&shape, 1000), 0);
    assert_close(flops_hardware(&shape, 1000, true) / flops_model(&shape, 1000), 4.0 / 3.0, 1e-12);
    assert_close(flops_megatron(&shape, 1000, true) / flops_megatron(&shape, 1000, false), 4.0 / 3.0, 1e-12);
    assert_close(flops_model(&shape, 2000), 2 * flops_model(&shape, 1000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bigscience),
        cmocka_unit_test(mosaicml),
        cmocka_unit_test(recompute_costs_a_forward_pass_more),
    };

    return cmocka_run_group_tests_name("flops", tests, NULL, NULL);
}

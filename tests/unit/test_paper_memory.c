/* Published numbers of memory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "common/paper_memory.h"

static void assert_close(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.10g, not %.10g within %g", value, expected, tolerance);
}

/* "2.5B" on 8 ranks: 40.4, 13.9, 9.5, 5.0 GB, of which the first does not fit 40 GB. */
static void states_of_a_model_of_2_5_billion(void **state)
{
    static const double gigabytes[] = {40.4, 13.9, 9.5, 5.0};
    struct model_shape shape;
    double n;

    (void)state;
    assert_int_equal(model_preset(&shape, "gpt-2.5b", NULL), 0);
    n = (double)model_parameters(&shape);
    for (int zero = 0; zero <= 3; zero++)
        assert_close(paper_state_bytes(n, zero, 8, false) / 1e9, gigabytes[zero], 0.05);
}

static void state_formulas(void **state)
{
    static const struct {
        int zero;
        double bytes, fp32_more; /* of 1 parameter on 4 ranks */
    } rows[] = {{0, 16, 2}, {1, 4 + 12 / 4.0, 2}, {2, 2 + 14 / 4.0, 2 / 4.0}, {3, 16 / 4.0, 2 / 4.0}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_close(paper_state_bytes(1, rows[i].zero, 4, false), rows[i].bytes, 1e-12);
        assert_close(paper_state_bytes(1, rows[i].zero, 4, true), rows[i].bytes + rows[i].fp32_more, 1e-12);
        assert_close(paper_state_bytes(1, rows[i].zero, 1, false), 16, 1e-12);
    }
}

/* arXiv 2205.05198: 5as/h is 80 for GPT-3 and 64 for MT-NLG; selective recompute saves 70% and 65% of activations. */
static void activations_of_gpt3_and_mt_nlg(void **state)
{
    static const struct {
        struct model_shape shape;
        double scores, saved;
    } rows[] = {
        {{96, 12288, 96, 2048, 51200, MODEL_GPT}, 80, 0.70},
        {{105, 20480, 128, 2048, 51200, MODEL_GPT}, 64, 0.65},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct model_shape *m = &rows[i].shape;
        double sbh = 2048.0 * m->hidden, e = 1e-9;
        double whole = paper_activation_bytes(m, 1, 8, true, RECOMPUTE_NONE);
        double selective = paper_activation_bytes(m, 1, 8, true, RECOMPUTE_SELECTIVE);

        assert_close(1 - selective / whole, rows[i].saved, 0.005);
        assert_close(whole / sbh, (34 + rows[i].scores) / 8, e);
        assert_close(selective / sbh, 34.0 / 8, e);
        assert_close(paper_activation_bytes(m, 1, 1, false, RECOMPUTE_NONE) / sbh, 34 + rows[i].scores, e);
        assert_close(paper_activation_bytes(m, 1, 8, false, RECOMPUTE_NONE) / sbh, 10 + 24.0 / 8 + rows[i].scores / 8,
                     e);
        assert_close(paper_activation_bytes(m, 1, 8, false, RECOMPUTE_SELECTIVE) / sbh, 10 + 24.0 / 8, e);
        assert_close(paper_activation_bytes(m, 1, 8, true, RECOMPUTE_FULL) / sbh, 2, e);
        assert_close(paper_activation_bytes(m, 3, 8, true, RECOMPUTE_NONE), 3 * whole, 1e-3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_of_a_model_of_2_5_billion),
        cmocka_unit_test(state_formulas),
        cmocka_unit_test(activations_of_gpt3_and_mt_nlg),
    };

    return cmocka_run_group_tests_name("paper_memory", tests, NULL, NULL);
}

#include <math.h>

#include "tests/cmocka_test.h"
#include "trainer/infer/inference.h"

enum { TOKENS = 40, DRAWS = 4000 };

/* Which tokens are drawn at 4000 equally spaced uniform numbers, and how often. */
static void draw_all(const struct sampling *sampling, const float *logits, const bool *allowed, int drawn[TOKENS])
{
    float copy[TOKENS];
    int32_t order[TOKENS];

    memset(drawn, 0, TOKENS * sizeof *drawn);
    for (int i = 0; i < DRAWS; i++) {
        memcpy(copy, logits, sizeof copy);
        drawn[sample_next(sampling, copy, allowed, TOKENS, (i + 0.5) / DRAWS, order)]++;
    }
}

/* The kept tokens and their shares by a sort, as the header defines them. */
static void keep_slowly(const struct sampling *s, const float *logits, const bool *allowed, double share[TOKENS])
{
    int order[TOKENS], n = 0, kept;
    double p[TOKENS], total = 0, sum = 0;

    memset(share, 0, TOKENS * sizeof *share);
    for (int id = 0; id < TOKENS; id++)
        if (allowed[id] && isfinite(logits[id]))
            order[n++] = id;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++)
            if (logits[order[j]] > logits[order[i]] || (logits[order[j]] == logits[order[i]] && order[j] < order[i])) {
                int other = order[i];

                order[i] = order[j];
                order[j] = other;
            }
    kept = s->top_k > 0 && s->top_k < n ? s->top_k : n;
    for (int i = 0; i < kept; i++)
        total += p[i] = exp(((double)logits[order[i]] - (double)logits[order[0]]) / s->temperature);
    for (int i = 0; i < kept && (i == 0 || sum < s->top_p * total); i++)
        sum += share[order[i]] = p[i];
    for (int id = 0; id < TOKENS; id++)
        share[id] /= sum;
}

static void test_sampling(void **state)
{
    static const struct sampling cases[] = {
        {.temperature = 1, .top_p = 1},
        {.temperature = 0.5, .top_p = 1, .top_k = 3},
        {.temperature = 1.7, .top_p = 0.6},
        {.temperature = 1, .top_p = 0.8, .top_k = 10},
        {.temperature = 2, .top_p = 0.3, .top_k = 100},
        {.temperature = 1, .top_p = 1e-9},
    };
    float logits[TOKENS];
    bool allowed[TOKENS];

    for (int id = 0; id < TOKENS; id++) {
        logits[id] = (float)(id * 17 % 13) / 3; /* with ties */
        allowed[id] = id % 7 != 2;
    }
    logits[5] = NAN;
    logits[6] = INFINITY;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double share[TOKENS];
        int drawn[TOKENS];

        draw_all(&cases[i], logits, allowed, drawn);
        keep_slowly(&cases[i], logits, allowed, share);
        for (int id = 0; id < TOKENS; id++)
            if (fabs(drawn[id] - share[id] * DRAWS) > 1.5)
                fail_msg("case %zu: token %d was drawn %d times, not %.1f", i, id, drawn[id], share[id] * DRAWS);
    }
}

static void test_greedy(void **state)
{
    float logits[] = {1, 7, NAN, 7, INFINITY}, none[] = {NAN, INFINITY};
    const bool allowed[] = {true, true, true, true, true}, few[] = {true, false, true, false, true};
    const struct sampling greedy = {.top_p = 1};
    int32_t order[5];

    assert_int_equal(sample_next(&greedy, logits, allowed, 5, 0.9, order), 1); /* the first of equal ones */
    assert_int_equal(sample_next(&greedy, logits, few, 5, 0.9, order), 0);
    assert_int_equal(sample_next(&greedy, none, allowed, 2, 0.9, order), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sampling), cmocka_unit_test(test_greedy)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

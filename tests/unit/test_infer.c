#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/infer/sampling.h"
#include "trainer/infer/score.h"
#include "trainer/infer/transcript.h"

static struct error err;

/* ---- sampling ---- */

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

    (void)state;
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

    (void)state;
    assert_int_equal(sample_next(&greedy, logits, allowed, 5, 0.9, order), 1); /* the first of equal ones */
    assert_int_equal(sample_next(&greedy, logits, few, 5, 0.9, order), 0);
    assert_int_equal(sample_next(&greedy, none, allowed, 2, 0.9, order), -1);
}

/* ---- windows and words ---- */

/* Each token but the first is asked for once, with as much context as the window allows. */
static void check_windows(int count, int seq, int stride)
{
    int32_t *tokens = calloc((size_t)count, sizeof *tokens);
    struct span *spans;
    size_t n = score_windows(tokens, (size_t)count, seq, stride, &spans, &err);
    int next = 1;

    for (size_t i = 0; i < n; i++) {
        int begin = (int)(spans[i].tokens - tokens), end = begin + spans[i].length;

        assert_true(begin >= 0 && end <= count && spans[i].length <= seq + 1 && spans[i].first >= 1);
        assert_int_equal(begin + spans[i].first, next);
        next = end;
        if (stride > 0 && stride < seq)
            assert_int_equal(begin, (int)i * stride);
        else if (i + 1 == n)
            assert_true(begin == 0 || spans[i].length == seq + 1);
    }
    assert_int_equal(next, count);
    free(spans);
    free(tokens);
}

static void test_windows(void **state)
{
    (void)state;
    for (int count = 2; count < 60; count++)
        for (int stride = 0; stride <= 8; stride++)
            check_windows(count, 8, stride);
    check_windows(2, 1, 0);
    check_windows(7, 1, 1);
}

static void test_words(void **state)
{
    static const struct {
        const char *text;
        size_t words;
    } cases[] = {
        {"", 1},
        {"a", 1},
        {"a b", 2},
        {" a\t\nb ", 4},
        {"a\xc2\xa0"
         "b\xe2\x80\x89"
         "c\xe3\x80\x80"
         "d\xe1\x9a\x80"
         "e\xe2\x81\x9f"
         "f\xc2\x85g",
         7},
        {"a\x1c"
         "b\xe2\x80\x8b"
         "c\xff"
         "d\xe2\x80",
         2}, /* U+200B and broken bytes are no white space */
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(score_words(cases[i].text, strlen(cases[i].text)), cases[i].words);
}

/* ---- text that grows ---- */

static struct tokenizer *bytes;

/* Adds the bytes one by one. Returns the text that is certain at each step, between bars. */
static const char *grow_text(const char *text, const char *const *stops, size_t nstops)
{
    static char out[200];
    struct transcript t = {.state.begun = true};
    size_t printed = 0, n = 0;

    for (const char *at = text; *at && !t.stopped; at++) {
        assert_int_equal(transcript_add(&t, bytes, (unsigned char)*at, stops, nstops, &err), 0);
        n += (size_t)snprintf(out + n, sizeof out - n, "%.*s|", (int)(t.certain - printed), t.text.text + printed);
        printed = t.certain;
    }
    assert_int_equal(transcript_finish(&t, bytes, &err), 0);
    snprintf(out + n, sizeof out - n, "%.*s%s", (int)(t.certain - printed), t.text.text + printed,
             t.stopped ? "." : "");
    free(t.text.text);
    return out;
}

static void test_transcript(void **state)
{
    const char *const stops[] = {"abcd", "bcx", "\n"};

    (void)state;
    bytes = tokenizer_open("bytes", &err);
    assert_string_equal(grow_text("hello", NULL, 0), "h|e|l|l|o|");
    assert_string_equal(grow_text("\xc3\xa9x", NULL, 0), "|\xc3\xa9|x|"); /* a character is whole or not there */
    assert_string_equal(grow_text("a\xc3", NULL, 0), "a||\xc3");
    assert_string_equal(grow_text("xabcde", stops, 3), "x|||||.");
    assert_string_equal(grow_text("xabcy", stops, 3), "x||||abcy|");
    assert_string_equal(grow_text("xabcx", stops, 3), "x||||a|.");
    assert_string_equal(grow_text("aaab", stops, 3), "|a|a||ab");
    assert_string_equal(grow_text("one\ntwo", stops, 3), "o|n|e||.");
    tokenizer_close(bytes);
}

static void test_utf8(void **state)
{
    struct text_list text = {0};

    (void)state;
    assert_int_equal(text_append_utf8(&text, "a\0\xc3\xa9\xff\xe2\x82z\xf0\x9f\x98\x80\xe2", 13, &err), 0);
    assert_int_equal(text.count, 21);
    assert_memory_equal(text.text, "a\0\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\xf0\x9f\x98\x80\xef\xbf\xbd", 21);
    free(text.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sampling), cmocka_unit_test(test_greedy),     cmocka_unit_test(test_windows),
        cmocka_unit_test(test_words),    cmocka_unit_test(test_transcript), cmocka_unit_test(test_utf8),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Samples cut out of documents: every token once, at the ends of sentences where that can be. */
#include <math.h>
#include <unistd.h>

#include "tests/unit/data_files.h"
#include "trainer/data/draws.h"
#include "trainer/data/samples.h"

#define PREFIX "test_packing"

enum { SEQUENCES = 6000, LONGEST = 60, TOKENS = SEQUENCES * LONGEST };

/* A data set of random lengths; empty sentences and documents, and very short ones, are among them. */
static struct {
    int lengths[SEQUENCES];
    uint64_t boundaries[SEQUENCES + 1];
    size_t documents;
    uint64_t tokens;
    bool sentence_end[TOKENS + 1], document_end[TOKENS + 1]; /* before this token */
} set;

static void make_set(uint64_t number)
{
    static const unsigned char tokens[TOKENS];
    struct draws draws = draws_start(31, 41, number);
    uint64_t sequence = 0;

    memset(&set, 0, sizeof set);
    for (int i = 0; i < SEQUENCES; i++)
        set.lengths[i] = (int)draws_below(&draws, draws_below(&draws, 4) == 0 ? 4 : LONGEST);
    while (sequence < SEQUENCES) {
        uint64_t left = SEQUENCES - sequence, here = draws_below(&draws, draws_below(&draws, 5) == 0 ? 3 : 40);

        sequence += here < left ? here : left;
        set.boundaries[++set.documents] = sequence;
    }
    for (size_t d = 0; d < set.documents; d++) {
        for (uint64_t i = set.boundaries[d]; i < set.boundaries[d + 1]; i++) {
            set.tokens += (uint64_t)set.lengths[i];
            set.sentence_end[set.tokens] = true;
        }
        set.document_end[set.tokens] = true;
    }
    write_data_set(PREFIX, tokens, set.lengths, SEQUENCES, set.boundaries, set.documents);
}

static int remove_files(void **state)
{
    unlink(PREFIX ".idx");
    unlink(PREFIX ".bin");
    return 0;
}

static uint64_t end_after(const bool *ends, uint64_t token)
{
    do
        token++;
    while (!ends[token]);
    return token;
}

/* What lies between two samples: documents of one token, or with most = 2 the last one of an odd number. */
static void check_gap(uint64_t from, uint64_t to, int most)
{
    for (uint64_t token = from; token < to; token++)
        assert_true(set.document_end[token + 1] && (set.document_end[token] || token == 0 || most == 2));
}

/* Cut within a sentence: then fewer than two whole ones were there, or less than half of the target; or one more token
 * would have ended the document. */
static void check_end(const struct packed *packed, const int *breaks, int most)
{
    uint64_t end = packed->first + (uint64_t)packed->length;

    if (set.sentence_end[end] || packed->breaks < 2 || 2 * breaks[packed->breaks - 1] < most)
        return;
    assert_true(packed->length == most - 1 && end_after(set.document_end, end) - end == 2);
}

/* Not the last of its document: then it has at least two sentences, is half full, and the next one does not fit; or it
 * is full. */
static void check_full(const struct packed *packed, int most)
{
    uint64_t end = packed->first + (uint64_t)packed->length;

    if (set.document_end[end] || packed->length >= most - 1)
        return;
    assert_true(packed->breaks >= 1 && 2 * packed->length >= most);
    assert_true(end_after(set.sentence_end, end) - packed->first > (uint64_t)most);
}

static void check_sample(const struct packed *packed, const int *breaks, int most)
{
    int found = 0;

    assert_in_range(packed->length, 2, most);
    for (int i = 1; i < packed->length; i++) {
        assert_false(set.document_end[packed->first + (uint64_t)i]);
        if (set.sentence_end[packed->first + (uint64_t)i]) {
            assert_true(found < packed->breaks);
            assert_int_equal(breaks[found++], i);
        }
    }
    assert_int_equal(found, packed->breaks);
}

static void check_packing(int most, double short_probability)
{
    struct error err;
    struct indexed *data = indexed_open(PREFIX, &err);
    struct packing *packing = data ? packing_create(data, most, short_probability, 5, &err) : NULL;
    uint64_t count, done = 0, at_most = 0;
    int breaks[200];

    assert_non_null(packing);
    count = packing_samples(packing);
    for (uint64_t p = 0; p < count; p++) {
        struct packed packed;

        assert_int_equal(packing_read(packing, p, &packed, breaks, &err), 0);
        check_sample(&packed, breaks, most);
        check_gap(done, packed.first, most);
        done = packed.first + (uint64_t)packed.length;
        if (short_probability == 0) {
            check_end(&packed, breaks, most);
            check_full(&packed, most);
        }
        at_most += packed.length == most;
    }
    check_gap(done, set.tokens, most);
    assert_true((at_most > 0 || short_probability == 1) && (at_most < count || most == 2));
    packing_destroy(packing);
    indexed_close(data);
}

static void every_token_is_in_one_sample(void **state)
{
    static const int mosts[] = {2, 3, 4, 7, 30, 61, 125, 200};

    for (uint64_t number = 0; number < 4; number++) {
        make_set(number);
        for (size_t i = 0; i < sizeof mosts / sizeof mosts[0]; i++) {
            check_packing(mosts[i], 0);
            check_packing(mosts[i], 0.1);
            check_packing(mosts[i], 1);
        }
    }
}

/* By hand: documents of 4 + 3 + 5 tokens, of 25, and of 1. */
static void samples_are_packed_as_described(void **state)
{
    static const int lengths[] = {4, 3, 5, 25, 1};
    static const uint64_t boundaries[] = {0, 3, 4, 5};
    static const struct packed rows[] = {{0, 7, 1}, {7, 5, 0}, {12, 10, 0}, {22, 10, 0}, {32, 5, 0}};
    static const unsigned char tokens[38];
    struct indexed *data;
    struct packing *packing;
    struct packed packed;
    struct error err;
    int breaks[10];

    write_data_set(PREFIX, tokens, lengths, 5, boundaries, 3);
    data = indexed_open(PREFIX, &err);
    packing = packing_create(data, 10, 0, 5, &err);
    assert_non_null(packing);
    assert_int_equal(packing_samples(packing), 5);
    for (uint64_t p = 5; p-- > 0;) {
        assert_int_equal(packing_read(packing, p, &packed, breaks, &err), 0);
        assert_int_equal(packed.first, rows[p].first);
        assert_int_equal(packed.length, rows[p].length);
        assert_int_equal(packed.breaks, rows[p].breaks);
    }
    assert_int_equal(breaks[0], 4);
    packing_destroy(packing);
    packing_destroy(NULL);
    packing = packing_create(data, 24, 0, 5, &err); /* one token of the 25 would be left */
    assert_non_null(packing);
    assert_int_equal(packing_read(packing, 1, &packed, breaks, &err), 0);
    assert_int_equal(packed.length, 23);
    assert_int_equal(packing_read(packing, 2, &packed, breaks, &err), 0);
    assert_int_equal(packed.length, 2);
    packing_destroy(packing);
    indexed_close(data);
}

/* One sentence of so many tokens that landmarks are thinned out twice: samples are found all the same. */
static void landmarks_are_thinned_out(void **state)
{
    enum { MANY = 5 << 20 };
    static const uint64_t boundaries[] = {0, 1};
    unsigned char *tokens = calloc(MANY, 1);
    const int lengths[] = {MANY};
    struct indexed *data;
    struct packing *packing;
    struct error err;
    int breaks[2];

    assert_non_null(tokens);
    write_data_set(PREFIX, tokens, lengths, 1, boundaries, 1);
    free(tokens);
    data = indexed_open(PREFIX, &err);
    packing = packing_create(data, 2, 0, 5, &err);
    assert_non_null(packing);
    assert_int_equal(packing_samples(packing), MANY / 2);
    for (uint64_t p = 0; p < MANY / 2; p += p % 1000 < 50 ? 1 : 997) {
        struct packed packed;

        assert_int_equal(packing_read(packing, p, &packed, breaks, &err), 0);
        assert_int_equal(packed.first, 2 * p);
        assert_int_equal(packed.length, 2);
    }
    packing_destroy(packing);
    indexed_close(data);
}

/* In a text without sentences all samples are of their target length, but the last. */
static void short_samples_are_as_many_as_asked_for(void **state)
{
    enum { MANY = 1000000, MOST = 100 };
    static const uint64_t boundaries[] = {0, 1};
    static const unsigned char tokens[MANY];
    const int lengths[] = {MANY};
    double hits = 0, sum = 0, count, deviation;
    struct indexed *data;
    struct packing *packing;
    struct error err;
    int breaks[MOST];

    write_data_set(PREFIX, tokens, lengths, 1, boundaries, 1);
    data = indexed_open(PREFIX, &err);
    packing = packing_create(data, MOST, 0.2, 5, &err);
    assert_non_null(packing);
    count = (double)packing_samples(packing) - 1;
    for (uint64_t p = 0; p < (uint64_t)count; p++) {
        struct packed packed;

        assert_int_equal(packing_read(packing, p, &packed, breaks, &err), 0);
        hits += packed.length < MOST;
        sum += packed.length < MOST ? packed.length : 0;
    }
    deviation = sqrt(count * 0.2 * 0.8);
    assert_true(fabs(hits - count * 0.2 * 98 / 99) < 5 * deviation); /* one of the 99 lengths is MOST itself */
    assert_true(fabs(sum / hits - (2 + 99) / 2.0) < 5 * 98 / sqrt(12 * hits));
    packing_destroy(packing);
    indexed_close(data);
}

static void nothing_to_pack_is_refused(void **state)
{
    static const int lengths[] = {1, 0, 1};
    static const uint64_t boundaries[] = {0, 2, 2, 3};
    static const unsigned char tokens[2];
    struct indexed *data;
    struct error err;

    write_data_set(PREFIX, tokens, lengths, 3, boundaries, 3);
    data = indexed_open(PREFIX, &err);
    assert_non_null(data);
    assert_null(packing_create(data, 10, 0, 5, &err));
    assert_int_equal(err.code, CODE_DATA);
    assert_string_equal(err.text, "none of the 3 documents has two tokens");
    indexed_close(data);
}

static void an_index_that_changes_is_an_error(void **state)
{
    struct packed packed;
    struct packing *packing;
    struct indexed *data;
    struct error err;
    int breaks[50];

    make_set(1);
    data = indexed_open(PREFIX, &err);
    packing = packing_create(data, 50, 0, 5, &err);
    assert_non_null(packing);
    assert_int_equal(truncate(PREFIX ".idx", 34 + 40), 0);
    assert_int_equal(packing_read(packing, 0, &packed, breaks, &err), -1);
    assert_int_equal(err.code, CODE_DATA);
    assert_non_null(strstr(err.text, "test_packing.idx ends at offset "));
    packing_destroy(packing);
    indexed_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_is_in_one_sample), cmocka_unit_test(samples_are_packed_as_described),
        cmocka_unit_test(landmarks_are_thinned_out),    cmocka_unit_test(short_samples_are_as_many_as_asked_for),
        cmocka_unit_test(nothing_to_pack_is_refused),   cmocka_unit_test(an_index_that_changes_is_an_error),
    };

    return cmocka_run_group_tests_name("packing", tests, NULL, remove_files);
}

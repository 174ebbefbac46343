/* blend.h: the samples of several data sets, each in its own order, whichever shares of a step are read. */
#include <unistd.h>

#include "tests/unit/data_files.h"
#include "trainer/data/batch.h"
#include "trainer/data/blend.h"

enum { SEQ = 4, SETS = 3, STEPS = 60, GLOBAL = 17, SAMPLES = STEPS * GLOBAL };

static const int set_samples[SETS] = {150, 150, 20};
static const char *const prefixes[SETS] = {"test_blend_a", "test_blend_b", "test_blend_c"};

/* Sample p of set i has the tokens 80 i + p % 80. */
static int write_sets(void **state)
{
    for (int i = 0; i < SETS; i++) {
        unsigned char tokens[SEQ * 150 + 1];
        int length = SEQ * set_samples[i] + 1;
        uint64_t boundaries[2] = {0, 1};

        for (int t = 0; t < length; t++)
            tokens[t] = (unsigned char)(80 * i + t / SEQ % 80);
        write_data_set(prefixes[i], tokens, &length, 1, boundaries, 1);
    }
    return 0;
}

static int remove_sets(void **state)
{
    for (int i = 0; i < SETS; i++) {
        char path[64];

        snprintf(path, sizeof path, "%s.idx", prefixes[i]);
        unlink(path);
        snprintf(path, sizeof path, "%s.bin", prefixes[i]);
        unlink(path);
    }
    return 0;
}

static struct job job_of(const char *data)
{
    struct job job = {.model = {.seq_length = SEQ, .vocab = 240}};

    snprintf(job.data.train, sizeof job.data.train, "%s", data);
    snprintf(job.data.valid, sizeof job.data.valid, "%s", data);
    job.batch.seed = 1234;
    return job;
}

#define BLEND "5 test_blend_a 4 test_blend_b 1 test_blend_c"

/* The first token of each sample, read by `ranks`, each its share of each step, from step `first` on. */
static void read_run(struct blend **data, int ranks, int first, int32_t tokens[SAMPLES])
{
    struct model_shape shape = {.seq_length = SEQ};
    struct batch *batch = batch_create(&shape, false, GLOBAL, NULL);

    assert_non_null(batch);
    for (int step = first; step < STEPS; step++)
        for (int rank = 0; rank < ranks; rank++) {
            int begin = GLOBAL * rank / ranks, end = GLOBAL * (rank + 1) / ranks;
            struct error err;

            if (batch_read(batch, data[rank], (uint64_t)(step * GLOBAL + begin), end - begin, &err) < 0)
                fail_msg("%s", err.text);
            for (int i = begin; i < end; i++) {
                tokens[step * GLOBAL + i] = batch->tokens[(i - begin) * SEQ];
                assert_int_equal(batch->drawn[i - begin].set, tokens[step * GLOBAL + i] / 80);
            }
        }
    batch_destroy(batch);
}

static void every_number_of_ranks_reads_the_same_run(void **state)
{
    static const int worlds[] = {1, 2, 3, 5};
    static int32_t first[SAMPLES], again[SAMPLES];
    struct job job = job_of(BLEND);

    for (int w = 0; w < 4; w++) {
        struct blend *data[5];

        for (int rank = 0; rank < worlds[w]; rank++) {
            data[rank] = blend_create(&job, true, NULL);
            assert_non_null(data[rank]);
        }
        read_run(data, worlds[w], 0, w ? again : first);
        if (w)
            assert_memory_equal(again, first, sizeof first);
        memset(again, 0, sizeof again);
        read_run(data, worlds[w], STEPS / 2, again); /* back to the middle, as after a resume */
        assert_memory_equal(again + SAMPLES / 2, first + SAMPLES / 2, sizeof first / 2);
        for (int rank = 0; rank < worlds[w]; rank++)
            blend_destroy(data[rank]);
    }
    blend_destroy(NULL);
}

static void each_set_has_its_own_order_and_epochs(void **state)
{
    struct job job = job_of(BLEND);
    struct blend *blend = blend_create(&job, true, NULL);
    uint64_t numbers[SETS] = {0};
    int orders_agree = 0, order[SETS][SAMPLES];

    assert_int_equal(blend_sets(blend), SETS);
    for (uint64_t n = 0; n < SAMPLES; n++) {
        int32_t tokens[SEQ], targets[SEQ];
        struct drawn_sample place;

        blend_locate(blend, n, 1, &place);
        assert_int_equal(place.number, numbers[place.set]);
        assert_int_equal(blend_read(blend, place, &(struct sample){.tokens = tokens, .targets = targets}, NULL), 0);
        order[place.set][numbers[place.set]++] = tokens[0] % 80;
    }
    for (int i = 0; i < SETS; i++) {
        struct blend_set set = blend_set(blend, i);

        assert_string_equal(set.prefix, prefixes[i]);
        assert_int_equal(set.samples, set_samples[i]);
        assert_int_equal(numbers[i], blend_counts(blend, SAMPLES)[i]);
    }
    assert_int_equal(numbers[2], SAMPLES / 10); /* five epochs of 20 */
    for (int epoch = 0; epoch < 5; epoch++) {
        bool seen[20] = {false};

        for (int i = 0; i < 20; i++)
            seen[order[2][20 * epoch + i]] = true;
        for (int i = 0; i < 20; i++)
            assert_true(seen[i]);
    }
    for (int i = 0; i < 100; i++)
        orders_agree += order[0][i] == order[1][i];
    assert_in_range(orders_agree, 0, 20);
    blend_destroy(blend);
}

static void one_set_is_read_as_it_always_was(void **state)
{
    struct job job = job_of("test_blend_a");
    struct blend *train = blend_create(&job, true, NULL), *valid = blend_create(&job, false, NULL);
    struct samples *samples = samples_create(&job, "test_blend_a", true, 1234, NULL);

    assert_true(train && valid && samples);
    for (uint64_t n = 0; n < 400; n++) {
        int32_t a[SEQ], b[SEQ], targets[SEQ];
        struct drawn_sample place;

        blend_locate(train, n, 1, &place);
        assert_int_equal(blend_read(train, place, &(struct sample){.tokens = a, .targets = targets}, NULL), 0);
        assert_int_equal(samples_read(samples, n, &(struct sample){.tokens = b, .targets = targets}, NULL), 0);
        assert_memory_equal(a, b, sizeof a);
        blend_locate(valid, n, 1, &place);
        assert_int_equal(blend_read(valid, place, &(struct sample){.tokens = a, .targets = targets}, NULL), 0);
        assert_int_equal(a[0], n % 150 % 80);
    }
    samples_destroy(samples);
    blend_destroy(train);
    blend_destroy(valid);
}

static void a_set_that_cannot_be_read_is_named(void **state)
{
    struct job job = job_of("5 test_blend_a 4 test_blend_none");
    struct error err;

    assert_null(blend_create(&job, true, &err));
    assert_int_equal(err.code, CODE_DATA);
    assert_non_null(strstr(err.text, "test_blend_none.idx"));
}

/* What a run with this data says of a checkpoint with that job text. */
static int compare_sets(const char *text, const char *data, struct error *err)
{
    struct job job = job_of(data);
    struct blend *blend = blend_create(&job, true, NULL);
    char *now;
    int result;

    assert_non_null(blend);
    now = set_record_append("", blend, NULL, NULL);
    assert_non_null(now);
    result = set_record_compare(text, now, blend, err);
    free(now);
    blend_destroy(blend);
    return result;
}

static char *record_sets(const char *text, const char *data)
{
    struct job job = job_of(data);
    struct blend *train = blend_create(&job, true, NULL), *valid = blend_create(&job, false, NULL);
    char *recorded;

    assert_true(train && valid);
    recorded = set_record_append(text, train, valid, NULL);
    blend_destroy(train);
    blend_destroy(valid);
    assert_non_null(recorded);
    return recorded;
}

static void a_set_that_was_replaced_is_named(void **state)
{
    static const unsigned char tokens[SEQ * 20 + 1];
    static const int lengths[2] = {SEQ * 10, SEQ * 10 + 1};
    static const uint64_t boundaries[3] = {0, 1, 2};
    char *text = record_sets("batch = {};", "3 test_blend_a 1 test_blend_c"), *later;
    struct error err;

    assert_int_equal(strncmp(text, "batch = {};\n#! data 2: 601 tokens, 1 documents, index ", 49), 0);
    assert_int_equal(compare_sets(text, "1 test_blend_c 1 test_blend_a 1 test_blend_b", &err), 0);
    assert_int_equal(compare_sets("batch = {};\n#! --set data.train=x\n", "test_blend_c", &err), 0);
    assert_int_equal(set_record_compare(text, text, NULL, &err), 0);
    /* As many tokens, and one document more; then other documents of the same number. */
    write_data_set("test_blend_c", tokens, lengths, 2, boundaries, 2);
    assert_int_equal(compare_sets(text, "3 test_blend_a 1 test_blend_c", &err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    assert_non_null(strstr(err.text, "data set test_blend_c was replaced: it has 81 tokens in 2 documents (index "));
    assert_non_null(strstr(err.text, "), and had 81 in 1 ("));
    later = record_sets(text, "test_blend_c"); /* the last line counts */
    assert_int_equal(compare_sets(later, "test_blend_c", &err), 0);
    write_data_set("test_blend_c", tokens, (int[2]){SEQ * 10 + 1, SEQ * 10}, 2, boundaries, 2);
    assert_int_equal(compare_sets(later, "test_blend_c", &err), -1);
    assert_int_equal(compare_sets(later, "test_blend_a", &err), 0);
    free(text);
    free(later);
}

static void a_set_with_other_tokens_of_the_same_lengths_is_named(void **state)
{
    enum { LENGTH = 1 << 20 };
    static const struct {
        long position;
        int result;
    } changes[] = {{0, -1}, {LENGTH / 2, 0}, {(LENGTH - 4096) / 63 * 32 + 64, -1}, {LENGTH - 1, -1}};
    static unsigned char tokens[LENGTH];
    static const uint64_t boundaries[2] = {0, 1};
    char *text, old[200];
    const char *index;
    struct error err;

    write_data_set("test_blend_c", tokens, &(int){LENGTH}, 1, boundaries, 1);
    text = record_sets("", "test_blend_c");
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        tokens[changes[i].position] = 1;
        write_data_set("test_blend_c", tokens, &(int){LENGTH}, 1, boundaries, 1);
        assert_int_equal(compare_sets(text, "1 test_blend_a 1 test_blend_c", &err), changes[i].result);
        if (changes[i].result < 0) {
            assert_int_equal(err.code, CODE_CONFIG);
            assert_non_null(
                strstr(err.text, "data set test_blend_c was replaced: it has documents of the same length"));
        }
        tokens[changes[i].position] = 0;
    }
    /* The record of an earlier release: accepted, and said. */
    index = strstr(text, "index ");
    assert_non_null(index);
    snprintf(old, sizeof old, "#! data: %d tokens, 1 documents, %.14s, test_blend_c\n", LENGTH, index);
    assert_int_equal(compare_sets(old, "test_blend_c", &err), -1);
    assert_int_equal(err.code, CODE_OK);
    assert_non_null(strstr(err.text, "an earlier release, which recorded the lengths of the documents of data set "
                                     "test_blend_c, and not its tokens"));
    write_data_set("test_blend_c", tokens, &(int){LENGTH - 1}, 1, boundaries, 1);
    assert_int_equal(compare_sets(old, "test_blend_c", &err), -1);
    assert_int_equal(err.code, CODE_CONFIG);
    /* That of a later one is not compared. */
    *strchr(text, '\n') = 0;
    memcpy(text, "#! data 3", 9);
    assert_int_equal(compare_sets(text, "test_blend_c", &err), 0);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_ranks_reads_the_same_run),
        cmocka_unit_test(each_set_has_its_own_order_and_epochs),
        cmocka_unit_test(one_set_is_read_as_it_always_was),
        cmocka_unit_test(a_set_that_cannot_be_read_is_named),
        cmocka_unit_test(a_set_that_was_replaced_is_named), /* the last two: they do so */
        cmocka_unit_test(a_set_with_other_tokens_of_the_same_lengths_is_named),
    };

    return cmocka_run_group_tests_name("blend", tests, write_sets, remove_sets);
}

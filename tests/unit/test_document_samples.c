/* A GPT's samples with data.reset = "document": where documents begin, and which targets are left out. */
#include <unistd.h>

#include "common/philox.h"
#include "tests/unit/data_files.h"
#include "trainer/data/batch.h"
#include "trainer/data/draws.h"

#define PREFIX "test_document_samples"
#define OTHER  PREFIX "_other"

enum { TOKENS = 4000, SEQ = 24, EOD = 7, SAMPLES = (TOKENS - 1) / SEQ };

static struct document_set {
    unsigned char tokens[TOKENS];
    bool begins[TOKENS + 1]; /* a document by the index */
    int lengths[TOKENS];     /* of sequences */
    uint64_t boundaries[TOKENS];
    size_t sequences, documents;
} set;

/* Documents of 0 to 59 tokens, in up to 3 sequences, some of them empty. */
static void make_set_at(const char *prefix, uint64_t seed)
{
    struct draws draws = draws_start(seed, philox_site("test"), 0);
    int at = 0;

    memset(&set, 0, sizeof set);
    for (int i = 0; i < TOKENS; i++)
        set.tokens[i] = (unsigned char)draws_below(&draws, 20);
    while (at < TOKENS) {
        set.boundaries[set.documents++] = set.sequences;
        set.begins[at] = true;
        for (int parts = 1 + (int)draws_below(&draws, 3); parts > 0; parts--) {
            int length = (int)draws_below(&draws, 20);

            length = length < TOKENS - at ? length : TOKENS - at;
            set.lengths[set.sequences++] = length;
            at += length;
        }
    }
    set.boundaries[set.documents] = set.sequences;
    write_data_set(prefix, set.tokens, set.lengths, set.sequences, set.boundaries, set.documents);
}

static void make_set(uint64_t seed)
{
    make_set_at(PREFIX, seed);
}

static int remove_files(void **state)
{
    unlink(PREFIX ".idx");
    unlink(PREFIX ".bin");
    unlink(OTHER ".idx");
    unlink(OTHER ".bin");
    return 0;
}

static struct job job_of(enum document_reset reset, int eod)
{
    struct job job = {.model = {.seq_length = SEQ, .vocab = 256}, .data = {.train = PREFIX, .valid = PREFIX}};

    job.data.reset = reset;
    job.data.eod = eod;
    job.batch.seed = 5;
    return job;
}

/* Token `at` is the first of a document, for a sample that it is not the first token of. */
static bool first_of_document(int at, int eod)
{
    return set.begins[at] || set.tokens[at - 1] == eod;
}

static void check_sample(const struct sample *sample, int first, int eod)
{
    for (int i = 0, start = 0; i < SEQ; i++) {
        if (i > 0 && first_of_document(first + i, eod))
            start = i;
        assert_int_equal(sample->tokens[i], set.tokens[first + i]);
        assert_int_equal(sample->document_start[i], start);
        assert_int_equal(sample->targets[i], first_of_document(first + i + 1, eod) ? -1 : set.tokens[first + i + 1]);
    }
}

static void check_set(int eod)
{
    struct job job = job_of(RESET_DOCUMENT, eod);
    struct error err;
    struct samples *samples = samples_create(&job, PREFIX, false, 0, &err);

    assert_non_null(samples);
    assert_int_equal(samples_per_epoch(samples), SAMPLES);
    for (int n = 0; n < SAMPLES; n++) {
        int32_t tokens[SEQ], targets[SEQ], starts[SEQ];
        struct sample sample = {.tokens = tokens, .targets = targets, .document_start = starts};

        assert_int_equal(samples_read(samples, (uint64_t)n, &sample, &err), 0);
        check_sample(&sample, n * SEQ, eod);
    }
    samples_destroy(samples);
}

static void documents_begin_at_boundaries_and_after_eod(void **state)
{
    for (uint64_t seed = 1; seed < 30; seed++) {
        make_set(seed);
        check_set(-1);
        check_set(EOD);
    }
}

/* The whole set is one document, as Megatron-LM joins texts: its rule alone, in its own words. */
static void eod_tokens_alone_are_megatrons_masks(void **state)
{
    const int whole[] = {TOKENS};
    const uint64_t boundaries[] = {0, 1};
    struct job job = job_of(RESET_DOCUMENT, EOD);
    struct error err;
    struct samples *samples;

    make_set(1);
    write_data_set(PREFIX, set.tokens, whole, 1, boundaries, 1);
    samples = samples_create(&job, PREFIX, false, 0, &err);
    assert_non_null(samples);
    for (int n = 0; n < SAMPLES; n++) {
        int32_t tokens[SEQ], targets[SEQ], starts[SEQ];
        struct sample sample = {.tokens = tokens, .targets = targets, .document_start = starts};
        int position_ids[SEQ];

        for (int i = 0; i < SEQ; i++)
            position_ids[i] = i;
        assert_int_equal(samples_read(samples, (uint64_t)n, &sample, &err), 0);
        for (int i = 0, previous = 0; i < SEQ; i++)
            if (tokens[i] == EOD) {
                for (int k = i + 1; k < SEQ; k++)
                    position_ids[k] -= i + 1 - previous;
                previous = i + 1;
            }
        for (int i = 0; i < SEQ; i++) {
            assert_int_equal(i - starts[i], position_ids[i]);
            assert_int_equal(targets[i], tokens[i] == EOD ? -1 : set.tokens[n * SEQ + i + 1]);
        }
    }
    samples_destroy(samples);
}

static void without_reset_nothing_is_masked(void **state)
{
    struct job job = job_of(RESET_NONE, EOD);
    struct error err;
    struct samples *samples;
    int32_t tokens[SEQ], targets[SEQ];

    make_set(2);
    samples = samples_create(&job, PREFIX, false, 0, &err);
    assert_non_null(samples);
    for (int n = 0; n < SAMPLES; n++) {
        assert_int_equal(
            samples_read(samples, (uint64_t)n, &(struct sample){.tokens = tokens, .targets = targets}, &err), 0);
        for (int i = 0; i < SEQ; i++)
            assert_int_equal(targets[i], set.tokens[n * SEQ + i + 1]);
    }
    samples_destroy(samples);
}

static void batches_hold_the_documents(void **state)
{
    enum { MOST = 6 };
    struct job job = job_of(RESET_DOCUMENT, EOD);
    struct error err;
    struct blend *blend;
    struct batch *batch = batch_create(&job.model, true, MOST, &err);
    long predicted = 0;

    make_set(3);
    blend = blend_create(&job, false, &err);
    assert_true(blend && batch);
    assert_int_equal(batch_read(batch, blend, 40, MOST - 1, &err), 0);
    for (int i = 0; i < MOST - 1; i++) {
        struct sample sample = {.tokens = batch->tokens + i * SEQ,
                                .targets = batch->targets + i * SEQ,
                                .document_start = batch->document_start + i * SEQ};

        check_sample(&sample, (40 + i) * SEQ, EOD);
        for (int k = 0; k < SEQ; k++)
            predicted += sample.targets[k] >= 0;
    }
    assert_int_equal(batch->predicted, predicted);
    assert_true(predicted < (MOST - 1) * SEQ);
    for (int i = 0; i < SEQ; i++)
        batch->document_start[(MOST - 1) * SEQ + i] = 99;
    batch_fill_empty(batch, MOST - 1);
    for (int i = 0; i < SEQ; i++)
        assert_int_equal(batch->document_start[(MOST - 1) * SEQ + i], 0);
    batch_destroy(batch);
    blend_destroy(blend);
}

/* Each sample has the documents of the set that it comes from, whichever set the sample before it was of. */
static void in_a_blend_each_set_has_its_own_documents(void **state)
{
    enum { MOST = 40 };
    static struct document_set sets[2];
    struct job job = job_of(RESET_DOCUMENT, EOD);
    struct error err;
    struct blend *blend;
    struct batch *batch = batch_create(&job.model, true, MOST, &err);
    int seen[2] = {0};

    make_set_at(OTHER, 6);
    sets[1] = set;
    make_set_at(PREFIX, 5);
    sets[0] = set;
    snprintf(job.data.valid, sizeof job.data.valid, "0.7 %s 0.3 %s", PREFIX, OTHER);
    blend = blend_create(&job, false, &err);
    assert_true(blend && batch);
    for (uint64_t first = 0; first < 3 * MOST; first += MOST) {
        assert_int_equal(batch_read(batch, blend, first, MOST, &err), 0);
        for (int i = 0; i < MOST; i++) {
            struct sample sample = {.tokens = batch->tokens + i * SEQ,
                                    .targets = batch->targets + i * SEQ,
                                    .document_start = batch->document_start + i * SEQ};
            struct drawn_sample place = batch->drawn[i];

            set = sets[place.set];
            check_sample(&sample, (int)(place.number % SAMPLES) * SEQ, EOD);
            seen[place.set]++;
        }
    }
    assert_int_equal(seen[0], 84);
    assert_int_equal(seen[1], 36);
    batch_destroy(batch);
    blend_destroy(blend);
}

static void a_changed_index_is_noticed(void **state)
{
    struct job job = job_of(RESET_DOCUMENT, -1);
    int32_t tokens[SEQ], targets[SEQ], starts[SEQ];
    struct error err;
    struct samples *samples;

    make_set(4);
    samples = samples_create(&job, PREFIX, false, 0, &err);
    assert_non_null(samples);
    assert_int_equal(truncate(PREFIX ".idx", 100), 0);
    assert_int_equal(samples_read(samples, 1,
                                  &(struct sample){.tokens = tokens, .targets = targets, .document_start = starts},
                                  &err),
                     -1);
    assert_int_equal(err.code, CODE_DATA);
    samples_destroy(samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_begin_at_boundaries_and_after_eod),
        cmocka_unit_test(eod_tokens_alone_are_megatrons_masks),
        cmocka_unit_test(without_reset_nothing_is_masked),
        cmocka_unit_test(batches_hold_the_documents),
        cmocka_unit_test(in_a_blend_each_set_has_its_own_documents),
        cmocka_unit_test(a_changed_index_is_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, remove_files);
}

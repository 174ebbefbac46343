/* Batches of both models: what blend_read gives, all of it, and what is done when it fails. */
#include <unistd.h>

#include "tests/unit/data_files.h"
#include "tests/unit/model_fields.h"
#include "trainer/data/batch.h"
#include "trainer/data/samples.h"

#define PREFIX "test_batch"

enum { SEQ = 16, MOST = 12, TOKENS = 400, SENTENCE = 5 };

/* 20 documents of 4 sentences of 5 tokens. Sentences and documents must make no difference to a GPT. */
static void write_set(bool sentences)
{
    unsigned char tokens[TOKENS];
    int lengths[TOKENS / SENTENCE];
    uint64_t boundaries[21];
    int per_document = sentences ? 4 : 1;

    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (unsigned char)(i * 7 % 250);
    for (int i = 0; i < 20 * per_document; i++)
        lengths[i] = TOKENS / (20 * per_document);
    for (int i = 0; i <= 20; i++)
        boundaries[i] = (uint64_t)(i * per_document);
    write_data_set(PREFIX, tokens, lengths, (size_t)(20 * per_document), boundaries, 20);
}

static int remove_files(void **state)
{
    unlink(PREFIX ".idx");
    unlink(PREFIX ".bin");
    return 0;
}

static struct job job_of(enum objective objective)
{
    struct job job = {.model = {.seq_length = SEQ, .vocab = 255}};

    if (objective == OBJECTIVE_MASKED)
        job.model = (struct model_shape){.seq_length = SEQ, .vocab = 255, .hidden = 8, BERT_FIELDS};

    strcpy(job.data.train, PREFIX);
    strcpy(job.data.valid, PREFIX);
    job.batch.seed = 3;
    job.data.cls = 251;
    job.data.sep = 252;
    job.data.mask = 253;
    job.data.pad = 254;
    job.data.mask_probability = 0.15;
    job.data.short_probability = 0.1;
    return job;
}

static long check_sample(const struct batch *batch, long i, struct blend *source, uint64_t n)
{
    int32_t tokens[SEQ], targets[SEQ], types[SEQ], length, order;
    struct drawn_sample place;
    struct error err;
    long predicted = 0;
    size_t at = (size_t)i * SEQ;

    blend_locate(source, n, 1, &place);
    assert_int_equal(blend_read(source, place, &(struct sample){tokens, targets, types, &length, &order, NULL}, &err),
                     0);
    assert_memory_equal(batch->tokens + at, tokens, sizeof tokens);
    assert_memory_equal(batch->targets + at, targets, sizeof targets);
    if (batch->types) {
        assert_memory_equal(batch->types + at, types, sizeof types);
        assert_int_equal(batch->lengths[i], length);
        assert_int_equal(batch->order[i], order);
    }
    for (int t = 0; t < SEQ; t++)
        predicted += targets[t] >= 0;
    assert_int_equal(batch->predictions[i], predicted);
    assert_int_equal(batch->drawn[i].number, n);
    return predicted;
}

static void check_batches(enum objective objective, bool train)
{
    struct job job = job_of(objective);
    struct error err;
    struct blend *source = blend_create(&job, train, &err);
    struct batch *batch = batch_create(&job.model, false, MOST, &err);

    assert_true(source && batch);
    assert_int_equal(batch->samples, 0);
    assert_int_equal(batch->predicted, 0);
    assert_int_equal(batch->seq_length, SEQ);
    assert_true(objective == OBJECTIVE_MASKED ? batch->types && batch->lengths && batch->order
                                              : !batch->types && !batch->lengths && !batch->order);
    for (long count = 0; count <= MOST; count++) {
        uint64_t first = (uint64_t)(1000 * count + 17);
        long predicted = 0;

        assert_int_equal(batch_read(batch, source, first, count, &err), 0);
        assert_int_equal(batch->samples, count);
        for (long i = 0; i < count; i++)
            predicted += check_sample(batch, i, source, first + (uint64_t)i);
        assert_int_equal(batch->predicted, predicted);
        assert_true(objective == OBJECTIVE_MASKED ? predicted < count * SEQ / 2 + 1 : predicted == count * SEQ);
    }
    assert_int_equal(batch_read(batch, source, 0, MOST + 1, &err), -1);
    assert_int_equal(err.code, CODE_INTERNAL);
    batch_destroy(batch);
    batch_destroy(NULL);
    blend_destroy(source);
}

static void batches_hold_the_samples(void **state)
{
    write_set(true);
    check_batches(OBJECTIVE_CAUSAL, true);
    check_batches(OBJECTIVE_CAUSAL, false);
    check_batches(OBJECTIVE_MASKED, true);
    check_batches(OBJECTIVE_MASKED, false);
}

static void a_gpt_does_not_see_sentences(void **state)
{
    struct job job = job_of(OBJECTIVE_CAUSAL);
    struct batch *batches[2];
    struct error err;

    for (int sentences = 0; sentences < 2; sentences++) {
        struct blend *source;

        write_set(sentences);
        source = blend_create(&job, true, &err);
        batches[sentences] = batch_create(&job.model, false, MOST, &err);
        assert_true(source && batches[sentences]);
        assert_int_equal(batch_read(batches[sentences], source, 100, MOST, &err), 0);
        blend_destroy(source);
    }
    assert_memory_equal(batches[0]->tokens, batches[1]->tokens, sizeof(int32_t) * MOST * SEQ);
    assert_memory_equal(batches[0]->targets, batches[1]->targets, sizeof(int32_t) * MOST * SEQ);
    batch_destroy(batches[0]);
    batch_destroy(batches[1]);
}

/* Nearly every sample is bad, from the second on; the first bad one is reported, whichever thread met it. */
static void the_first_bad_sample_is_reported(void **state)
{
    struct job job = job_of(OBJECTIVE_CAUSAL);
    struct batch *batch;
    struct blend *source;
    struct error err;

    job.model.vocab = 200;
    write_set(true);
    source = blend_create(&job, false, &err);
    batch = batch_create(&job.model, false, MOST, &err);
    assert_true(source && batch);
    for (int repeat = 0; repeat < 50; repeat++) {
        memset(&err, 0, sizeof err);
        assert_int_equal(batch_read(batch, source, 0, MOST, &err), -1);
        assert_int_equal(err.code, CODE_DATA);
        assert_string_equal(err.text,
                            "test_batch.bin, offset 29: token 29 is 203; with model.vocab = 200 tokens are 0 to 199");
        assert_int_equal(batch->samples, 0);
        assert_int_equal(batch->predicted, 0);
    }
    assert_int_equal(batch_read(batch, source, 0, MOST, NULL), -1);
    assert_int_equal(batch_read(batch, source, 0, 1, &err), 0);
    assert_int_equal(batch->samples, 1);
    batch_destroy(batch);
    blend_destroy(source);
}

static void check_empty(const struct batch *batch, long i)
{
    for (int t = 0; t < SEQ; t++) {
        assert_int_equal(batch->tokens[i * SEQ + t], 0);
        assert_int_equal(batch->targets[i * SEQ + t], -1);
        if (batch->types)
            assert_int_equal(batch->types[i * SEQ + t], 0);
    }
    if (batch->types) {
        assert_int_equal(batch->lengths[i], SEQ);
        assert_int_equal(batch->order[i], -1);
    }
}

static void empty_samples_teach_nothing(void **state)
{
    write_set(true);
    for (enum objective objective = OBJECTIVE_CAUSAL; objective <= OBJECTIVE_MASKED; objective++) {
        struct job job = job_of(objective);
        struct error err;
        struct blend *source = blend_create(&job, true, &err);
        struct batch *batch = batch_create(&job.model, false, MOST, &err);
        long predicted;

        assert_true(source && batch);
        assert_int_equal(batch_read(batch, source, 50, MOST, &err), 0); /* leaves something there */
        assert_int_equal(batch_read(batch, source, 0, 3, &err), 0);
        predicted = batch->predicted;
        batch_fill_empty(batch, 3);
        batch_fill_empty(batch, 4);
        assert_int_equal(batch->samples, 5);
        assert_int_equal(batch->predicted, predicted);
        check_empty(batch, 3);
        check_empty(batch, 4);
        predicted -= check_sample(batch, 1, source, 1);
        batch_fill_empty(batch, 1);
        batch_fill_empty(batch, 1);
        assert_int_equal(batch->samples, 5);
        assert_int_equal(batch->predicted, predicted);
        check_empty(batch, 1);
        assert_int_equal(check_sample(batch, 0, source, 0) + check_sample(batch, 2, source, 2), predicted);
        batch_destroy(batch);
        blend_destroy(source);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_hold_the_samples),
        cmocka_unit_test(a_gpt_does_not_see_sentences),
        cmocka_unit_test(the_first_bad_sample_is_reported),
        cmocka_unit_test(empty_samples_teach_nothing),
    };

    return cmocka_run_group_tests_name("batch", tests, NULL, remove_files);
}

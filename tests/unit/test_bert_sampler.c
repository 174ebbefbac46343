/* BERT's samples of real texts, Debian's licences: what is in them, and that chance decides as it should. */
#include <math.h>
#include <unistd.h>

#include "tests/unit/data_files.h"
#include "trainer/data/samples.h"
#include "trainer/data/convert.h"
#include "trainer/data/draws.h"

#define PREFIX   "test_bert_sampler"
#define LICENSES "/usr/share/common-licenses/"

enum { SEQ = 128, SEED = 1234, VOCAB = 256 };

static char names[][40] = {LICENSES "Apache-2.0", LICENSES "GPL-2", LICENSES "GPL-3", LICENSES "MPL-2.0",
                           LICENSES "LGPL-2.1"};
static char *const texts[] = {names[0], names[1], names[2], names[3], names[4]};

/* Numbers that no text has, and not all at one end of the vocabulary. */
static const struct bert_options options = {{.cls = 1, .sep = 3, .mask = 255, .pad = 4}, 0.15, 0.1};
static const struct model_shape shape = {.seq_length = SEQ, .vocab = VOCAB, .objective = OBJECTIVE_MASKED};

struct texts {
    unsigned char *bytes; /* of all documents */
    size_t count;
    bool *sentence_end, *document_end; /* [count + 1] */
};

static struct texts all;

static uint64_t get(const unsigned char *at, int bytes)
{
    uint64_t value = 0;

    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* The data set as its files have it, read without the code under test. */
static int make_data(void **state)
{
    const struct convert convert = {
        .texts = {.paths = texts, .count = sizeof texts / sizeof texts[0]},
        .out = PREFIX,
        .key = "text",
        .workers = 1,
        .sentences = true,
    };
    struct converted converted;
    struct error err;
    size_t size, token = 0;
    unsigned char *idx;
    uint64_t sequences, document = 1;

    unlink(PREFIX ".idx");
    if (convert_texts(&convert, &converted, &err) < 0)
        return fprintf(stderr, "%s\n", err.text), -1;
    all.bytes = (unsigned char *)read_file(PREFIX ".bin", &all.count);
    all.sentence_end = calloc(all.count + 1, sizeof(bool));
    all.document_end = calloc(all.count + 1, sizeof(bool));
    idx = (unsigned char *)read_file(PREFIX ".idx", &size);
    sequences = get(idx + 18, 8);
    for (uint64_t i = 0; i < sequences; i++) {
        token += get(idx + 34 + 4 * i, 4);
        all.sentence_end[token] = true;
        if (get(idx + 34 + 12 * sequences + 8 * document, 8) == i + 1) {
            all.document_end[token] = true;
            document++;
        }
    }
    free(idx);
    return document == (unsigned)convert.texts.count + 1 && token == all.count ? 0 : -1;
}

static int remove_data(void **state)
{
    free(all.bytes);
    free(all.sentence_end);
    free(all.document_end);
    unlink(PREFIX ".idx");
    unlink(PREFIX ".bin");
    return 0;
}

/* ---- one sample -------------------------------------------------------------------------------------------------- */

struct read {
    int32_t tokens[SEQ], targets[SEQ], types[SEQ], length, order;
};

static int read_sample(const struct samples *samples, uint64_t n, struct read *r, struct error *err)
{
    const struct sample into = {r->tokens, r->targets, r->types, &r->length, &r->order, NULL};

    memset(r, 0x5a, sizeof *r); /* everything must be filled */
    return samples_read(samples, n, &into, err);
}

static struct read must_read(const struct samples *samples, uint64_t n)
{
    struct error err;
    struct read r;

    if (read_sample(samples, n, &r, &err) < 0)
        fail_msg("sample %llu: %s", (unsigned long long)n, err.text);
    return r;
}

/* Checks the frame, and gives the text in the document's order and where it is divided. */
static int unmask(const struct read *r, unsigned char *text, int *split)
{
    int original[SEQ], a = 0, b = 0, first;

    for (int i = 0; i < SEQ; i++)
        original[i] = r->targets[i] >= 0 ? r->targets[i] : r->tokens[i];
    assert_in_range(r->length, 5, SEQ);
    assert_int_equal(original[0], options.special.cls);
    while (original[1 + a] != options.special.sep)
        a++;
    while (original[2 + a + b] != options.special.sep)
        b++;
    assert_true(a > 0 && b > 0);
    assert_int_equal(r->length, a + b + 3);
    for (int i = 0; i < SEQ; i++) {
        bool in_text = i > 0 && i != 1 + a && i < r->length - 1;

        assert_int_equal(r->types[i], i > 1 + a && i < r->length);
        assert_true(in_text || r->targets[i] == -1);
        if (i >= r->length)
            assert_int_equal(r->tokens[i], options.special.pad);
    }
    assert_in_range(r->order, 0, 1);
    *split = r->order ? b : a;
    first = r->order ? 2 + a : 1;
    for (int i = 0; i < *split; i++)
        text[i] = (unsigned char)original[first + i];
    first = r->order ? 1 : 2 + a;
    for (int i = *split; i < a + b; i++)
        text[i] = (unsigned char)original[first + i - *split];
    return a + b;
}

/* The sample's text is that at `at`, and is divided between two sentences if there are two. */
static int check_text(const struct read *r, size_t at)
{
    unsigned char text[SEQ];
    int split, count = unmask(r, text, &split);
    bool two = false;

    assert_true(at + (size_t)count <= all.count);
    assert_memory_equal(text, all.bytes + at, (size_t)count);
    for (size_t i = 1; i < (size_t)count; i++) {
        assert_false(all.document_end[at + i]);
        two = two || all.sentence_end[at + i];
    }
    assert_true(two ? all.sentence_end[at + (size_t)split] : split == count / 2);
    return count;
}

/* ---- an epoch ---------------------------------------------------------------------------------------------------- */

/* In the order of the file, the texts of all samples are the data set: no token is lost, none comes twice. */
static void a_sequential_epoch_is_the_data_in_order(void **state)
{
    struct error err;
    struct samples *samples = make_samples(PREFIX, &shape, &options, false, 0, &err);
    uint64_t count;
    size_t at = 0;

    assert_non_null(samples);
    count = samples_per_epoch(samples);
    assert_true(count > all.count / SEQ);
    for (uint64_t n = 0; n < count; n++) {
        struct read first = must_read(samples, n), again = must_read(samples, n + 3 * count);

        assert_memory_equal(&first, &again, sizeof first); /* the same at every evaluation */
        at += (size_t)check_text(&first, at);
    }
    assert_int_equal(at, all.count);
    samples_destroy(samples);
    samples_destroy(NULL);
}

/* Shuffled, each epoch is a permutation of the same texts, masked and divided in another way. */
static void every_epoch_takes_every_text_once(void **state)
{
    struct error err;
    struct samples *samples = make_samples(PREFIX, &shape, &options, true, SEED, &err);
    uint64_t count;
    size_t *number, at = 0;
    int same_masks = 0, same_order = 0;

    assert_non_null(samples);
    count = samples_per_epoch(samples);
    number = calloc(2 * count, sizeof *number); /* [epoch, place]: n */
    assert_non_null(number);
    for (uint64_t n = 0; n < 2 * count; n++)
        number[n / count * count + permute(n % count, count, SEED, (uint32_t)(n / count))] = n;
    for (uint64_t place = 0; place < count; place++) {
        struct read first = must_read(samples, number[place]), second = must_read(samples, number[count + place]);
        int length = check_text(&first, at);

        assert_int_equal(check_text(&second, at), length);
        same_masks += memcmp(first.targets, second.targets, sizeof first.targets) == 0;
        same_order += first.order == second.order;
        at += (size_t)length;
    }
    assert_int_equal(at, all.count);
    assert_true(same_masks < (int)count / 20);
    assert_true(fabs(same_order - (double)count / 2) < 5 * sqrt((double)count) / 2);
    samples_destroy(samples);
    free(number);
}

/* ---- chance ------------------------------------------------------------------------------------------------------ */

struct tally {
    double samples, swapped, predicted, masked, kept, replaced;
    double random[VOCAB];
};

static void assert_share(const char *what, double hits, double draws, double p)
{
    double bound = 5 * sqrt(draws * p * (1 - p));

    if (!(draws > 1000 && fabs(hits - draws * p) <= bound))
        fail_msg("%s: %g of %g, expected %g +- %g", what, hits, draws, draws * p, bound);
}

static void tally_sample(const struct read *r, struct tally *t)
{
    int count = 0, text = r->length - 3;

    for (int i = 0; i < SEQ; i++) {
        if (r->targets[i] < 0)
            continue;
        count++;
        t->masked += r->tokens[i] == options.special.mask;
        t->kept += r->tokens[i] == r->targets[i];
        if (r->tokens[i] != options.special.mask && r->tokens[i] != r->targets[i]) {
            t->replaced++;
            t->random[r->tokens[i]]++;
        }
    }
    assert_int_equal(count, 0.15 * text < 1 ? 1 : (int)floor(0.15 * text + 0.5));
    t->predicted += count;
    t->samples++;
    t->swapped += r->order;
}

static void chance_decides_as_described(void **state)
{
    struct error err;
    struct samples *samples = make_samples(PREFIX, &shape, &options, true, SEED, &err);
    struct tally t = {0};
    double ordinary = VOCAB - 4;

    assert_non_null(samples);
    for (uint64_t n = 0; n < 20000; n++) {
        struct read r = must_read(samples, n);

        tally_sample(&r, &t);
    }
    assert_share("swapped", t.swapped, t.samples, 0.5);
    assert_share("masked", t.masked, t.predicted, 0.8);
    assert_share("kept", t.kept, t.predicted, 0.1 + 0.1 / ordinary); /* a random token may be the same */
    assert_share("replaced", t.replaced, t.predicted, 0.1 - 0.1 / ordinary);
    for (int token = 0; token < VOCAB; token++)
        if (token == 1 || token == 3 || token == 4 || token == 255)
            assert_true(t.random[token] == 0);
        else if (token >= 128) /* never a target, so as frequent as any other: 10% / 252 */
            assert_share("random token", t.random[token], t.predicted, 0.1 / ordinary);
        else
            assert_true(t.random[token] > 0);
    samples_destroy(samples);
}

/* The sentences of a sample end at several places: each is as often where it is divided. */
static void every_end_of_a_sentence_divides_as_often(void **state)
{
    enum { DRAWS = 20000 };
    static const unsigned char tokens[] = "abcdefghijklmnopqrst";
    static const int lengths[] = {3, 4, 2, 6, 5};
    static const uint64_t boundaries[] = {0, 5};
    struct samples *samples;
    struct error err;
    double hits[20] = {0};

    write_data_set("test_bert_small", tokens, lengths, 5, boundaries, 1);
    samples = make_samples("test_bert_small", &shape, &(struct bert_options){options.special, 0.15, 0}, true, 1, &err);
    assert_non_null(samples);
    assert_int_equal(samples_per_epoch(samples), 1);
    for (uint64_t n = 0; n < DRAWS; n++) {
        struct read r = must_read(samples, n);
        unsigned char text[SEQ];
        int split;

        assert_int_equal(unmask(&r, text, &split), 20);
        assert_memory_equal(text, tokens, 20);
        hits[split]++;
    }
    assert_share("after 3", hits[3], DRAWS, 0.25);
    assert_share("after 7", hits[7], DRAWS, 0.25);
    assert_share("after 9", hits[9], DRAWS, 0.25);
    assert_true(hits[3] + hits[7] + hits[9] + hits[15] == DRAWS);
    samples_destroy(samples);
    unlink("test_bert_small.idx");
    unlink("test_bert_small.bin");
}

/* ---- sample n is a function of n --------------------------------------------------------------------------------- */

static void sample_n_depends_on_n_alone(void **state)
{
    enum { SOME = 3000 };
    struct error err;
    struct samples *one = make_samples(PREFIX, &shape, &options, true, SEED, &err);
    struct samples *other = make_samples(PREFIX, &shape, &options, true, SEED, &err);
    struct samples *seeded = make_samples(PREFIX, &shape, &options, true, SEED + (1ull << 40), &err);
    struct read *forwards = calloc(SOME, sizeof *forwards);
    int same = 0, failed = 0;

    assert_true(one && other && seeded && forwards);
    for (int n = 0; n < SOME; n++)
        forwards[n] = must_read(one, (uint64_t)n);
#pragma omp parallel for num_threads(4) reduction(+ : same, failed) schedule(dynamic, 7)
    for (int i = 0; i < SOME; i++) {
        int n = i * 7 % SOME;
        struct read r;

        failed += read_sample(other, (uint64_t)n, &r, NULL) < 0 || memcmp(&r, forwards + n, sizeof r) != 0;
        failed += read_sample(seeded, (uint64_t)n, &r, NULL) < 0;
        same += memcmp(&r, forwards + n, sizeof r) == 0;
    }
    assert_int_equal(failed, 0);
    assert_int_equal(same, 0);
    samples_destroy(one);
    samples_destroy(other);
    samples_destroy(seeded);
    free(forwards);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void assert_refused(const char *prefix, struct model_shape sizes, struct bert_tokens special, int code,
                           const char *message)
{
    struct error err;
    struct bert_options wrong = {special, 0.15, 0.1};

    assert_null(make_samples(prefix, &sizes, &wrong, true, 1, &err));
    assert_string_equal(err.text, message);
    assert_int_equal(err.code, code);
}

static void wrong_special_tokens_are_refused(void **state)
{
    assert_refused(PREFIX, shape, (struct bert_tokens){256, 3, 255, 4}, CODE_CONFIG,
                   "data.cls = 256; with model.vocab = 256 tokens are 0 to 255");
    assert_refused(PREFIX, shape, (struct bert_tokens){1, 3, 255, -1}, CODE_CONFIG,
                   "data.pad = -1; with model.vocab = 256 tokens are 0 to 255");
    assert_refused(PREFIX, shape, (struct bert_tokens){1, 3, 4, 3}, CODE_CONFIG,
                   "data.cls, data.sep, data.mask and data.pad are 1, 3, 4 and 3; they must be four different tokens");
    assert_refused(PREFIX, (struct model_shape){.seq_length = 4, .vocab = VOCAB}, options.special, CODE_CONFIG,
                   "model.seq_length = 4; a sample of a BERT has at least 5 tokens");
    assert_refused(PREFIX, (struct model_shape){.seq_length = SEQ, .vocab = 4}, (struct bert_tokens){0, 1, 2, 3},
                   CODE_CONFIG, "model.vocab = 4 has no token that is not special; at least 5");
}

static void wrong_data_is_refused(void **state)
{
    static const unsigned char tokens[] = {10, 11, 12, 13, 255, 14};
    static const int lengths[] = {3, 3};
    static const uint64_t apart[] = {0, 1, 2}, together[] = {0, 2};
    struct samples *samples;
    struct error err;
    struct read r;

    assert_refused("no-such-set", shape, options.special, CODE_DATA,
                   "there is no no-such-set.idx; give the prefix of a .bin and .idx made by muster-data");
    write_data_set("test_bert_small", tokens, lengths, 2, apart, 2);
    assert_refused("test_bert_small", shape, options.special, CODE_DATA,
                   "test_bert_small.idx has no document of two sentences, which a BERT needs; make the data with "
                   "muster-data --sentences");
    write_data_set("test_bert_small", tokens, lengths, 2, together, 1);
    samples = make_samples("test_bert_small", &shape, &options, false, 0, &err);
    assert_non_null(samples);
    assert_int_equal(read_sample(samples, 0, &r, &err), -1);
    assert_string_equal(err.text, "test_bert_small.bin, offset 4: token 4 is 255; that is data.mask: choose special "
                                  "token ids that do not occur in the text, or a larger model.vocab than 256");
    assert_int_equal(err.code, CODE_DATA);
    samples_destroy(samples);
    samples =
        make_samples("test_bert_small", &(struct model_shape){.seq_length = SEQ, .vocab = 255},
                     &(struct bert_options){{.cls = 1, .sep = 2, .mask = 3, .pad = 4}, 0.15, 0.1}, false, 0, &err);
    assert_non_null(samples);
    assert_int_equal(read_sample(samples, 0, &r, &err), -1);
    assert_string_equal(err.text,
                        "test_bert_small.bin, offset 4: token 4 is 255; with model.vocab = 255 tokens are 0 to 254");
    assert_int_equal(err.code, CODE_DATA);
    samples_destroy(samples);
    unlink("test_bert_small.idx");
    unlink("test_bert_small.bin");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequential_epoch_is_the_data_in_order),
        cmocka_unit_test(every_epoch_takes_every_text_once),
        cmocka_unit_test(chance_decides_as_described),
        cmocka_unit_test(every_end_of_a_sentence_divides_as_often),
        cmocka_unit_test(sample_n_depends_on_n_alone),
        cmocka_unit_test(wrong_special_tokens_are_refused),
        cmocka_unit_test(wrong_data_is_refused),
    };

    return cmocka_run_group_tests_name("bert_sampler", tests, make_data, remove_data);
}

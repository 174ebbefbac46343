/* Data sets: what is refused and how, and that tokens come back. */
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/data_files.h"
#include "trainer/data/indexed.h"
#include "trainer/data/samples.h"

#define PREFIX "test_data"

/* ---- a data set written by hand, byte by byte, from the format's description ------------------------------------- */

/* Three documents: sequences of 3 tokens, of 4 and 0 tokens, and of 5 tokens. */
enum { TOKENS = 12, SEQUENCES = 4, BOUNDARIES = 4, IDX_SIZE = 34 + 12 * SEQUENCES + 8 * BOUNDARIES };

struct image {
    unsigned char idx[IDX_SIZE + 8], bin[4 * TOKENS + 8];
    size_t idx_size, bin_size;
};

static const int32_t values[TOKENS] = {7, 250, 0, 1, 2, 3, 4, 99, 100, 101, 102, 200};

static struct image make_image(int code)
{
    static const int lengths[SEQUENCES] = {3, 4, 0, 5}, boundaries[BOUNDARIES] = {0, 1, 3, 4};
    const int width = code == INDEXED_U8 ? 1 : code == INDEXED_U16 ? 2 : 4;
    struct image image = {.idx_size = IDX_SIZE, .bin_size = (size_t)width * TOKENS};
    int begin = 0;

    memcpy(image.idx, "MMIDIDX\0\0", 9);
    put(image.idx + 9, 1, 8);
    image.idx[17] = (unsigned char)code;
    put(image.idx + 18, SEQUENCES, 8);
    put(image.idx + 26, BOUNDARIES, 8);
    for (int i = 0; i < SEQUENCES; i++) {
        put(image.idx + 34 + 4 * i, (uint64_t)lengths[i], 4);
        put(image.idx + 34 + 4 * SEQUENCES + 8 * i, (uint64_t)(begin * width), 8);
        begin += lengths[i];
    }
    for (int i = 0; i < BOUNDARIES; i++)
        put(image.idx + 34 + 12 * SEQUENCES + 8 * i, (uint64_t)boundaries[i], 8);
    for (int i = 0; i < TOKENS; i++)
        put(image.bin + width * i, (uint64_t)values[i], width);
    return image;
}

static void write_image(const struct image *image)
{
    write_file(PREFIX ".idx", image->idx, image->idx_size);
    write_file(PREFIX ".bin", image->bin, image->bin_size);
}

static int remove_files(void **state)
{
    unlink(PREFIX ".idx");
    unlink(PREFIX ".bin");
    return 0;
}

/* ---- what is accepted -------------------------------------------------------------------------------------------- */

static void every_type_is_read_back(void **state)
{
    static const int codes[] = {INDEXED_U8, INDEXED_U16, INDEXED_I32};

    for (size_t c = 0; c < 3; c++) {
        struct image image = make_image(codes[c]);
        struct indexed_facts facts;
        struct indexed *indexed;
        struct error err;
        int32_t tokens[TOKENS];

        write_image(&image);
        indexed = indexed_open(PREFIX, &err);
        assert_non_null(indexed);
        facts = indexed_facts(indexed);
        assert_int_equal(facts.type, codes[c]);
        assert_int_equal(facts.tokens, TOKENS);
        assert_int_equal(facts.sequences, SEQUENCES);
        assert_int_equal(facts.documents, 3);
        assert_int_equal(facts.longest, 5);
        assert_int_equal(facts.longest_document, 2);
        for (uint64_t first = 0; first <= TOKENS; first++)
            for (size_t count = 0; count <= TOKENS - first; count++) {
                assert_int_equal(indexed_read(indexed, first, count, 256, tokens, &err), 0);
                assert_memory_equal(tokens, values + first, count * sizeof tokens[0]);
            }
        assert_int_equal(indexed_read(indexed, 6, 7, 256, tokens, &err), -1);
        assert_int_equal(err.code, CODE_INTERNAL);
        assert_int_equal(indexed_read(indexed, UINT64_MAX, 2, 256, tokens, &err), -1);
        indexed_close(indexed);
    }
    indexed_close(NULL);
}

static void sequences_and_documents_are_read_back(void **state)
{
    static const int32_t lengths[SEQUENCES] = {3, 4, 0, 5};
    static const uint64_t boundaries[BOUNDARIES] = {0, 1, 3, 4};
    struct image image = make_image(INDEXED_U16);
    int32_t some_lengths[SEQUENCES + 1];
    uint64_t some_boundaries[BOUNDARIES + 1];
    struct indexed *indexed;
    struct error err;

    write_image(&image);
    indexed = indexed_open(PREFIX, &err);
    assert_non_null(indexed);
    for (size_t first = 0; first <= SEQUENCES; first++)
        for (size_t count = 0; count <= SEQUENCES - first; count++) {
            assert_int_equal(indexed_lengths(indexed, first, count, some_lengths, &err), 0);
            assert_memory_equal(some_lengths, lengths + first, count * sizeof lengths[0]);
            assert_int_equal(indexed_boundaries(indexed, first, count, some_boundaries, &err), 0);
            assert_memory_equal(some_boundaries, boundaries + first, count * sizeof boundaries[0]);
        }
    assert_int_equal(indexed_lengths(indexed, 1, SEQUENCES, some_lengths, &err), -1);
    assert_int_equal(err.code, CODE_INTERNAL);
    assert_int_equal(indexed_boundaries(indexed, UINT64_MAX, 2, some_boundaries, &err), -1);
    assert_int_equal(err.code, CODE_INTERNAL);
    put(image.idx + 34 + 4, 6, 4); /* longer than any sequence was */
    put(image.idx + 34 + 12 * SEQUENCES + 8, 5, 8);
    write_image(&image);
    assert_int_equal(indexed_lengths(indexed, 0, 1, some_lengths, &err), 0);
    assert_int_equal(indexed_lengths(indexed, 0, 2, some_lengths, &err), -1);
    assert_string_equal(err.text, "test_data.idx, offset 38: changed since it was opened");
    assert_int_equal(err.code, CODE_DATA);
    assert_int_equal(indexed_boundaries(indexed, 0, 3, some_boundaries, &err), -1);
    assert_string_equal(err.text, "test_data.idx, offset 90: changed since it was opened");
    assert_int_equal(err.code, CODE_DATA);
    indexed_close(indexed);
}

/* More sequences and tokens than one chunk of the reader, so that its seams are crossed. */
static void large_sets_are_read_across_chunks(void **state)
{
    enum { COUNT = 5000, LENGTH = 7, SIZE = 34 + 12 * COUNT + 8 * (COUNT + 1) };
    unsigned char *idx = calloc(1, SIZE), *bin = calloc(2, COUNT * LENGTH);
    int32_t *tokens = calloc(COUNT * LENGTH, sizeof *tokens);
    struct indexed *indexed;
    struct error err;

    assert_true(idx && bin && tokens);
    memcpy(idx, make_image(INDEXED_U16).idx, 18);
    put(idx + 18, COUNT, 8);
    put(idx + 26, COUNT + 1, 8);
    for (int i = 0; i <= COUNT; i++) {
        if (i < COUNT)
            put(idx + 34 + 4 * i, LENGTH, 4);
        if (i < COUNT)
            put(idx + 34 + 4 * COUNT + 8 * i, (uint64_t)(2 * LENGTH * i), 8);
        put(idx + 34 + 12 * COUNT + 8 * i, (uint64_t)i, 8);
    }
    for (int i = 0; i < COUNT * LENGTH; i++)
        put(bin + 2 * i, (uint64_t)i, 2);
    write_file(PREFIX ".idx", idx, SIZE);
    write_file(PREFIX ".bin", bin, 2 * COUNT * LENGTH);
    indexed = indexed_open(PREFIX, &err);
    assert_non_null(indexed);
    assert_int_equal(indexed_facts(indexed).documents, COUNT);
    assert_int_equal(indexed_read(indexed, 1, COUNT * LENGTH - 1, 65536, tokens, &err), 0);
    for (int i = 0; i < COUNT * LENGTH - 1; i++)
        assert_int_equal(tokens[i], i + 1);
    indexed_close(indexed);
    free(idx);
    free(bin);
    free(tokens);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void assert_open_fails(const char *what, const char *message)
{
    struct error err;
    struct indexed *indexed = indexed_open(PREFIX, &err);

    if (indexed)
        fail_msg("accepted: %s", what);
    assert_string_equal(err.text, message);
    assert_int_equal(err.code, CODE_DATA);
}

static void every_broken_index_has_its_message(void **state)
{
    enum { LENGTHS = 34, BEGINS = 34 + 4 * SEQUENCES, DOCUMENTS = 34 + 12 * SEQUENCES };
    static const struct {
        const char *what;
        int at, bytes;
        uint64_t value; /* put there */
        const char *message;
    } rows[] = {
        {"magic", 0, 1, 'X', "test_data.idx, offset 0: not \"MMIDIDX\"; this is not the index of a data set"},
        {"magic's end", 8, 1, 1, "test_data.idx, offset 0: not \"MMIDIDX\"; this is not the index of a data set"},
        {"version", 9, 8, 2, "test_data.idx, offset 9: version 2; version 1 is supported"},
        {"type 0", 17, 1, 0,
         "test_data.idx, offset 17: token type 0; 1 (uint8), 4 (int32) and 8 (uint16) are supported"},
        {"type float", 17, 1, 6,
         "test_data.idx, offset 17: token type 6; 1 (uint8), 4 (int32) and 8 (uint16) are supported"},
        {"no sequences", 18, 8, 0, "test_data.idx, offset 18: 0 sequences in 114 bytes"},
        {"count that overflows", 18, 8, UINT64_MAX,
         "test_data.idx, offset 18: 18446744073709551615 sequences in 114 bytes"},
        {"more sequences than there are", 18, 8, 5,
         "test_data.idx has 114 bytes; 5 sequences and 4 document boundaries take 126"},
        {"fewer sequences than there are", 18, 8, 3,
         "test_data.idx has 114 bytes; 3 sequences and 4 document boundaries take 102"},
        {"no documents", 26, 8, 1, "test_data.idx, offset 26: 1 document boundaries in 114 bytes; at least 2"},
        {"documents that overflow", 26, 8, 1ull << 61,
         "test_data.idx, offset 26: 2305843009213693952 document boundaries in 114 bytes; at least 2"},
        {"negative length", LENGTHS + 4, 4, (uint32_t)-4, "test_data.idx, offset 38: sequence 1 has length -4"},
        {"length too large", LENGTHS, 4, INT32_MAX,
         "test_data.idx, offset 58: sequence 1 begins at byte 6; the one before it ends at 4294967294"},
        {"first begin", BEGINS, 8, 2,
         "test_data.idx, offset 50: sequence 0 begins at byte 2; the one before it ends at 0"},
        {"gap", BEGINS + 8, 8, 8, "test_data.idx, offset 58: sequence 1 begins at byte 8; the one before it ends at 6"},
        {"overlap", BEGINS + 24, 8, 12,
         "test_data.idx, offset 74: sequence 3 begins at byte 12; the one before it ends at 14"},
        {"negative begin", BEGINS + 8, 8, (uint64_t)-2,
         "test_data.idx, offset 58: sequence 1 begins at byte -2; the one before it ends at 6"},
        {"first boundary", DOCUMENTS, 8, 1,
         "test_data.idx, offset 82: document boundary 0 is at sequence 1; boundaries must increase from 0 to 4"},
        {"falling boundary", DOCUMENTS + 16, 8, 0,
         "test_data.idx, offset 98: document boundary 2 is at sequence 0; boundaries must increase from 0 to 4"},
        {"boundary beyond", DOCUMENTS + 8, 8, 5,
         "test_data.idx, offset 90: document boundary 1 is at sequence 5; boundaries must increase from 0 to 4"},
        {"last boundary", DOCUMENTS + 24, 8, 3,
         "test_data.idx, offset 106: document boundary 3 is at sequence 3; boundaries must increase from 0 to 4"},
        {"last length", LENGTHS + 12, 4, 6, "test_data.bin has 24 bytes; by its index 13 tokens of 2 bytes: 26"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct image image = make_image(INDEXED_U16);

        put(image.idx + rows[i].at, rows[i].value, rows[i].bytes);
        write_image(&image);
        assert_open_fails(rows[i].what, rows[i].message);
    }
}

/* Cut the index at every length: none may open. */
static void every_short_index_is_refused(void **state)
{
    for (size_t size = 0; size < IDX_SIZE; size++) {
        struct image image = make_image(INDEXED_U16);
        struct error err;

        image.idx_size = size;
        write_image(&image);
        assert_null(indexed_open(PREFIX, &err));
        assert_int_equal(err.code, CODE_DATA);
    }
}

static void wrong_sizes_and_missing_files_are_named(void **state)
{
    struct image image = make_image(INDEXED_U16);

    image.idx_size++;
    write_image(&image);
    assert_open_fails("long index", "test_data.idx has 115 bytes; 4 sequences and 4 document boundaries take 114");
    image.idx_size = 33;
    write_image(&image);
    assert_open_fails("short header", "test_data.idx has 33 bytes; the header alone has 34");
    image.idx_size = IDX_SIZE;
    image.bin_size--;
    write_image(&image);
    assert_open_fails("short bin", "test_data.bin has 23 bytes; by its index 12 tokens of 2 bytes: 24");
    image.bin_size += 2;
    write_image(&image);
    assert_open_fails("long bin", "test_data.bin has 25 bytes; by its index 12 tokens of 2 bytes: 24");
    unlink(PREFIX ".bin");
    assert_open_fails("no bin", "there is no test_data.bin; give the prefix of a .bin and .idx made by muster-data");
    unlink(PREFIX ".idx");
    assert_open_fails("no idx", "there is no test_data.idx; give the prefix of a .bin and .idx made by muster-data");
    assert_int_equal(mkdir(PREFIX ".idx", 0777), 0);
    assert_open_fails("directory", "test_data.idx is not a regular file");
    rmdir(PREFIX ".idx");
}

static void a_file_that_shrinks_is_an_error(void **state)
{
    struct image image = make_image(INDEXED_U16);
    int32_t tokens[TOKENS];
    struct indexed *indexed;
    struct error err;

    write_image(&image);
    indexed = indexed_open(PREFIX, &err);
    assert_non_null(indexed);
    assert_int_equal(truncate(PREFIX ".bin", 9), 0);
    assert_int_equal(indexed_read(indexed, 0, TOKENS, 256, tokens, &err), -1);
    assert_string_equal(err.text, "test_data.bin ends at offset 9; it had 24 bytes when it was opened");
    assert_int_equal(err.code, CODE_DATA);
    indexed_close(indexed);
}

static void tokens_beyond_the_vocabulary_are_reported(void **state)
{
    const struct model_shape shape = {.seq_length = 3, .vocab = 250};
    struct image image = make_image(INDEXED_I32);
    int32_t tokens[3], targets[3];
    struct samples *samples;
    struct error err;

    put(image.bin + 4 * 9, (uint32_t)-5, 4);
    write_image(&image);
    samples = make_samples(PREFIX, &shape, NULL, false, 0, &err);
    assert_non_null(samples);
    assert_int_equal(samples_read(samples, 0, &(struct sample){.tokens = tokens, .targets = targets}, &err), -1);
    assert_string_equal(err.text,
                        "test_data.bin, offset 4: token 1 is 250; with model.vocab = 250 tokens are 0 to 249");
    assert_int_equal(err.code, CODE_DATA);
    assert_int_equal(samples_read(samples, 1, &(struct sample){.tokens = tokens, .targets = targets}, &err), 0);
    assert_int_equal(samples_read(samples, 2, &(struct sample){.tokens = tokens, .targets = targets}, &err), -1);
    assert_string_equal(err.text,
                        "test_data.bin, offset 36: token 9 is -5; with model.vocab = 250 tokens are 0 to 249");
    samples_destroy(samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_is_read_back),
        cmocka_unit_test(sequences_and_documents_are_read_back),
        cmocka_unit_test(large_sets_are_read_across_chunks),
        cmocka_unit_test(every_broken_index_has_its_message),
        cmocka_unit_test(every_short_index_is_refused),
        cmocka_unit_test(wrong_sizes_and_missing_files_are_named),
        cmocka_unit_test(a_file_that_shrinks_is_an_error),
        cmocka_unit_test(tokens_beyond_the_vocabulary_are_reported),
    };

    return cmocka_run_group_tests_name("data", tests, NULL, remove_files);
}

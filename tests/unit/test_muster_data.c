/* muster-data, run as a user runs it: what it writes, says, refuses and leaves behind. */
#include <unistd.h>

#include "tests/unit/muster_data_run.h"
#include "trainer/data/indexed.h"

static void expect_tokens(const char *prefix, const char *bytes, uint64_t documents)
{
    struct error err;
    struct indexed *indexed = indexed_open(prefix, &err);
    size_t count = strlen(bytes);
    int32_t tokens[256];

    if (!indexed)
        fail_msg("%s", err.text);
    assert_int_equal(indexed_facts(indexed).type, INDEXED_U8);
    assert_int_equal(indexed_facts(indexed).tokens, count);
    assert_int_equal(indexed_facts(indexed).documents, documents);
    assert_int_equal(indexed_read(indexed, 0, count, 256, tokens, &err), 0);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(tokens[i], (unsigned char)bytes[i]);
    indexed_close(indexed);
}

static void texts_become_documents(void **state)
{
    write_file("a", "first\n", 6);
    write_file("b", "z\xc3\xbcrich \xff", 9);
    expect("a b --out set", 0, "set: 15 tokens, 2 documents; wrote set.bin and set.idx\n");
    expect_tokens("set", "first\nz\xc3\xbcrich \xff", 2);
    expect("verify set", 0,
           "set: 15 tokens (uint8), 2 documents, longest sequence 9; tokens are 10 to 255: model.vocab must be at "
           "least 256\n");
    assert_int_equal(system("test -z \"$(ls | grep '[.]tmp$')\""), 0);
}

static void standard_input_is_a_text(void **state)
{
    write_file("a", "one", 3);
    expect("a - --out set < a", 0, "set: 6 tokens, 2 documents; wrote set.bin and set.idx\n");
    expect_tokens("set", "oneone", 2);
}

static void the_last_part_is_for_validation(void **state)
{
    write_file("a", "0123456789", 10);
    write_file("b", "abcdefghij", 10);
    expect("a b --out train --valid-out valid --valid-percent 25", 0,
           "train: 15 tokens, 2 documents; wrote train.bin and train.idx\n"
           "valid: 5 tokens, 1 document; wrote valid.bin and valid.idx\n");
    expect_tokens("train", "0123456789abcde", 2);
    expect_tokens("valid", "fghij", 1);
    expect("a b --out train2 --valid-out valid2", 0,
           "train2: 19 tokens, 2 documents; wrote train2.bin and train2.idx\n"
           "valid2: 1 token, 1 document; wrote valid2.bin and valid2.idx\n");
}

/* The sentences as they lie in the file, with '|' after each and a second one after each document. */
static void expect_sentences(const char *prefix, const char *divided)
{
    struct error err;
    struct indexed *indexed = indexed_open(prefix, &err);
    struct indexed_facts facts;
    uint64_t begin = 0, document = 0, boundaries[16];
    int32_t lengths[64], tokens[256];
    char text[512] = "";
    size_t size = 0;

    if (!indexed)
        fail_msg("%s", err.text);
    facts = indexed_facts(indexed);
    assert_int_equal(indexed_lengths(indexed, 0, facts.sequences, lengths, &err), 0);
    assert_int_equal(indexed_boundaries(indexed, 0, facts.documents + 1, boundaries, &err), 0);
    for (uint64_t i = 0; i < facts.sequences; i++) {
        assert_int_equal(indexed_read(indexed, begin, (size_t)lengths[i], 256, tokens, &err), 0);
        for (int k = 0; k < lengths[i]; k++)
            text[size++] = (char)tokens[k];
        begin += (uint64_t)lengths[i];
        text[size++] = '|';
        for (; boundaries[document + 1] == i + 1 && document < facts.documents; document++)
            text[size++] = '|';
    }
    assert_string_equal(text, divided);
    indexed_close(indexed);
}

static void sentences_are_told_apart(void **state)
{
    write_file("a", "One. Two!  Three\n\nFour", 22);
    write_file("b", "\n Five", 6);
    write_file("c", "end.", 4);
    write_file("d", "begin", 5);
    expect("a b c d --out set --sentences", 0, "set: 37 tokens, 7 sentences, 4 documents; wrote set.bin and set.idx\n");
    expect_sentences("set", "One. |Two!  |Three\n\n|Four||\n Five||end.||begin||");
    expect(
        "verify set", 0,
        "set: 37 tokens (uint8), 7 sentences, 4 documents, longest sentence 7; tokens are 10 to 119: model.vocab must "
        "be at least 120\n");
    expect("a b c d --out plain", 0, "plain: 37 tokens, 4 documents; wrote plain.bin and plain.idx\n");
    expect_sentences("plain", "One. Two!  Three\n\nFour||\n Five||end.||begin||");
    assert_int_equal(system("cmp set.bin plain.bin"), 0);
    expect("verify plain", 0,
           "plain: 37 tokens (uint8), 4 documents, longest sequence 22; tokens are 10 to 119: model.vocab must be at "
           "least 120\n");
    expect("a --out train --sentences --valid-out valid --valid-percent 70", 0,
           "train: 7 tokens, 2 sentences, 1 document; wrote train.bin and train.idx\n"
           "valid: 15 tokens, 3 sentences, 1 document; wrote valid.bin and valid.idx\n");
    expect_sentences("train", "One. |Tw||");
    expect_sentences("valid", "o!  |Three\n\n|Four||");
}

/* Longer than one piece that is read at a time; the 'x' are one sentence, and the seam is within it. */
static void long_texts_have_sentences_too(void **state)
{
    enum { SIZE = 3 << 20 };
    char *text = malloc(SIZE);
    struct indexed *indexed;
    struct indexed_facts facts;
    struct error err;

    assert_non_null(text);
    memset(text, 'x', SIZE);
    for (int i = 0; i + 3 < SIZE; i += 70001)
        memcpy(text + i, "x. ", 3);
    memcpy(text + (1 << 20) - 2, "x. y", 4); /* the white space ends a piece, or is the next's first byte */
    memcpy(text + (2 << 20) - 1, ". y", 3);
    write_file("a", text, SIZE);
    free(text);
    expect("a --out set --sentences", 0, "set: 3145728 tokens, 48 sentences, 1 document; wrote set.bin and set.idx\n");
    indexed = indexed_open("set", &err);
    assert_non_null(indexed);
    facts = indexed_facts(indexed);
    assert_int_equal(facts.sequences, 48);
    assert_int_equal(facts.longest_document, 48);
    assert_int_equal(facts.longest, 70001);
    indexed_close(indexed);
}

static void broken_texts_are_refused(void **state)
{
    static const struct {
        const char *arguments;
        int code;
        const char *message;
    } rows[] = {
        {"empty --out set", 65, "empty is empty; leave it out or give it text"},
        {"empty empty --out set", 65, "empty is empty; leave it out or give it text"},
        {"- --out set < /dev/null", 65, "standard input is empty; leave it out or give it text"},
        {"zero --out set", 65, "zero:1, offset 4: a zero byte; give plain text, not UTF-16, not a binary file"},
        {"zero-far --out set", 65,
         "zero-far:1, offset 1500000: a zero byte; give plain text, not UTF-16, not a binary file"},
        {". --out set", 65, ". is a directory; give the files in it"},
        {"none --out set", 65, "cannot read none: No such file or directory"},
        {"a --out no/such/set", 74, "cannot create no/such/set.bin.tmp: No such file or directory"},
        {"a --out set --valid-out valid --valid-percent 1", 65,
         "1 percent of 3 tokens leaves nothing for validation; give more text"},
        {"a", 64, "no --out PREFIX was given; muster-data --help lists the options"},
        {"a --out ''", 64, "the prefix \"\" names no file; muster-data --help lists the options"},
        {"a --out set --valid-out ../", 64, "the prefix \"../\" names no file; muster-data --help lists the options"},
        {"--out set", 64, "no text was given; muster-data --help lists the options"},
        {"a --out set --valid-percent 5", 64,
         "--valid-percent was given without --valid-out; muster-data --help lists the options"},
        {"a --out set --valid-out set", 64,
         "--out and --valid-out are the same prefix; muster-data --help lists the options"},
        {".//set --out ./set --valid-out .//./set", 64,
         "--out and --valid-out are the same prefix; muster-data --help lists the options"},
        {"a --out set --valid-out v --valid-percent 100", 64,
         "--valid-percent must be a number, more than 0 and less than 100; muster-data --help lists the options"},
        {"a --out set --valid-out v --valid-percent 5x", 64,
         "--valid-percent needs a number from 0 to 100, not 5x; muster-data --help lists the options"},
        {"verify", 64, "verify: no prefix was given; muster-data --help lists the options"},
        {"verify none", 65, "there is no none.idx; give the prefix of a .bin and .idx made by muster-data"},
    };
    char *far = malloc(1600000);

    assert_non_null(far);
    memset(far, 'x', 1600000);
    far[1500000] = '\0';
    write_file("zero-far", far, 1600000);
    free(far);
    write_file("a", "one", 3);
    write_file("empty", "", 0);
    write_file("zero", "text\0text", 9);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char message[1024];

        snprintf(message, sizeof message, "muster-data: %s\n", rows[i].message);
        expect(rows[i].arguments, rows[i].code, message);
        expect_nothing_left();
    }
}

static void empty_texts_among_others_are_left_out(void **state)
{
    write_file("a", "one", 3);
    write_file("b", "two.", 4);
    write_file("empty", "", 0);
    expect("empty a empty b --out set", 0,
           "left out 2 of 4 documents, which are empty: empty, ...\n"
           "set: 7 tokens, 2 documents; wrote set.bin and set.idx\n");
    expect("a empty b --out more --valid-out valid --valid-percent 50", 0,
           "left out 1 of 3 documents, which is empty: empty\n"
           "more: 4 tokens, 2 documents; wrote more.bin and more.idx\n"
           "valid: 3 tokens, 1 document; wrote valid.bin and valid.idx\n");
}

static void texts_are_named_by_a_list(void **state)
{
    write_file("a", "one", 3);
    write_file("b c", "two.", 4);
    write_file("list", "b c\n\n./a", 8);
    expect("--files-from list --out set", 0, "set: 7 tokens, 2 documents; wrote set.bin and set.idx\n");
    expect_tokens("set", "two.one", 2);
    expect("a --files-from - --out more < list", 0, "more: 10 tokens, 3 documents; wrote more.bin and more.idx\n");
    expect_tokens("more", "onetwo.one", 3);
    expect("--files-from /dev/null --out none", 64,
           "muster-data: /dev/null names no text; muster-data --help lists the options\n");
    write_file("zeros", "a\0b", 4);
    expect("--files-from zeros --out none", 65,
           "muster-data: zeros: a zero byte; names must be one a line (of find, without -print0)\n");
    expect("--files-from nowhere --out none", 65, "muster-data: cannot read nowhere: No such file or directory\n");
    write_file("list", "a\nb\n", 4);
    expect("--files-from list --out none", 65, "muster-data: cannot read b: No such file or directory\n");
}

/* More names than a command line holds, and more than one growth of the table. */
static void a_list_may_be_long(void **state)
{
    write_file("a", "x", 1);
    expect("--files-from list --out set $(yes ./././././././././././././././././././a | head -n 100000 > list)", 0,
           "set: 100000 tokens, 100000 documents; wrote set.bin and set.idx\n");
}

static void an_existing_set_is_kept(void **state)
{
    write_file("a", "one", 3);
    write_file("b", "two", 3);
    expect("a --out set", 0, "set: 3 tokens, 1 document; wrote set.bin and set.idx\n");
    expect("b --out set", 64, "muster-data: set.idx exists; remove the set or choose another prefix\n");
    expect_tokens("set", "one", 1);
    unlink("set.idx");
    expect("b --out set", 64, "muster-data: set.bin exists without an index; remove it or choose another prefix\n");
    unlink("set.bin");
    expect("b --out set", 0, "set: 3 tokens, 1 document; wrote set.bin and set.idx\n");
    expect_tokens("set", "two", 1);
}

static void two_writers_of_one_prefix_do_not_mix(void **state)
{
    struct error err;
    struct indexed_writer *writer = indexed_writer_create("set", INDEXED_U8, NULL, &err);

    write_file("a", "one", 3);
    assert_non_null(writer);
    expect("a --out set", 64, "muster-data: set.bin.tmp is being written by another process\n");
    assert_int_equal(indexed_writer_append(writer, "mine", 4, &err), 0);
    assert_int_equal(indexed_writer_end_document(writer, &err), 0);
    assert_int_equal(indexed_writer_end_document(writer, &err), 0); /* without tokens: harmless */
    assert_int_equal(indexed_writer_commit(writer, &err), 0);
    indexed_writer_destroy(writer);
    indexed_writer_destroy(NULL);
    expect_tokens("set", "mine", 1);
}

/* A limit on the size of files stands in for a full disk: write fails in the same way. */
static void a_full_disk_is_an_error_and_leaves_nothing(void **state)
{
    char *text = malloc(300000), command[8192];

    assert_non_null(text);
    memset(text, 'x', 300000);
    write_file("a", text, 300000);
    free(text);
    snprintf(command, sizeof command,
             "ulimit -f 100; '%s' a --out set 2> said; test $? = 74 && "
             "grep -qx 'muster-data: cannot write set.bin.tmp: File too large' said",
             program);
    assert_int_equal(system(command), 0);
    expect_nothing_left();
}

static void a_signal_leaves_nothing(void **state)
{
    char command[8192];

    snprintf(command, sizeof command,
             "mkfifo pipe && { '%s' pipe --out set 2> said & } && { printf text; until test -e set.idx.tmp; do sleep "
             "0.02; done; "
             "kill -TERM $!; wait $!; echo $? > code; } 3>&1 > pipe",
             program);
    assert_int_equal(system(command), 0);
    assert_int_equal(system("grep -qx 'muster-data: stopped by a signal; nothing was kept' said"), 0);
    assert_int_equal(system("grep -qx 143 code"), 0);
    expect_nothing_left();
}

static void help_and_version(void **state)
{
    expect("--help | grep -c -e --out -e --valid-percent -e --sentences -e --files-from", 0, "7\n");
    expect("--version | grep -c '^muster-data [0-9.]*$'", 0, "1\n");
    expect("--nonsense", 64, "muster-data: unknown option --nonsense; muster-data --help lists the options\n");
    expect("a -out set", 64, "muster-data: unknown option -out; muster-data --help lists the options\n");
    expect("a --out", 64, "muster-data: a value is missing after --out; muster-data --help lists the options\n");
    expect("--help >/dev/full", 74, "muster-data: cannot write to standard output: No space left on device\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(texts_become_documents, clean),
        cmocka_unit_test_setup(standard_input_is_a_text, clean),
        cmocka_unit_test_setup(the_last_part_is_for_validation, clean),
        cmocka_unit_test_setup(sentences_are_told_apart, clean),
        cmocka_unit_test_setup(long_texts_have_sentences_too, clean),
        cmocka_unit_test_setup(broken_texts_are_refused, clean),
        cmocka_unit_test_setup(empty_texts_among_others_are_left_out, clean),
        cmocka_unit_test_setup(texts_are_named_by_a_list, clean),
        cmocka_unit_test_setup(a_list_may_be_long, clean),
        cmocka_unit_test_setup(an_existing_set_is_kept, clean),
        cmocka_unit_test_setup(two_writers_of_one_prefix_do_not_mix, clean),
        cmocka_unit_test_setup(a_full_disk_is_an_error_and_leaves_nothing, clean),
        cmocka_unit_test_setup(a_signal_leaves_nothing, clean),
        cmocka_unit_test_setup_teardown(help_and_version, clean, clean),
    };

    return cmocka_run_group_tests_name("muster_data", tests, enter, leave);
}

/* muster-data on JSON lines, compressed texts and with tokenizers: what it makes of them, and what it refuses. */
#include "tests/unit/muster_data_run.h"

/* BERT's kind of vocabulary: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, a 5, b 6, c 7, ##b 8, "." 9. */
static void write_vocab(void)
{
    write_text("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\n##b\n.\n");
}

static void lines_of_json_are_documents(void **state)
{
    write_text("a.jsonl",
               "{\"text\": \"one\"}\n\n {\"id\": [1, {\"text\": 2}], \"text\":\"two\\n\\u00fc\\ud83d\\ude00\"} \r\n"
               "{\"te\\u0078t\": \"x\", \"text\": \"y\", \"other\": -1.5e3}");
    expect("a.jsonl --out set", 0, "set: 14 tokens, 3 documents; wrote set.bin and set.idx\n");
    expect("decode set", 0, "onetwo\n\xc3\xbc\xf0\x9f\x98\x80y");
    expect("decode set --documents 1-2", 0, "two\n\xc3\xbc\xf0\x9f\x98\x80y");
    expect("decode set --documents 3", 64, "muster-data: set has documents 0 to 2\n");
    write_text("b.json", "{\"content\": \"one\", \"text\": 3}\n");
    expect("b.json --key content --out b", 0, "b: 3 tokens, 1 document; wrote b.bin and b.idx\n");
    expect("- --key content --out c < b.json", 0, "c: 3 tokens, 1 document; wrote c.bin and c.idx\n");
    same_set("b", "c");
    write_text("e.jsonl", "{\"text\": \"\"}\n{\"text\": \"x\"}\n{\"text\": \"\"}\n");
    expect(
        "e.jsonl --out e", 0,
        "left out 2 of 3 documents, which are empty: e.jsonl:1, ...\ne: 1 token, 1 document; wrote e.bin and e.idx\n");
}

static void a_byte_order_mark_is_dropped_and_said(void **state)
{
    static const struct {
        const char *arguments, *said;
    } rows[] = {
        {"text --out set", "text begins with a byte order mark: such marks are dropped"},
        {"- --out set < text", "standard input begins with a byte order mark: such marks are dropped"},
        {"text.gz --raw --out set", "text.gz begins with a byte order mark: such marks are dropped"},
        {"a.jsonl --out set", "a.jsonl begins with a byte order mark: such marks are dropped"},
        {"--files-from list --out set", "list begins with a byte order mark: such marks are dropped"},
    };
    char said[300];

    write_text("text", "\xef\xbb\xbf"
                       "abc");
    assert_int_equal(system("gzip -k text"), 0);
    write_text("plain", "abc");
    write_text("list", "\xef\xbb\xbfplain\r\n");
    write_text("a.jsonl", "\xef\xbb\xbf{\"text\": \"abc\"}\n");
    expect("plain --out expected", 0, "expected: 3 tokens, 1 document; wrote expected.bin and expected.idx\n");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(said, sizeof said, "muster-data: %s\nset: 3 tokens, 1 document; wrote set.bin and set.idx\n",
                 rows[i].said);
        expect(rows[i].arguments, 0, said);
        same_set("expected", "set");
        assert_int_equal(system("rm set.*"), 0);
    }
    write_text("json", "\xef\xbb\xbf{\"text\": \"abc\"}\n"); /* the second text with a mark */
    expect("text json --out set", 0,
           "muster-data: text begins with a byte order mark: such marks are dropped\n"
           "muster-data: json is read as JSON lines, and so are other texts like it; --raw takes each text as one "
           "document\nset: 6 tokens, 2 documents; wrote set.bin and set.idx\n");
    write_vocab();
    assert_int_equal(system("{ printf '\\357\\273\\277'; cat vocab.txt; } > marked.txt"), 0);
    expect("plain --tokenizer vocab.txt --out words", 0, "words: 1 token, 1 document; wrote words.bin and words.idx\n");
    expect("plain --tokenizer marked.txt --out marked", 0,
           "muster-data: marked.txt begins with a byte order mark: such marks are dropped\n"
           "marked: 1 token, 1 document; wrote marked.bin and marked.idx\n");
    same_set("words", "marked");
    assert_int_equal(system("cmp marked.txt marked.tokenizer/vocab.txt"), 0); /* a copy */
}

static void compressed_texts_give_the_same_set(void **state)
{
    assert_int_equal(system("seq 200000 | sed 's/.*/{\"text\": \"number & and \\\\u00e9\"}/' > a.jsonl"), 0);
    assert_int_equal(
        system("gzip -k a.jsonl && { head -n 1000 a.jsonl | gzip; tail -n +1001 a.jsonl | gzip; } > b.json.gz"), 0);
    expect("a.jsonl --out a --workers 1", 0, "a: 3888895 tokens, 200000 documents; wrote a.bin and a.idx\n");
    expect("a.jsonl.gz --out b --workers 3", 0, "b: 3888895 tokens, 200000 documents; wrote b.bin and b.idx\n");
    expect("b.json.gz --out c", 0, "c: 3888895 tokens, 200000 documents; wrote c.bin and c.idx\n");
    same_set("a", "b");
    same_set("a", "c");
    /* pzstd's form */
    assert_int_equal(system("printf 'P*M\\030\\002\\0\\0\\0xx(\\265/\\375 \\004!\\0\\0text' > p.zst"), 0);
    expect("p.zst --out p", 0, "p: 4 tokens, 1 document; wrote p.bin and p.idx\n");
    /* a frame with a window of 2 GiB, as that of zstd --long=31, and a raw block */
    assert_int_equal(system("printf '(\\265/\\375\\000\\250!\\0\\0text' > l.zst"), 0);
    expect("l.zst --out l", 0, "l: 4 tokens, 1 document; wrote l.bin and l.idx\n");
    expect("decode p", 0, "text");
    expect("a.jsonl.gz --out text --key number", 65,
           "muster-data: a.jsonl.gz:1, offset 0: the object has no key \"number\"; --key names another\n");
}

static void a_tokenizer_goes_with_the_set(void **state)
{
    write_vocab();
    write_text("a", "Ab c. B x");
    expect("a --tokenizer vocab.txt --out set --append-eod", 0,
           "set: 7 tokens, 1 document; wrote set.bin and set.idx\n");
    expect(
        "verify set", 0,
        "set: 7 tokens (uint16), 1 document, longest sequence 7; tokens are 1 to 9: model.vocab must be at least 10; "
        "tokenizer: WordPiece, 10 tokens\n");
    expect("decode set", 0, "ab c . b [UNK] [SEP]");
    assert_int_equal(system("cmp vocab.txt set.tokenizer/vocab.txt"), 0);
    expect("a --tokenizer . --sentences --out pairs", 0,
           "pairs: 6 tokens, 2 sentences, 1 document; wrote pairs.bin and pairs.idx\n");
    expect("show pairs", 0,
           "pairs: 6 tokens (uint16), 2 sentences, 1 document, longest sentence 4; tokenizer: WordPiece, 10 tokens\n");
    expect("a --out bytes --append-eod", 0, "bytes: 10 tokens, 1 document; wrote bytes.bin and bytes.idx\n");
    expect("decode bytes", 0, "Ab c. B x");
    write_text("vocab.txt", "[UNK]\n[SEP]\n");
    assert_int_equal(system("cp vocab.txt set.tokenizer"), 0);
    expect("verify set", 65,
           "muster-data: set.tokenizer does not fit: set.bin, offset 0: token 0 is 5; the tokenizer has 0 to "
           "1\n");
}

static void documents_are_split_in_order(void **state)
{
    assert_int_equal(system("seq 0 99 | sed 's/.*/{\"text\": \"& \"}/' > a.jsonl"), 0);
    expect("a.jsonl --split 969,30,1 --out set", 65,
           "muster-data: --split 969,30,1 of 100 documents leaves none for set_test; give more\n");
    expect_nothing_left();
    expect("a.jsonl --split 8,1,1 --out set", 0,
           "set_train: 230 tokens, 80 documents; wrote set_train.bin and set_train.idx\n"
           "set_valid: 30 tokens, 10 documents; wrote set_valid.bin and set_valid.idx\n"
           "set_test: 30 tokens, 10 documents; wrote set_test.bin and set_test.idx\n");
    expect("decode set_train --documents 78-79", 0, "78 79 ");
    expect("decode set_valid", 0, "80 81 82 83 84 85 86 87 88 89 ");
    expect("decode set_test", 0, "90 91 92 93 94 95 96 97 98 99 ");
    expect("a.jsonl --split 3,0,1 --out two", 0,
           "two_train: 215 tokens, 75 documents; wrote two_train.bin and two_train.idx\n"
           "two_test: 75 tokens, 25 documents; wrote two_test.bin and two_test.idx\n");
}

static void bad_places_are_skipped_on_request(void **state)
{
    write_vocab();
    write_text("a.jsonl", "{\"text\": \"a\"}\n{\"text\": 3}\n{\"text\": \"b\"}\n{\"text\": \"a\n{\"text\": \"c\"}\n");
    expect("a.jsonl --out set", 65, "muster-data: a.jsonl:2, offset 23: the value of \"text\" is not a string\n");
    expect_nothing_left();
    expect("a.jsonl --out set --skip-bad 1", 65,
           "muster-data: a.jsonl:4, offset 51: the JSON ends early (after 1 skipped by --skip-bad)\n");
    expect_nothing_left();
    expect("a.jsonl --out set --skip-bad 2", 0,
           "skipped 2 bad places, the first: a.jsonl:2, offset 23: the value of \"text\" is not a string\n"
           "set: 3 tokens, 3 documents; wrote set.bin and set.idx\n");
    expect("decode set", 0, "abc");
    assert_int_equal(system("seq 500 | gzip -n | head -c 200 > half.gz"), 0);
    for (int workers = 1; workers <= 8; workers += 7) { /* the first error counts, whoever finds one first */
        char arguments[100];

        snprintf(arguments, sizeof arguments, "a.jsonl half.gz --out none --workers %d", workers);
        expect(arguments, 65, "muster-data: a.jsonl:2, offset 23: the value of \"text\" is not a string\n");
    }
    write_file("b", "a\nb\xff\xfe c \xc3\n", 10);
    expect("b --tokenizer vocab.txt --out words", 65, "muster-data: b:2, offset 3: not UTF-8: byte 0xff\n");
    expect("b --tokenizer vocab.txt --out words --skip-bad 5", 0,
           "skipped 2 bad places, the first: b:2, offset 3: not UTF-8: byte 0xff\n"
           "words: 3 tokens, 1 document; wrote words.bin and words.idx\n");
    expect("decode words", 0, "a b c");
    expect("b --out bytes", 0, "bytes: 10 tokens, 1 document; wrote bytes.bin and bytes.idx\n");
}

static void broken_input_is_refused_with_one_line(void **state)
{
    static const struct {
        const char *text; /* of x.jsonl */
        const char *message;
    } lines[] = {
        {"[1]", "x.jsonl:1, offset 0: expected a JSON object, as {\"text\": \"...\"}, on each line"},
        {"{\"text\": \"a\"}\n\xef\xbb\xbf{}", "x.jsonl:2, offset 14: a byte order mark: remove these three bytes"},
        {"{\"text\": \"a\"},", "x.jsonl:1, offset 13: more after the object: expected one object a line"},
        {"{\"text\": \"a\"", "x.jsonl:1, offset 12: the JSON ends early"},
        {"{\"text\" \"a\"}", "x.jsonl:1, offset 8: expected a colon"},
        {"{text: \"a\"}", "x.jsonl:1, offset 1: expected a key in quotes"},
        {"{\"text\": \"a\" \"b\"}", "x.jsonl:1, offset 13: expected a comma or a closing brace"},
        {"{\"text\": \"\\x\"}", "x.jsonl:1, offset 11: an unknown escape after \\"},
        {"{\"text\": \"\\u12g4\"}", "x.jsonl:1, offset 12: expected four hexadecimal digits after \\u"},
        {"{\"text\": \"\\ud800\"}", "x.jsonl:1, offset 16: half of a surrogate pair, which is no character"},
        {"{\"text\": \"a\tb\"}", "x.jsonl:1, offset 11: a control character in a string: it must be escaped"},
        {"{\"text\": \"\xff\"}", "x.jsonl:1, offset 10: not UTF-8"},
        {"{\"text\": null}", "x.jsonl:1, offset 9: the value of \"text\" is not a string"},
        {"{\"n\": 01, \"text\": \"a\"}", "x.jsonl:1, offset 7: expected a comma or a closing brace"},
        {"{\"n\": tru}", "x.jsonl:1, offset 6: expected a value"},
        {"{\"n\": [1 2]}", "x.jsonl:1, offset 9: expected a comma or a closing bracket"},
        {"{\"n\": 1.}", "x.jsonl:1, offset 8: expected a digit"},
        {"\n\n{}", "x.jsonl:3, offset 2: the object has no key \"text\"; --key names another"},
        {"\n", "x.jsonl has no document; give it text"},
    };
    char message[400];

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        write_text("x.jsonl", lines[i].text);
        snprintf(message, sizeof message, "muster-data: %s\n", lines[i].message);
        expect("x.jsonl --out set", 65, message);
        expect_nothing_left();
    }
}

static void broken_files_are_refused_with_one_line(void **state)
{
    static const struct {
        const char *arguments;
        int code;
        const char *message;
    } rows[] = {
        {"half.gz --out set", 65, "half.gz, offset 12: the compressed text ends early: the file is not complete"},
        {"more.gz --out set", 65, "more.gz, offset 24: bytes that are not gzip's after the end of the compressed text"},
        {"text.gz --out set", 65, "text.gz, offset 0: not compressed as its name says: rename it, or compress it"},
        {"text.zst --out set", 65, "text.zst, offset 0: not compressed as its name says: rename it, or compress it"},
        {"a --out set --tokenizer none", 74, "none: No such file or directory"},
        {"a --out set --tokenizer a", 65,
         "a: not a tokenizer's file: expected tokenizer.json, vocab.json, merges.txt, encoder.json, vocab.bpe, "
         "vocab.txt "
         "or *.model"},
        {"a --out set --tokenizer other.txt --append-eod", 78,
         "other.txt has no token that ends a document: name eos_token in its special_tokens_map.json"},
        {"a --out set --split 1,2,3,4", 64,
         "--split 1,2,3,4: expected up to three weights, as 969,30,1; muster-data --help lists the options"},
        {"a --out set --split 0", 64,
         "--split 0: expected up to three weights, as 969,30,1; muster-data --help lists the options"},
        {"a --out set --split 1,1 --valid-out v", 64,
         "--split and --valid-out were both given; muster-data --help lists the options"},
        {"a --out set --workers 0", 64,
         "--workers needs a whole number from 1 to 1024, not 0; muster-data --help lists the options"},
        {"a --out set --skip-bad -1", 64,
         "--skip-bad needs a whole number from 0 to 2147483647, not -1; muster-data --help lists the options"},
        {"show a", 65, "there is no a.idx; give the prefix of a .bin and .idx made by muster-data"},
        {"show", 64, "show: no prefix was given; muster-data --help lists the options"},
        {"decode a b", 64, "decode: expected one prefix; muster-data --help lists the options"},
        {"train-tokenizer a --out t", 64,
         "train-tokenizer: no --vocab-size was given; muster-data --help lists the options"},
        {"train-tokenizer a --out t --vocab-size 400 --kind word", 64,
         "--kind word: expected bpe or unigram; muster-data --help lists the options"},
    };
    char message[400];

    write_text("a", "text");
    write_text("other.txt", "[UNK]\na\n");
    assert_int_equal(system("cp a text.gz; cp a text.zst; gzip -n < a > whole.gz; head -c 12 whole.gz > half.gz; "
                            "{ cat whole.gz; echo more; } > more.gz"),
                     0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(message, sizeof message, "muster-data: %s\n", rows[i].message);
        expect(rows[i].arguments, rows[i].code, message);
        expect_nothing_left();
    }
}

static void what_is_no_text_is_named(void **state)
{
    static const struct {
        const char *bytes, *name; /* the first bytes of such a file */
        size_t count;
    } kinds[] = {
        {"\xfd\x37zXZ\0\0\4", "xz", 8}, {"BZh91AY&SY", "bzip2", 10},  {"BZh11AY&SY", "bzip2", 10},
        {"PK\3\4\24\0", "zip", 6},      {"PAR1\x15\4", "Parquet", 6},
    };
    static const char *const arrays[] = {"[{\"text\": \"one\"},\n {\"text\": \"two\"}]\n", " [\n{\"text\":\n\"one\"}]"};
    static const char *const texts[] = {"[1]",   "[Music] la la", "[\"Hello\", he said.]", "[{x}]", "[]",
                                        "[[1]]", "[{\"a\""};
    char message[200];

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        write_file("text", kinds[i].bytes, kinds[i].count);
        snprintf(message, sizeof message,
                 "muster-data: text, offset 0: a file of %s: give its text, plain or compressed by gzip or zstd\n",
                 kinds[i].name);
        expect("text --out set", 65, message);
    }
    write_file("text", "PK\3\4\0", 5);
    expect(
        "- --raw --out set < text", 65,
        "muster-data: standard input, offset 0: a file of zip: give its text, plain or compressed by gzip or zstd\n");
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        write_text("text", arrays[i]);
        expect(
            "text --out set", 65,
            "muster-data: text: an array of JSON objects: write one a line, as jq -c '.[]' does; --raw takes each text "
            "as one document\n");
        expect_nothing_left();
        expect("text --raw --out set > said && cat set.bin; rm set.*", 0, arrays[i]);
    }
    assert_int_equal(system("{ echo '['; yes '{\"text\": \"one two three\"},' | head -n 40000; echo '{}]'; } > text"),
                     0);
    expect(
        "text --out set", 65,
        "muster-data: text: an array of JSON objects: write one a line, as jq -c '.[]' does; --raw takes each text as "
        "one document\n");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        write_text("text", texts[i]);
        expect("text --out set > said && cat set.bin; rm set.*", 0, texts[i]);
    }
}

static void a_token_below_0_is_refused_as_such(void **state)
{
    write_text("a", "xy");
    expect("a --out set --append-eod", 0, "set: 3 tokens, 1 document; wrote set.bin and set.idx\n");
    /* As int32: 5, -1. */
    write_file("set.bin", "\5\0\0\0\xff\xff\xff\xff", 8);
    assert_int_equal(system("printf '\\004' | dd of=set.idx bs=1 seek=17 conv=notrunc 2>/dev/null && "
                            "printf '\\002' | dd of=set.idx bs=1 seek=34 conv=notrunc 2>/dev/null"),
                     0);
    expect("verify set", 65, "muster-data: set.bin, offset 4: token 1 is -1; a token is 0 or more\n");
    expect("decode set --tokenizer bytes", 65, "muster-data: set.bin, offset 4: token 1 is -1; a token is 0 or more\n");
}

static void an_overlong_line_is_bad(void **state)
{
    assert_int_equal(system("{ echo '{\"text\": \"a\"}'; head -c 70000000 /dev/zero | tr '\\0' x; echo; "
                            "echo '{\"text\": \"b\"}'; } > a.jsonl"),
                     0);
    expect("a.jsonl --out set", 65,
           "muster-data: a.jsonl:2, offset 14: a line of more than 64 MiB; expected one document a line\n");
    expect_nothing_left();
    expect("a.jsonl --out set --skip-bad 1", 0,
           "skipped 1 bad place, the first: a.jsonl:2, offset 14: a line of more than 64 MiB; expected one document a "
           "line\nset: 2 tokens, 2 documents; wrote set.bin and set.idx\n");
    expect("decode set", 0, "ab");
    write_vocab();
    assert_int_equal(system("{ echo a; head -c 70000000 /dev/zero | tr '\\0' x; } > word"), 0);
    expect(
        "word --tokenizer vocab.txt --out word", 65,
        "muster-data: word:1, offset 1: more than 64 MiB that this tokenizer cannot divide: give shorter documents, as "
        "files or as JSON lines\n");
    assert_int_equal(system("test -z \"$(ls | grep word[.])\""), 0);
}

static void what_a_killed_run_left_is_replaced(void **state)
{
    write_vocab();
    write_text("a", "a b");
    assert_int_equal(system("mkdir set.tokenizer.tmp; echo x > set.bin; echo x > set.bin.tmp; echo x > set.idx.tmp; "
                            "cp vocab.txt set.tokenizer.tmp"),
                     0);
    expect("a --tokenizer vocab.txt --out set", 0, "set: 2 tokens, 1 document; wrote set.bin and set.idx\n");
    assert_int_equal(system("test -z \"$(ls | grep tmp)\""), 0);
}

/* What this run did not make stays, and a run that would have to replace it is refused. */
static void the_users_files_stay(void **state)
{
    write_vocab();
    write_text("a", "a b");
    write_text("empty", "");
    assert_int_equal(system("mkdir set.tokenizer && cp vocab.txt set.tokenizer"), 0);
    expect("empty --tokenizer set.tokenizer --out set", 65,
           "muster-data: empty is empty; leave it out or give it text\n");
    assert_int_equal(system("cmp vocab.txt set.tokenizer/vocab.txt"), 0);
    expect("a --out set", 64, "muster-data: set.tokenizer is another tokenizer: move it, or choose another name\n");
    assert_int_equal(system("touch set.bin.tmp"), 0); /* of a run that was killed */
    expect("a --out set", 64, "muster-data: set.tokenizer is another tokenizer: move it, or choose another name\n");
    assert_int_equal(system("cmp vocab.txt set.tokenizer/vocab.txt"), 0);
    expect("a --tokenizer set.tokenizer --out set", 0, "set: 2 tokens, 1 document; wrote set.bin and set.idx\n");
    write_text("words.bin", "a b");
    expect("words.bin --out words", 64,
           "muster-data: words.bin is an input text and would be overwritten; choose another prefix\n");
    expect("a --out words", 64, "muster-data: words.bin exists without an index; remove it or choose another prefix\n");
    expect("- --out words <words.bin", 64,
           "muster-data: words.bin is an input text and would be overwritten; choose another prefix\n");
    assert_int_equal(system("test \"$(cat words.bin)\" = 'a b' && test ! -e words.bin.tmp"), 0);
    assert_int_equal(system("mkdir other.tokenizer && echo keep >other.tokenizer/f"), 0);
    expect("a --out other", 64, "muster-data: other.tokenizer is another tokenizer: move it, or choose another name\n");
    assert_int_equal(system("test \"$(ls other*)\" = f"), 0);
}

/* As another program may write it: document 0 is empty, document 1 has three sentences. */
static void a_set_that_begins_with_an_empty_document_is_read(void **state)
{
    const uint64_t counts[] = {3, 3}, version = 1, offsets[] = {0, 5, 10}, bounds[] = {0, 0, 3};
    const uint32_t lengths[] = {5, 5, 6};
    char index[128], *at = index;

    at = mempcpy(at, "MMIDIDX\0\0", 9);
    at = mempcpy(at, &version, 8);
    *at++ = 1;
    at = mempcpy(at, counts, sizeof counts);
    at = mempcpy(at, lengths, sizeof lengths);
    at = mempcpy(at, offsets, sizeof offsets);
    at = mempcpy(at, bounds, sizeof bounds);
    write_file("b.idx", index, (size_t)(at - index));
    write_text("b.bin", "One. Two. Three.");
    expect("verify b", 0,
           "b: 16 tokens (uint8), 3 sentences, 2 documents, longest sentence 6; tokens are 32 to 119: model.vocab must "
           "be at least 120\n");
    expect("decode b --documents 0", 0, "");
    expect("decode b --documents 1", 0, "One. Two. Three.");
}

static void what_the_files_beside_a_vocabulary_say_counts(void **state)
{
    write_vocab();
    write_text("a", "a b");
    write_text("tokenizer_config.json", "{\"tokenizer_class\": \"BertJapaneseTokenizer\"}");
    expect("a --tokenizer vocab.txt --out set", 65,
           "muster-data: tokenizer_config.json: tokenizer_class is BertJapaneseTokenizer, which may split text in "
           "another way: save the tokenizer as a tokenizer.json\n");
    write_text("tokenizer_config.json", "{\"tokenizer_class\": \"BertTokenizerFast\", \"eos_token\": \"<end>\"}");
    expect("a --tokenizer vocab.txt --out set", 65,
           "muster-data: tokenizer_config.json: its eos_token is not in the vocabulary\n");
    write_text("tokenizer_config.json", "{\"tokenizer_class\": \"BertTokenizerFast\", \"eos_token\": \"c\"}");
    expect("a --tokenizer vocab.txt --append-eod --out set", 0,
           "set: 3 tokens, 1 document; wrote set.bin and set.idx\n");
    expect("decode set", 0, "a b c");
}

static void with_a_key_all_but_txt_is_json(void **state)
{
    write_text("a.ndjson", "{\"content\": \"one\"}\n{\"content\": \"two\"}\n");
    expect("a.ndjson --key content --out set", 0, "set: 6 tokens, 2 documents; wrote set.bin and set.idx\n");
    write_text("b.txt", "three");
    expect("a.ndjson b.txt --key content --out both", 0, "both: 11 tokens, 3 documents; wrote both.bin and both.idx\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(lines_of_json_are_documents, clean),
        cmocka_unit_test_setup(a_byte_order_mark_is_dropped_and_said, clean),
        cmocka_unit_test_setup(compressed_texts_give_the_same_set, clean),
        cmocka_unit_test_setup(a_tokenizer_goes_with_the_set, clean),
        cmocka_unit_test_setup(documents_are_split_in_order, clean),
        cmocka_unit_test_setup(bad_places_are_skipped_on_request, clean),
        cmocka_unit_test_setup(broken_input_is_refused_with_one_line, clean),
        cmocka_unit_test_setup(broken_files_are_refused_with_one_line, clean),
        cmocka_unit_test_setup(what_is_no_text_is_named, clean),
        cmocka_unit_test_setup(a_token_below_0_is_refused_as_such, clean),
        cmocka_unit_test_setup(an_overlong_line_is_bad, clean),
        cmocka_unit_test_setup(the_users_files_stay, clean),
        cmocka_unit_test_setup(what_the_files_beside_a_vocabulary_say_counts, clean),
        cmocka_unit_test_setup(with_a_key_all_but_txt_is_json, clean),
        cmocka_unit_test_setup(a_set_that_begins_with_an_empty_document_is_read, clean),
        cmocka_unit_test_setup_teardown(what_a_killed_run_left_is_replaced, clean, clean),
    };

    return cmocka_run_group_tests_name("muster_data_texts", tests, enter, leave);
}

/* tokenizer/ without reference tokenizers: small vocabularies made here. tests/interop has the references. */
#include <unistd.h>

#include "tests/unit/tokenizer_json.h"
#include "tokenizer/split.h"
#include "tokenizer/unicode.h"

/* How files of byte-level BPE write a byte. */
static void write_byte(int byte, char out[5])
{
    int code = byte, next = 256;

    for (int i = 0; i < byte; i++)
        next += !((i > ' ' && i < 0x7f) || (i > 0xa0 && i != 0xad));
    if (!((byte > ' ' && byte < 0x7f) || (byte > 0xa0 && byte != 0xad)))
        code = next;
    out[utf8_write((uint32_t)code, out)] = '\0';
}

static const char *const merges[] = {"t h", "h e", "th e", "\xc4\xa0 the", "a a", "aa aa", "i n", "e r"};

/* Ids: 0 to 255 the bytes, 256 and up what is merged, then <|end|>. */
static json_t *make_vocab(void)
{
    json_t *vocab = json_object();
    char text[32];

    for (int byte = 0; byte < 256; byte++) {
        write_byte(byte, text);
        json_object_set_new(vocab, text, json_integer(byte));
    }
    for (size_t i = 0; i < LENGTH(merges); i++) {
        const char *blank = strchr(merges[i], ' ');

        snprintf(text, sizeof text, "%.*s%s", (int)(blank - merges[i]), merges[i], blank + 1);
        json_object_set_new(vocab, text, json_integer(256 + (int)i));
    }
    return vocab;
}

static json_t *make_tokenizer_json(void)
{
    json_t *list = json_array(), *root;

    for (size_t i = 0; i < LENGTH(merges); i++)
        json_array_append_new(list, json_string(merges[i]));
    root = json_pack("{s:s, s:[{s:i, s:s, s:b, s:b}], s:n, s:{s:s, s:b, s:b, s:b}, s:{s:s, s:n, s:o, s:o}}", "version",
                     "1.0", "added_tokens", "id", 264, "content", "<|end|>", "special", 1, "normalized", 0,
                     "normalizer", "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
                     "use_regex", 1, "model", "type", "BPE", "dropout", "vocab", make_vocab(), "merges", list);
    assert_non_null(root);
    return root;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static void bytes_are_ids(void **state)
{
    struct tokenizer *tokenizer = tokenizer_open("bytes", &err);
    size_t bytes = 7;

    assert_int_equal(tokenizer_size(tokenizer), 257);
    assert_string_equal(tokenizer_kind(tokenizer), "bytes");
    assert_int_equal(tokenizer_special(tokenizer, SPECIAL_END), 256);
    assert_int_equal(tokenizer_special(tokenizer, SPECIAL_MASK), -1);
    assert_non_null(tokenizer_token(tokenizer, 256, &bytes));
    assert_int_equal(bytes, 0);
    assert_string_equal(ids_of(tokenizer, "a\xff\0b", 4, 0), "97 255 0 98");
    tokenizer_close(tokenizer);
}

/* ---- byte-level BPE ---------------------------------------------------------------------------------------------- */

static void the_lowest_rank_merges_first_and_the_leftmost_of_several(void **state)
{
    struct tokenizer *tokenizer = open_json(make_tokenizer_json());

    expect_ids(tokenizer, "the", 0, "258");
    expect_ids(tokenizer, "in the inner", 0, "262 259 32 262 110 263");
    expect_ids(tokenizer, "she", 0, "115 257");
    expect_ids(tokenizer, "aaa", 0, "260 97");
    expect_ids(tokenizer, "aaaaaa", 0, "261 260");
    expect_ids(tokenizer, "", 0, "");
    tokenizer_close(tokenizer);
}

/* Merging as its definition says, one pair at a time. */
static size_t merge_slowly(const struct tokenizer *tokenizer, int32_t *ids, size_t count)
{
    for (;;) {
        size_t best = LENGTH(merges), where = 0;
        char pair[64];

        for (size_t i = 0; i + 1 < count; i++)
            for (size_t k = 0; k < best; k++) {
                size_t left, right;
                const char *a = tokenizer_token(tokenizer, ids[i], &left),
                           *b = tokenizer_token(tokenizer, ids[i + 1], &right);

                snprintf(pair, sizeof pair, "%.*s %.*s", (int)left, a, (int)right, b);
                if (strcmp(pair, merges[k]) == 0) {
                    best = k;
                    where = i;
                }
            }
        if (best == LENGTH(merges))
            return count;
        ids[where] = 256 + (int32_t)best;
        memmove(ids + where + 1, ids + where + 2, (count - where - 2) * sizeof *ids);
        count--;
    }
}

static void long_words_merge_like_short_ones(void **state)
{
    struct tokenizer *tokenizer = open_json(make_tokenizer_json());
    uint64_t seed = 1;

    for (int round = 0; round < 300; round++) {
        size_t bytes = 1 + next_random(&seed) % 300, count;
        int32_t expected[300];
        struct token_list ids;
        char word[300];

        for (size_t i = 0; i < bytes; i++)
            expected[i] = word[i] = "theaainr"[next_random(&seed) % 8];
        ids = encode_whole(tokenizer, word, bytes);
        count = merge_slowly(tokenizer, expected, bytes);
        assert_int_equal(ids.count, count);
        assert_memory_equal(ids.ids, expected, count * sizeof *expected);
        free(ids.ids);
    }
    tokenizer_close(tokenizer);
}

static void a_word_of_a_million_letters_takes_no_quadratic_time(void **state)
{
    struct tokenizer *tokenizer = open_json(make_tokenizer_json());
    size_t bytes = 1000000;
    char *text = malloc(bytes);
    struct token_list ids;

    memset(text, 'a', bytes);
    ids = encode_whole(tokenizer, text, bytes);
    assert_int_equal(ids.count, bytes / 4);
    free(ids.ids);
    free(text);
    tokenizer_close(tokenizer);
}

static void decoding_gives_the_text_whatever_its_bytes(void **state)
{
    struct tokenizer *tokenizer = open_json(make_tokenizer_json());
    uint64_t seed = 2;

    for (int round = 0; round < 2000; round++) {
        char text[400];
        size_t bytes = random_text(&seed, text, sizeof text);
        struct token_list ids = encode_whole(tokenizer, text, bytes);
        struct decode_state decode = {0};
        struct text_list whole = {0}, parts = {0};

        assert_int_equal(tokenizer_decode(tokenizer, &decode, ids.ids, ids.count, 0, &whole, &err), 0);
        assert_int_equal(whole.count, bytes);
        assert_memory_equal(whole.text, text, bytes);
        decode = (struct decode_state){0};
        for (size_t i = 0; i < ids.count; i++) {
            bool more = i + 1 < ids.count;

            assert_int_equal(tokenizer_decode(tokenizer, &decode, ids.ids + i, 1, more, &parts, &err), 0);
            if (more && parts.count > 0) /* what is there can be printed: no first byte without the others */
                assert_true(((uint8_t)parts.text[parts.count - 1] & 0xc0) != 0xc0 ||
                            parts.text[parts.count - 1] == '\xff');
        }
        assert_int_equal(parts.count, bytes);
        assert_memory_equal(parts.text, text, bytes);
        free(whole.text);
        free(parts.text);
        free(ids.ids);
    }
    tokenizer_close(tokenizer);
}

static void ids_do_not_depend_on_cuts(void **state)
{
    static const char *const patterns[] = {
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
        "\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
        "\\s+(?!\\S)|\\s+",
    };

    for (int kind = 0; kind < 5; kind++) {
        json_t *root = make_tokenizer_json(), *added = json_object_get(root, "added_tokens");
        struct tokenizer *tokenizer;

        if (kind < 2)
            json_object_set_new(root, "pre_tokenizer",
                                json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, {s:s, s:b, s:b}]}", "type", "Sequence",
                                          "pretokenizers", "type", "Split", "pattern", "Regex", patterns[kind],
                                          "behavior", "Isolated", "invert", 0, "type", "ByteLevel", "add_prefix_space",
                                          0, "use_regex", 0));
        if (kind == 2)
            json_object_set_new(root, "normalizer", parse("{'type': 'NFC'}"));
        if (kind == 3)
            json_object_set_new(json_object_get(root, "pre_tokenizer"), "add_prefix_space", json_true());
        if (kind == 4) {
            json_array_append_new(added, parse("{'id': 262, 'content': 'in', 'single_word': true, 'lstrip': true}"));
            json_array_append_new(added, parse("{'id': 265, 'content': '12', 'rstrip': true, 'normalized': false}"));
            json_array_append_new(added, parse("{'id': 266, 'content': '  ', 'normalized': true}"));
        }
        tokenizer = open_json(root);
        check_cuts(tokenizer);
        tokenizer_close(tokenizer);
    }
}

static void added_tokens_are_found_as_their_flags_say(void **state)
{
    json_t *root = make_tokenizer_json(), *added = json_object_get(root, "added_tokens");
    struct tokenizer *tokenizer;

    json_array_append_new(added, parse("{'id': 265, 'content': '<m>', 'lstrip': true, 'rstrip': true}"));
    json_array_append_new(added, parse("{'id': 266, 'content': 'one', 'single_word': true}"));
    json_array_append_new(added, parse("{'id': 267, 'content': '<m>x'}"));
    json_array_append_new(added, parse("{'id': 268, 'content': '\\t', 'lstrip': true, 'rstrip': true}"));
    tokenizer = open_json(root);
    assert_int_equal(tokenizer_size(tokenizer), 269);
    expect_ids(tokenizer, "a\t\ta", 0, "97 268 97"); /* the first takes the second with it */
    expect_ids(tokenizer, "a<|end|>a", 0, "97 264 97");
    expect_ids(tokenizer, "<|end|>", ENCODE_ORDINARY, "60 124 101 110 100 124 62");
    expect_ids(tokenizer, "a <m>\n a", 0, "97 265 97");
    expect_ids(tokenizer, "<m>x", 0, "267");
    expect_ids(tokenizer, "one, ones", 0, "266 44 32 111 110 101 115");
    expect_ids(tokenizer, "\xc3\xa9one", 0, "195 169 111 110 101");
    tokenizer_close(tokenizer);
}

static void special_tokens_are_decoded(void **state)
{
    struct tokenizer *tokenizer = open_json(make_tokenizer_json());
    int32_t ids[] = {258, 264, 265};
    struct decode_state decode = {0};
    struct text_list text = {0};

    assert_int_equal(tokenizer_decode(tokenizer, &decode, ids, 2, 0, &text, &err), 0);
    assert_int_equal(text.count, 10);
    assert_memory_equal(text.text, "the<|end|>", 10);
    assert_int_equal(tokenizer_decode(tokenizer, &decode, ids, 3, 0, &text, &err), -1);
    assert_string_equal(err.text, "token 265 is not in the vocabulary, which has the ids 0 to 264");
    free(text.text);
    tokenizer_close(tokenizer);
}

/* To the split, a byte that is not UTF-8 is one sign: it takes the blank before it, and ends a word. */
static void broken_utf8_is_kept_and_splits_like_a_sign(void **state)
{
    struct tokenizer *tokenizer = open_json(make_tokenizer_json());

    expect_ids(tokenizer, "the\xffthe", 0, "258 255 258");
    expect_ids(tokenizer, "a \xe6\x96", 0, "97 32 230 150");
    expect_ids(tokenizer, "\xed\xa0\x80 the", 0, "237 160 128 259");
    expect_ids(tokenizer, "\xc0\x80\xf4\x90\x80\x80", 0, "192 128 244 144 128 128");
    tokenizer_close(tokenizer);
}

static void options_of_tokenizer_json(void **state)
{
    json_t *root = make_tokenizer_json();
    struct tokenizer *tokenizer;

    json_object_set_new(json_object_get(root, "pre_tokenizer"), "add_prefix_space", json_true());
    tokenizer = open_json(root);
    expect_ids(tokenizer, "the", 0, "259");
    expect_ids(tokenizer, "the", ENCODE_CONTINUES, "258");
    expect_ids(tokenizer, " the", 0, "259");
    expect_ids(tokenizer, "<|end|>the", ENCODE_CONTINUES, "264 259");
    tokenizer_close(tokenizer);

    root = make_tokenizer_json();
    json_object_set_new(json_object_get(json_object_get(root, "model"), "vocab"), "inner", json_integer(264));
    json_array_clear(json_object_get(root, "added_tokens"));
    json_object_set_new(json_object_get(root, "model"), "ignore_merges", json_true());
    tokenizer = open_json(root);
    expect_ids(tokenizer, "inner inner", 0, "264 32 262 110 263");
    tokenizer_close(tokenizer);

    root = make_tokenizer_json();
    json_object_set_new(root, "normalizer", parse("{'type': 'NFC'}"));
    tokenizer = open_json(root);
    expect_ids(tokenizer,
               "e\xcc\x81\xff"
               "e\xcc\x81",
               0, "195 169 255 195 169");
    tokenizer_close(tokenizer);

    root = make_tokenizer_json(); /* two-element merges, and a pattern of PCRE2's */
    json_object_set_new(json_object_get(root, "model"), "merges", parse("[['t', 'h'], ['th', 'e']]"));
    json_object_set_new(
        root, "pre_tokenizer",
        parse("{'type': 'Sequence', 'pretokenizers': [{'type': 'Split', 'pattern': {'Regex': 't(?=h)'}, "
              "'behavior': 'Isolated', 'invert': false}, {'type': 'Digits', 'individual_digits': true},"
              "{'type': 'ByteLevel', 'add_prefix_space': false, 'use_regex': false}]}"));
    tokenizer = open_json(root);
    expect_ids(tokenizer, "the th", 0, "116 104 101 32 116 104");
    assert_int_equal(tokenizer_cut(tokenizer, "the the the the", 15), 0);
    tokenizer_close(tokenizer);
}

/* What is set in tokenizer.json at "PATH KEY" and the message. */
/* The ids of the patterns that are taken are held against tokenizers' by interop/token_ids. */
static void split_patterns_that_mean_something_else_are_refused(void **state)
{
    static const char *const cases[][2] = {
        {"x[+]|a{1,3}+", "{...}+"},
        {"aa{2}?", "{n}?"},
        {"\\p{L}{,3}x", "{,n}"},
        {"(?m:a.)", "(?m"},
        {"a(?i)b|c", "(?i"},
        {"(?<name>a)", "(?<"},
        {"[a-z&&[^e]]", "&&"},
        {"[\\p{L}[a]]", "["},
        {"[[:alpha:]]", "["},
        {"[]a]", "]"},
        {"\\bx", "\\b"},
        {"\\h", "\\h"},
        {"[\\v]", "\\v"},
        {"\\pL", "\\p"},
        {"[\\W\\d]", "\\W"},
        {"\\xe9", "\\x"},
        {"\\101", "\\1"},
        {"\\Qa\\E", "\\Q"},
        {"\\p{Xwd}", "\\p"},
        {"(?i:Fix)", "(?i and \"fi\""},
        {"(?i:\xc3\x9f)", "(?i and letters beyond ASCII"},
    };
    static const char *const taken[][2] = {
        {"a{2,3}|b{2}|[{]{x}", "a{2,3}|b{2}|[{]{x}"},
        {"\\w[\\w.-]\\s", "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\xc2\xb2\xc2\xb3\xc2\xb9\xc2\xbc\xc2\xbd\xc2\xbe]"
                          "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}.-]\\p{White_Space}"},
        {"[\\p{Han}\\p{^Lu}]|\\P{Greek}|\\p{Emoji}", "[\\p{sc:Han}\\p{^Lu}]|\\P{sc:Greek}|\\p{Emoji}"},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        char wanted[80];

        snprintf(wanted, sizeof wanted, "patterns with %s are not supported", cases[i][1]);
        assert_null(split_translate(cases[i][0], &err));
        if (strncmp(err.text, wanted, strlen(wanted)) != 0)
            fail_msg("%s: \"%s\" does not begin with \"%s\"", cases[i][0], err.text, wanted);
    }
    for (size_t i = 0; i < LENGTH(taken); i++) {
        char *text = split_translate(taken[i][0], &err);

        assert_non_null(text);
        assert_string_equal(text, taken[i][1]);
        free(text);
    }
}

static void what_is_not_supported_is_refused_with_its_path(void **state)
{
    static const struct {
        const char *path, *key, *value, *message;
    } cases[] = {
        {"model", "type", "'Unigram'", "model.type: \"Unigram\" is not supported"},
        {"model", "dropout", "0.1", "model.dropout: 0.1 is not supported"},
        {"model", "end_of_word_suffix", "'</w>'", "model.end_of_word_suffix: \"</w>\" is not supported"},
        {"model", "continuing_subword_prefix", "'##'", "model.continuing_subword_prefix: \"##\" is not supported"},
        {"model", "new_option", "1", "model.new_option: 1 is not supported"},
        {"model", "ignore_merges", "3", "model.ignore_merges: 3 is not supported; expected true or false"},
        {"model", "vocab", "[]", "model.vocab: expected an object of tokens and their ids"},
        {"model", "vocab", "{'a': 1}", "model.vocab: no token for a blank: not a byte-level BPE"},
        {"model", "vocab", "{'a': 'x'}", "model.vocab: token \"a\": its id is not a number"},
        {"model", "vocab", "{'a': 1, 'b': 1}", "model.vocab: token \"b\": two tokens have the id 1"},
        {"model", "vocab", "{'a': -1}", "model.vocab: token \"a\": token id -1 is not between 0 and 16777215"},
        {"model", "merges", "['t h', 'x']", "model.merges[1]: not two tokens with a blank between them"},
        {"model", "merges", "['t h e']", "model.merges[0]: not two tokens"},
        {"model", "merges", "['h t']", "model.merges[0]: 'h' and 't', or what they merge to, is not in the vocabulary"},
        {"model", "merges", "{}", "model.merges: {} is not supported; expected a list"},
        {"", "normalizer", "{'type': 'NFKC'}", "normalizer.type: \"NFKC\" is not supported"},
        {"", "pre_tokenizer", "null", "pre_tokenizer.type: a missing value is not supported"},
        {"", "pre_tokenizer", "{'type': 'Metaspace', 'replacement': '_'}",
         "pre_tokenizer.replacement: \"_\" is not supported"},
        {"", "pre_tokenizer", "{'type': 'Sequence', 'pretokenizers': [{'type': 'Whitespace'}]}",
         "pre_tokenizer.pretokenizers[0].type: \"Whitespace\" is not supported"},
        {"", "pre_tokenizer", "{'type': 'Sequence', 'pretokenizers': [{'type': 'Digits', 'individual_digits': true}]}",
         "pre_tokenizer.pretokenizers: "},
        {"", "pre_tokenizer",
         "{'type': 'Sequence', 'pretokenizers': [{'type': 'Split', 'pattern': {'Regex': 'a'}, 'behavior': "
         "'Contiguous'}]}",
         "pre_tokenizer.pretokenizers[0].behavior: \"Contiguous\" is not supported"},
        {"", "pre_tokenizer",
         "{'type': 'Sequence', 'pretokenizers': [{'type': 'Split', 'pattern': {'Regex': '(a'}, 'behavior': "
         "'Isolated'}]}",
         "pre_tokenizer.pretokenizers[0].pattern: PCRE2 refuses the pattern at its byte 2: missing closing "
         "parenthesis"},
        {"", "pre_tokenizer",
         "{'type': 'Sequence', 'pretokenizers': [{'type': 'Split', 'pattern': {'Regex': 'a*'}, 'behavior': "
         "'Isolated'}]}",
         "pre_tokenizer.pretokenizers[0].pattern: patterns that match empty text are not supported"},
        {"pre_tokenizer", "new_option", "true", "pre_tokenizer.new_option: true is not supported"},
        {"", "added_tokens", "[{'id': 5, 'content': '<x>'}]", "added_tokens[0]: the id 5 of '<x>' has another token"},
        {"", "added_tokens", "[{'id': 300, 'content': 5}]",
         "added_tokens[0].content: 5 is not supported; expected a string"},
        {"", "added_tokens", "[{'content': '<x>'}]", "added_tokens[0].id: a missing value is not supported"},
        {"", "added_tokens", "[{'id': 300, 'content': '<x>', 'new_option': 1}]",
         "added_tokens[0].new_option: 1 is not supported"},
        {"", "added_tokens", "[{'id': 264, 'content': '<x>'}, {'id': 266, 'content': '<y>'}]",
         "added_tokens[1].id: 266 is not the id that tokenizers gives it, 265"},
        {"", "added_tokens", "[{'id': 264, 'content': 'the'}]",
         "added_tokens[0]: 'the' has the id 264 here and 258 in the vocabulary"},
        {"", "added_tokens", "{'<x>': 264}", "added_tokens: {\"<x>\":264} is not supported; expected a list"},
        {"", "version", "'2.0'", "version: \"2.0\" is not supported"},
        {"", "new_section", "{}", "new_section: {} is not supported"},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        json_t *root = make_tokenizer_json();
        char expected[300];

        json_object_set_new(*cases[i].path ? json_object_get(root, cases[i].path) : root, cases[i].key,
                            parse(cases[i].value));
        snprintf(expected, sizeof expected, "%s: %s", write_json("tokenizer.json", root), cases[i].message);
        json_decref(root);
        assert_null(tokenizer_open(file_path("tokenizer.json"), &err));
        if (strncmp(err.text, expected, strlen(expected)) != 0)
            fail_msg("'%s' does not begin with '%s'", err.text, expected);
        assert_int_equal(err.code, CODE_DATA);
    }
    assert_int_equal(unlink(file_path("tokenizer.json")), 0);
}

static void expect_refusal(const char *path, const char *message)
{
    assert_null(tokenizer_open(path, &err));
    if (!strstr(err.text, message))
        fail_msg("'%s' does not contain '%s'", err.text, message);
}

static void pairs_of_files_give_the_same_tokenizer(void **state)
{
    json_t *vocab = make_vocab(), *root = make_tokenizer_json();
    struct tokenizer *tokenizer;
    uint32_t fingerprint;
    char text[300] = "#version: 0.2\n";

    json_array_clear(json_object_get(root, "added_tokens"));
    tokenizer = open_json(root);
    fingerprint = tokenizer_fingerprint(tokenizer);
    tokenizer_close(tokenizer);
    assert_int_equal(unlink(file_path("tokenizer.json")), 0);

    for (size_t i = 0; i < LENGTH(merges); i++)
        sprintf(text + strlen(text), "%s\r\n", merges[i]);
    write_json("vocab.json", vocab);
    write_named("merges.txt", text);
    tokenizer = tokenizer_open(dir, &err);
    assert_non_null(tokenizer);
    assert_int_equal(tokenizer_fingerprint(tokenizer), fingerprint);
    expect_ids(tokenizer, "in the inner", 0, "262 259 32 262 110 263");
    tokenizer_close(tokenizer);
    for (int version = 0; version < 2; version++) { /* a byte order mark */
        char marked[320];

        snprintf(marked, sizeof marked, "\xef\xbb\xbf%s", version ? text : strchr(text, '\n') + 1);
        write_named("merges.txt", marked);
        tokenizer = tokenizer_open(dir, &err);
        assert_non_null(tokenizer);
        assert_int_equal(tokenizer_fingerprint(tokenizer), fingerprint);
        tokenizer_close(tokenizer);
    }

    json_object_set_new(vocab, "<|endoftext|>", json_integer(264));
    write_json("gpt2-vocab.json", vocab);
    write_named("gpt2-merges.txt", "#version: 0.2\nh e\nt h\n");
    tokenizer = tokenizer_open(file_path("gpt2-merges.txt"), &err);
    assert_non_null(tokenizer);
    assert_true(tokenizer_fingerprint(tokenizer) != fingerprint);
    assert_int_equal(tokenizer_special(tokenizer, SPECIAL_END), 264);
    expect_ids(tokenizer, "the<|endoftext|>", 0, "116 257 264");
    tokenizer_close(tokenizer);
    write_named("tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\", \"added_tokens_decoder\": {\"264\": "
                                         "{\"content\": \"<|endoftext|>\", \"lstrip\": true, \"special\": true}}}");
    tokenizer = tokenizer_open(file_path("gpt2-merges.txt"), &err);
    assert_non_null(tokenizer);
    expect_ids(tokenizer, "the <|endoftext|>", 0, "116 257 264"); /* its name as eos_token does not undo lstrip */
    tokenizer_close(tokenizer);
    unlink(file_path("tokenizer_config.json"));

    write_named("special_tokens_map.json", "{\"eos_token\": {\"content\": \"<|endoftext|>\", \"normalized\": true}}");
    tokenizer = tokenizer_open(file_path("gpt2-merges.txt"), &err);
    assert_non_null(tokenizer);
    expect_ids(tokenizer, "<|endoftext|>", 0, "264");
    expect_ids(tokenizer, "<|endoftext|>", ENCODE_ORDINARY, "60 124 101 110 100 111 102 116 101 120 116 124 62");
    tokenizer_close(tokenizer);
    unlink(file_path("special_tokens_map.json"));

    json_object_set_new(vocab, "<sep>", json_integer(265));
    write_json("gpt2-vocab.json", vocab);
    write_named("special_tokens_map.json", "{\"additional_special_tokens\": [\"<sep>\", {\"content\": \"the\"}]}");
    write_named("gpt2-merges.txt", "#version: 0.2\nh e\n");
    tokenizer = tokenizer_open(file_path("gpt2-merges.txt"), &err);
    assert_non_null(tokenizer);
    expect_ids(tokenizer, "a<sep>the", 0, "97 265 258");
    expect_ids(tokenizer, "the", ENCODE_ORDINARY, "116 257");
    tokenizer_close(tokenizer);
    unlink(file_path("special_tokens_map.json"));
    write_named("added_tokens.json", "{\"<|endoftext|>\": 264, \"<x>\": 266}");
    expect_refusal(file_path("gpt2-vocab.json"), "added_tokens.json: '<x>' is in none of the other files");
    unlink(file_path("added_tokens.json"));
    write_named("gpt2-merges.txt", "#version: 0.2\nh e\nth e x\n");
    expect_refusal(file_path("gpt2-vocab.json"), "gpt2-merges.txt:3: not two tokens with a blank between them");
    write_named("gpt2-merges.txt", "#version: 0.2\nh x\n");
    expect_refusal(file_path("gpt2-vocab.json"), "gpt2-merges.txt:2: 'h' and 'x");
    write_named("gpt2-vocab.json", "{\"a\": 1,\n}");
    expect_refusal(file_path("gpt2-vocab.json"), "gpt2-vocab.json:2:");
    unlink(file_path("merges.txt"));
    expect_refusal(dir, "merges.txt: No such file or directory");
    unlink(file_path("vocab.json"));
    expect_refusal(dir, "no tokenizer: expected tokenizer.json, *.model,");
    expect_refusal(file_path("absent"), "absent: No such file or directory");
    expect_refusal(write_named("corpus", "x"), "corpus: not a tokenizer's file: expected");
    json_decref(vocab);
}

/* ---- WordPiece --------------------------------------------------------------------------------------------------- */

static const char words[] =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\n,\ncafe\n\xe4\xb8\xad\n\xe6\x96\x87\nthe\nCaf\xc3\xa9\n"
    "the\xcc\x81re\n";

static void wordpiece_is_berts(void **state)
{
    char text[300] = "the ";
    struct tokenizer *tokenizer = tokenizer_open(write_named("vocab.txt", words), &err);
    int32_t ids[] = {5, 6, 7, 8, 12};
    struct decode_state decode = {0};
    struct text_list decoded = {0};

    assert_non_null(tokenizer);
    assert_string_equal(tokenizer_kind(tokenizer), "WordPiece");
    assert_int_equal(tokenizer_special(tokenizer, SPECIAL_MASK), 4);
    assert_int_equal(tokenizer_special(tokenizer, SPECIAL_END), 3);
    expect_ids(tokenizer, "UNAFFABLE, the", 0, "5 6 7 8 12");
    expect_ids(tokenizer, "caf\xc3\xa9 Caf\xc3\xa9 cafe\xcc\x81", 0, "9 9 9");
    expect_ids(tokenizer, "\xe4\xb8\xad\xe6\x96\x87the", 0, "10 11 12");
    expect_ids(tokenizer, "[CLS]un[MASK]", 0, "2 5 4");
    expect_ids(tokenizer, "[CLS]", ENCODE_ORDINARY, "1 1 1");
    expect_ids(tokenizer, "unknown the", 0, "1 12");
    expect_ids(tokenizer, "t\xffhe t\xef\xbf\xbdhe t\x01he", 0, "12 12 12");
    memset(text + 4, 'x', 100);
    expect_ids(tokenizer, text, 0, "12 1");
    for (int i = 0; i < 34; i++)
        memcpy(text + 4 + 3 * i, "the", 3);
    expect_ids(tokenizer, text, 0, "12 1"); /* 102 characters, and "##the" is no token anyway */
    assert_int_equal(tokenizer_decode(tokenizer, &decode, ids, 5, false, &decoded, &err), 0);
    assert_int_equal(decoded.count, 15);
    assert_memory_equal(decoded.text, "unaffable , the", 15);
    free(decoded.text);
    tokenizer_close(tokenizer);

    write_named("tokenizer_config.json", "{\"do_lower_case\": false, \"tokenize_chinese_chars\": false}");
    tokenizer = tokenizer_open(dir, &err);
    assert_non_null(tokenizer);
    expect_ids(tokenizer, "Caf\xc3\xa9 caf\xc3\xa9 \xe4\xb8\xad\xe6\x96\x87", 0, "13 1 1");
    tokenizer_close(tokenizer);
    write_named("tokenizer_config.json", "{\"unk_token\": \"[PAD]\"}");
    tokenizer = tokenizer_open(dir, &err);
    assert_non_null(tokenizer);
    expect_ids(tokenizer, "the x", 0, "12 0");
    tokenizer_close(tokenizer);
    write_named("tokenizer_config.json", "{\"do_basic_tokenize\": false}");
    expect_refusal(dir, "tokenizer_config.json: do_basic_tokenize: false is not supported");
    unlink(file_path("tokenizer_config.json"));
    write_named("vocab.txt", "[UNK]\na\nb\na\n");
    expect_refusal(dir, "vocab.txt:4: this token is also on line 2");
    write_named("vocab.txt", "a\nb\n");
    expect_refusal(dir, "vocab.txt: has no [UNK]");
    unlink(file_path("vocab.txt"));
}

static void wordpiece_can_be_cut(void **state)
{
    struct tokenizer *tokenizer = tokenizer_open(write_named("vocab.txt", words), &err);

    assert_non_null(tokenizer);
    check_cuts(tokenizer);
    tokenizer_close(tokenizer);
    unlink(file_path("vocab.txt"));
}

/* Tokens that were added to a BERT are lower-cased as its texts are, and those behind NFC are composed. */
static void added_tokens_are_normalized_like_the_text(void **state)
{
    struct tokenizer *tokenizer = open_json(parse(
        "{'model': {'type': 'WordPiece', 'unk_token': '[UNK]', 'vocab': {'[UNK]': 0, 'a': 1}},"
        " 'normalizer': {'type': 'BertNormalizer'}, 'pre_tokenizer': {'type': 'BertPreTokenizer'},"
        " 'added_tokens': [{'id': 2, 'content': 'COVID'}, {'id': 3, 'content': 'Caf\xc3\xa9', 'single_word': true},"
        " {'id': 4, 'content': '[A]', 'normalized': false}, {'id': 5, 'content': '\xc2\xad'}]}"));
    json_t *root = make_tokenizer_json();

    expect_ids(tokenizer, "a covid COVIDa", 0, "1 2 2 1");
    expect_ids(tokenizer, "CAFE\xcc\x81 [A] [a] cafes", 0, "3 4 0 1 0 0");
    assert_int_equal(tokenizer_cut(tokenizer, "a covid", 7), 1);
    tokenizer_close(tokenizer);

    tokenizer = open_json(parse("{'model': {'type': 'WordPiece', 'unk_token': '[UNK]', 'vocab': {'[UNK]': 0}},"
                                " 'normalizer': {'type': 'BertNormalizer'}, 'pre_tokenizer': {'type': "
                                "'BertPreTokenizer'}, 'added_tokens': [{'id': 1, 'content': 'New York'}]}"));
    expect_ids(tokenizer, "NEW\tYORK", 0, "1");
    assert_int_equal(tokenizer_cut(tokenizer, "x NEW YORK x", 12), 0); /* a cut could be in the token */
    tokenizer_close(tokenizer);

    json_object_set_new(root, "normalizer", parse("{'type': 'NFC'}"));
    json_array_append_new(json_object_get(root, "added_tokens"), parse("{'id': 265, 'content': '<e\xcc\x81>'}"));
    tokenizer = open_json(root);
    expect_ids(tokenizer, "a<\xc3\xa9>a<e\xcc\x81>", 0, "97 265 97 265");
    assert_int_equal(tokenizer_cut(tokenizer, "the the the the", 15), 0);
    tokenizer_close(tokenizer);
    unlink(file_path("tokenizer.json"));
}

static void what_is_no_sentencepiece_model_is_refused(void **state)
{
    assert_null(tokenizer_open(write_named("x.model", "not a model"), &err));
    assert_non_null(strstr(err.text, "x.model: "));
    write_named("y.model", "");
    expect_refusal(dir, "has 2 files *.model: give one of them");
    unlink(file_path("x.model"));
    unlink(file_path("y.model"));
}

static int set_up(void **state)
{
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[100];

    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_ids),
        cmocka_unit_test(the_lowest_rank_merges_first_and_the_leftmost_of_several),
        cmocka_unit_test(long_words_merge_like_short_ones),
        cmocka_unit_test(a_word_of_a_million_letters_takes_no_quadratic_time),
        cmocka_unit_test(decoding_gives_the_text_whatever_its_bytes),
        cmocka_unit_test(ids_do_not_depend_on_cuts),
        cmocka_unit_test(added_tokens_are_found_as_their_flags_say),
        cmocka_unit_test(special_tokens_are_decoded),
        cmocka_unit_test(broken_utf8_is_kept_and_splits_like_a_sign),
        cmocka_unit_test(options_of_tokenizer_json),
        cmocka_unit_test(split_patterns_that_mean_something_else_are_refused),
        cmocka_unit_test(what_is_not_supported_is_refused_with_its_path),
        cmocka_unit_test(pairs_of_files_give_the_same_tokenizer),
        cmocka_unit_test(wordpiece_is_berts),
        cmocka_unit_test(wordpiece_can_be_cut),
        cmocka_unit_test(added_tokens_are_normalized_like_the_text),
        cmocka_unit_test(what_is_no_sentencepiece_model_is_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/*
 * BPE as the models of the Llama family have it: of characters with blanks as U+2581, vocabularies that lack bytes, the
 * steps Digits and Punctuation, Llama 3's ranks. tests/interop has the references.
 */
#include <unistd.h>

#include "tests/unit/tokenizer_json.h"

#define BLANK     "\xe2\x96\x81"
#define PIECES    259 /* the first id behind <unk>, <s>, </s> and the bytes */
#define PREPEND   "{'type': 'Prepend', 'prepend': '" BLANK "'}"
#define REPLACE   "{'type': 'Replace', 'pattern': {'String': ' '}, 'content': '" BLANK "'}"
#define METASPACE "'type': 'Metaspace', 'replacement': '" BLANK "', "

static const char *const pieces[] = {BLANK, "t",   "h",         "e",  "n",  "i",  "a", ".", "1", "2", BLANK BLANK,
                                     "th",  "the", BLANK "the", "in", "aa", "</", "s", ">", "<", "/"};
static const char *const merges[] = {BLANK " " BLANK, "t h", "th e", BLANK " the", "i n", "a a"};

/* With <unk>, <s> and </s>, and bytes but those in `lacks`. */
static json_t *make_characters_json(const char *lacks)
{
    json_t *vocab = json_object(), *list = json_array(), *added = json_array(), *root;
    static const char *const special[] = {"<unk>", "<s>", "</s>"};
    char name[16];

    for (int i = 0; i < 3; i++) {
        json_object_set_new(vocab, special[i], json_integer(i));
        json_array_append_new(
            added, json_pack("{s:i, s:s, s:b, s:b}", "id", i, "content", special[i], "special", 1, "normalized", 0));
    }
    for (int byte = 0; byte < 256; byte++) {
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        if (!byte || !strchr(lacks, byte))
            json_object_set_new(vocab, name, json_integer(3 + byte));
    }
    for (size_t i = 0; i < LENGTH(pieces); i++)
        json_object_set_new(vocab, pieces[i], json_integer(PIECES + (int)i));
    for (size_t i = 0; i < LENGTH(merges); i++)
        json_array_append_new(list, json_string(merges[i]));
    root = json_pack("{s:o, s:o, s:{s:s, s:s, s:b, s:b, s:o, s:o}}", "added_tokens", added, "normalizer",
                     parse("{'type': 'Sequence', 'normalizers': [" PREPEND ", " REPLACE "]}"), "model", "type", "BPE",
                     "unk_token", "<unk>", "fuse_unk", 1, "byte_fallback", 1, "vocab", vocab, "merges", list);
    assert_non_null(root);
    return root;
}

static void expect_text(const struct tokenizer *tokenizer, const int32_t *ids, size_t count, const char *expected)
{
    struct decode_state state = {0};
    struct text_list text = {0};

    assert_int_equal(tokenizer_decode(tokenizer, &state, ids, count, false, &text, &err), 0);
    assert_int_equal(text.count, strlen(expected));
    assert_memory_equal(text.text, expected, text.count);
    free(text.text);
}

/* Llama 2's rules as transformers 4 writes them. */
static void words_of_characters_begin_with_blanks(void **state)
{
    struct tokenizer *tokenizer = open_json(make_characters_json(""));
    const int32_t ids[] = {272, 195 + 3, 169 + 3, 1, 272};

    assert_string_equal(tokenizer_kind(tokenizer), "BPE");
    expect_ids(tokenizer, "the", 0, "272");
    expect_ids(tokenizer, " the", 0, "269 271");
    expect_ids(tokenizer, "the", ENCODE_CONTINUES, "271");
    expect_ids(tokenizer, " the the", ENCODE_CONTINUES, "272 272");
    expect_ids(tokenizer, "in" BLANK "the", 0, "259 273 272");
    expect_ids(tokenizer, "</s>the</s>", 0, "2 272 2");
    expect_ids(tokenizer, "</s>", ENCODE_ORDINARY, "259 278 279 276 277");
    expect_ids(tokenizer, "\xc3\xa9\n", 0, "259 198 172 13"); /* no token: bytes */
    expect_ids(tokenizer,
               "\xff"
               "the",
               ENCODE_CONTINUES, "258 271");
    expect_text(tokenizer, ids, 5, "the\xc3\xa9<s> the");
    assert_int_equal(tokenizer_find(tokenizer, BLANK "the"), 272);
    assert_int_equal(tokenizer_find(tokenizer, "<0x0A>"), -1);
    check_cuts(tokenizer);
    tokenizer_close(tokenizer);
}

/* As transformers 5 writes them, and others. */
static void metaspace_puts_a_blank_where_it_says(void **state)
{
    static const struct {
        const char *options, *begin, *behind, *blank, *two;
    } cases[] = {
        {"'prepend_scheme': 'first', 'split': false", "272", "2 271", "272", "269 271"},
        {"'prepend_scheme': 'always', 'split': false", "272", "2 272", "272", "269 271"},
        {"'prepend_scheme': 'never', 'split': false", "271", "2 271", "272", "269 271"},
        {"'add_prefix_space': true", "272", "2 272", "272", "259 272"},
        {"'add_prefix_space': false", "271", "2 271", "272", "259 272"},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        json_t *root = make_characters_json("");
        struct tokenizer *tokenizer;
        char text[200];

        snprintf(text, sizeof text, "{" METASPACE "%s}", cases[i].options);
        json_object_set_new(root, "normalizer", json_null());
        json_object_set_new(root, "pre_tokenizer", parse(text));
        tokenizer = open_json(root);
        expect_ids(tokenizer, "the", 0, cases[i].begin);
        expect_ids(tokenizer, "the", ENCODE_CONTINUES, "271");
        expect_ids(tokenizer, "</s>the", 0, cases[i].behind);
        expect_ids(tokenizer, " the", 0, cases[i].blank);
        expect_ids(tokenizer, "  the", 0, cases[i].two);
        expect_ids(tokenizer, BLANK "the", 0, cases[i].blank);
        check_cuts(tokenizer);
        tokenizer_close(tokenizer);
    }
}

/* A token with a blank inside: then no word ends before a blank. */
static void a_merge_may_reach_over_a_blank(void **state)
{
    json_t *root = make_characters_json(""), *model = json_object_get(root, "model");
    struct tokenizer *tokenizer;

    json_object_set_new(json_object_get(model, "vocab"), "e" BLANK, json_integer(300));
    json_array_insert_new(json_object_get(model, "merges"), 0, json_string("e " BLANK));
    tokenizer = open_json(root);
    expect_ids(tokenizer, "the the", 0, "259 270 300 271");
    assert_int_equal(tokenizer_cut(tokenizer, "the the the the", 15), 0);
    tokenizer_close(tokenizer);
}

/* ---- what has no token ------------------------------------------------------------------------------------------- */

static void expect_loss(const struct tokenizer *tokenizer, const char *text, const char *ids, uint64_t bytes,
                        const char *first)
{
    struct encoder *encoder = encoder_create(tokenizer, &err);
    struct token_list list = {0};
    struct encode_loss loss;

    expect_ids(tokenizer, text, 0, ids);
    for (int i = 0; i < 2; i++) { /* the second time, words could be in the cache */
        assert_int_equal(encoder_encode(encoder, text, strlen(text), 0, &list, &err), 0);
        loss = encoder_take_loss(encoder);
        assert_int_equal(loss.bytes, bytes);
        assert_int_equal(loss.length, strlen(first));
        assert_memory_equal(loss.first, first, (size_t)loss.length);
        assert_int_equal(encoder_take_loss(encoder).bytes, 0);
    }
    free(list.ids);
    encoder_destroy(encoder);
}

/* As `tokenizers` does: also that unknown ones come behind bytes that were before them. */
static void characters_without_a_token_are_unknown(void **state)
{
    json_t *root = make_characters_json("\xc3\x05");
    struct tokenizer *tokenizer = open_json(json_deep_copy(root));

    expect_loss(tokenizer, "a\n", "259 265 13", 0, "");
    expect_loss(tokenizer, "the\xc3\xa9\xc3\xa8 \x05.", "272 0 259 0 266", 5, "\xc3\xa9");
    expect_loss(tokenizer, "\x05\n\x05.", "259 13 0 266", 2, "\x05");
    tokenizer_close(tokenizer);

    json_object_set_new(json_object_get(root, "model"), "fuse_unk", json_false());
    tokenizer = open_json(json_deep_copy(root));
    expect_loss(tokenizer, "the\xc3\xa9\xc3\xa8 \x05.", "272 0 0 259 0 266", 5, "\xc3\xa9");
    tokenizer_close(tokenizer);

    json_object_set_new(json_object_get(root, "model"), "unk_token", json_null());
    json_object_set_new(json_object_get(root, "model"), "byte_fallback", json_false());
    tokenizer = open_json(root);
    expect_loss(tokenizer, "a\nb.", "259 265 266", 2, "\n");
    assert_int_equal(tokenizer_find(tokenizer, "<0x0A>"), 13);
    tokenizer_close(tokenizer);
}

/* SmolLM2: Digits, then ByteLevel, and 21 bytes are missing. `unknown`: its unk_token. */
static struct tokenizer *open_bytes_without_x(const char *steps, const char *unknown)
{
    json_t *vocab = json_object(), *root;
    char text[300];

    for (int byte = '!'; byte < 0x7f; byte++)
        if (byte != 'x')
            json_object_set_new(vocab, (char[]){(char)byte, '\0'}, json_integer(byte));
    json_object_set_new(vocab, "\xc4\xa0", json_integer(' ')); /* a blank */
    json_object_set_new(vocab, "12", json_integer(200));
    json_object_set_new(vocab, "!!", json_integer(201));
    json_object_set_new(vocab, "ab", json_integer(202));
    snprintf(text, sizeof text,
             "{'type': 'Sequence', 'pretokenizers': [%s {'type': 'ByteLevel', 'add_prefix_space': false}]}", steps);
    root = json_pack("{s:o, s:{s:s, s:s?, s:o, s:o}}", "pre_tokenizer", parse(text), "model", "type", "BPE",
                     "unk_token", unknown, "vocab", vocab, "merges", parse("['1 2', '! !', 'a b']"));
    assert_non_null(root);
    return open_json(root);
}

static void a_byte_level_vocabulary_may_lack_bytes(void **state)
{
    struct tokenizer *tokenizer = open_bytes_without_x("", NULL);

    assert_string_equal(tokenizer_kind(tokenizer), "byte-level BPE");
    expect_loss(tokenizer, "ab", "202", 0, "");
    expect_loss(tokenizer, "axb x", "202 32", 2, "x"); /* merges go over what is left out */
    expect_loss(tokenizer, "\xc3\xa9", "", 2, "\xc3");
    tokenizer_close(tokenizer);
    tokenizer = open_bytes_without_x("", "!");
    expect_loss(tokenizer, "axxb", "97 201 98", 2, "x"); /* unknown tokens are merged, too */
    tokenizer_close(tokenizer);
}

static void digits_and_punctuation_are_words(void **state)
{
    static const char *const cases[][2] = {
        {"", "200 33 202 201"}, /* "12!ab!!" is split by GPT-2's pattern */
        {"{'type': 'Digits'},", "200 33 202 201"},
        {"{'type': 'Digits', 'individual_digits': true},", "49 50 33 202 201"},
        {"{'type': 'Punctuation'},", "200 33 202 33 33"},
        {"{'type': 'Punctuation', 'behavior': 'Contiguous'},", "200 33 202 201"},
        {"{'type': 'Digits', 'individual_digits': true}, {'type': 'Punctuation'},", "49 50 33 202 33 33"},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct tokenizer *tokenizer = open_bytes_without_x(cases[i][0], NULL);

        expect_ids(tokenizer, "12!ab!!", 0, cases[i][1]);
        assert_int_equal(tokenizer_cut(tokenizer, "ab !! ab, ab", 12), 8);
        check_cuts(tokenizer);
        tokenizer_close(tokenizer);
    }
}

/* ---- templates --------------------------------------------------------------------------------------------------- */

static void the_template_names_the_first_token(void **state)
{
    static const struct {
        const char *post, *config;
        int begin;
    } cases[] = {
        {"null", "{}", -1},
        {"{'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': '<s>', 'type_id': 0}}, {'Sequence': {}}]}",
         "{}", 1},
        {"{'type': 'TemplateProcessing', 'single': [{'Sequence': {'id': 'A', 'type_id': 0}}]}", "{}", -1},
        {"{'type': 'Sequence', 'processors': [{'type': 'ByteLevel'}, {'type': 'TemplateProcessing', 'single': "
         "[{'SpecialToken': {'id': '</s>'}}]}]}",
         "{}", 2},
        {"{'type': 'RobertaProcessing', 'sep': ['</s>', 2], 'cls': ['<s>', 1]}", "{}", 1},
        {"null", "{\"add_bos_token\": true, \"bos_token\": \"<s>\"}", 1},
        {"{'type': 'RobertaProcessing', 'sep': ['</s>', 2], 'cls': ['<s>', 1]}", "{\"add_bos_token\": false}", -1},
        {"{'type': 'TemplateProcessing', 'single': [{'SpecialToken': 5}]}", "{\"add_bos_token\": null}", -1},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        json_t *root = make_characters_json("");
        struct tokenizer *tokenizer;

        json_object_set_new(root, "post_processor", parse(cases[i].post));
        write_named("tokenizer_config.json", cases[i].config);
        tokenizer = open_json(root);
        assert_int_equal(tokenizer_begin(tokenizer), cases[i].begin);
        tokenizer_close(tokenizer);
    }
    assert_int_equal(unlink(file_path("tokenizer_config.json")), 0);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void what_would_change_ids_is_refused(void **state)
{
    static const char *const cases[][4] = {
        {"", "normalizer", "{'type': 'Sequence', 'normalizers': [" REPLACE ", {'type': 'Strip'}]}",
         "normalizer.normalizers[1].type: \"Strip\" is not supported"},
        {"", "normalizer", "{'type': 'Prepend', 'prepend': '_'}", "normalizer.type: \"Prepend\" is not supported"},
        {"", "normalizer", "{'type': 'Replace', 'pattern': {'Regex': ' '}, 'content': '" BLANK "'}",
         "normalizer.type: \"Replace\" is not supported"},
        {"", "normalizer", "{'type': 'Sequence', 'normalizers': [{'type': 'NFC'}, " REPLACE "]}",
         "normalizer: {\"type\":\"Sequence\""},
        {"", "normalizer", PREPEND, "pre_tokenizer.type: a missing value is not supported"},
        {"", "normalizer", "{'type': 'Replace', 'pattern': {'String': ' '}, 'content': '" BLANK "', 'new': 1}",
         "normalizer.new: 1 is not supported"},
        {"", "pre_tokenizer", "{'type': 'ByteLevel', 'add_prefix_space': false}",
         "pre_tokenizer.type: \"ByteLevel\" is not supported; expected no pre-tokenizer, or \"Metaspace\""},
        {"", "pre_tokenizer", "{" METASPACE "'prepend_scheme': 'last'}",
         "pre_tokenizer.prepend_scheme: \"last\" is not supported"},
        {"", "pre_tokenizer", "{'type': 'Metaspace', 'replacement': '_'}",
         "pre_tokenizer.replacement: \"_\" is not supported"},
        {"model", "merges", "['" BLANK " x']", "model.merges[0]: '" BLANK "' and 'x', or what they merge to"},
        {"model", "byte_fallback", "'yes'", "model.byte_fallback: \"yes\" is not supported"},
    };

    json_t *root;

    for (size_t i = 0; i < LENGTH(cases); i++) {
        char expected[300];

        root = make_characters_json("");
        json_object_set_new(*cases[i][0] ? json_object_get(root, cases[i][0]) : root, cases[i][1], parse(cases[i][2]));
        snprintf(expected, sizeof expected, "%s: %s", write_json("tokenizer.json", root), cases[i][3]);
        json_decref(root);
        assert_null(tokenizer_open(file_path("tokenizer.json"), &err));
        if (strncmp(err.text, expected, strlen(expected)) != 0)
            fail_msg("'%s' does not begin with '%s'", err.text, expected);
    }
    root =
        json_pack("{s:{s:s, s:b}, s:{s:s, s:b, s:{s:i}, s:[]}}", "pre_tokenizer", "type", "ByteLevel",
                  "add_prefix_space", 0, "model", "type", "BPE", "byte_fallback", 1, "vocab", "\xc4\xa0", 0, "merges");
    write_json("tokenizer.json", root);
    json_decref(root);
    assert_null(tokenizer_open(file_path("tokenizer.json"), &err));
    assert_non_null(strstr(err.text, "model.byte_fallback: true is not supported; expected false with \"ByteLevel\""));
    assert_int_equal(unlink(file_path("tokenizer.json")), 0);
}

/* ---- Llama 3's ranks --------------------------------------------------------------------------------------------- */

#define RANKS 128000

static void write_base64(FILE *file, const char *bytes, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    int held = 0;

    for (size_t i = 0; i < count; i++) {
        bits = bits << 8 | (uint8_t)bytes[i];
        for (held += 8; held >= 6; held -= 6)
            fputc(digits[bits >> (held - 6) & 63], file);
    }
    if (held > 0)
        fputc(digits[bits << (6 - held) & 63], file);
    for (size_t i = count; i % 3; i++)
        fputc('=', file);
}

/* All bytes, four tokens, and others that no text has. */
static void write_ranks(int count)
{
    static const char *const words[] = {"th", "he", "the", " the", "inner"};
    FILE *file = fopen(file_path("tokenizer.model"), "w");

    assert_non_null(file);
    for (int rank = 0; rank < count; rank++) {
        char text[8] = {(char)rank, (char)0xff, (char)0xfe, (char)(rank >> 8), (char)(rank >> 16)};

        if (rank >= 256 && rank < 256 + (int)LENGTH(words))
            write_base64(file, words[rank - 256], strlen(words[rank - 256]));
        else
            write_base64(file, text, rank < 256 ? 1 : 5);
        fprintf(file, " %d\n", rank);
    }
    fclose(file);
}

static void ranks_of_llama_3_are_merged_as_by_tiktoken(void **state)
{
    struct tokenizer *tokenizer;

    write_ranks(RANKS);
    tokenizer = tokenizer_open(dir, &err);
    if (!tokenizer)
        fail_msg("%s", err.text);
    assert_string_equal(tokenizer_kind(tokenizer), "byte-level BPE");
    assert_int_equal(tokenizer_size(tokenizer), RANKS + 256);
    assert_int_equal(tokenizer_special(tokenizer, SPECIAL_BEGIN), RANKS);
    assert_int_equal(tokenizer_special(tokenizer, SPECIAL_END), RANKS + 1);
    assert_int_equal(tokenizer_begin(tokenizer), RANKS);
    assert_int_equal(tokenizer_find(tokenizer, "<|eot_id|>"), RANKS + 9);
    assert_int_equal(tokenizer_find(tokenizer, "<|reserved_special_token_2|>"), RANKS + 12);
    assert_int_equal(tokenizer_find(tokenizer, "<|reserved_special_token_245|>"), RANKS + 255);
    expect_ids(tokenizer, "the theth", 0, "258 259 256");
    expect_ids(tokenizer, "inner inner", 0, "260 32 105 110 110 101 114"); /* a word that is a token is not merged */
    expect_ids(tokenizer, "1234", 0, "49 50 51 52");
    expect_ids(tokenizer, "a<|eot_id|>", 0, "97 128009");
    expect_ids(tokenizer, "<|e", ENCODE_ORDINARY, "60 124 101");
    check_cuts(tokenizer);
    tokenizer_close(tokenizer);
    assert_int_equal(unlink(file_path("tokenizer.model")), 0);
}

static void other_ranks_are_refused(void **state)
{
    static const char *const cases[][2] = {
        {"IQ== 0\nIg== 2\n", "line 2: expected a token in base64 and its rank, 1"},
        {"IQ== 0\nI== 1\n", "line 2: expected a token in base64 and its rank, 1"},
        {"IQ== 0\n\n", "line 2: expected a token in base64 and its rank, 1"},
        {"IQ== 0\nI!g= 1\n", "line 2: expected a token in base64 and its rank, 1"},
        {"IQ== 0\nIg== 1",
         "2 ranks of tiktoken; supported are the 128000 of Llama 3: of other models, give tokenizer.json"},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        char expected[300];

        snprintf(expected, sizeof expected, "%s: %s", write_named("x.model", cases[i][0]), cases[i][1]);
        assert_null(tokenizer_open(file_path("x.model"), &err));
        assert_string_equal(err.text, expected);
    }
    assert_int_equal(unlink(file_path("x.model")), 0);
}

static int set_up(void **state)
{
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    unlink(file_path("tokenizer.json"));
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_of_characters_begin_with_blanks),
        cmocka_unit_test(metaspace_puts_a_blank_where_it_says),
        cmocka_unit_test(a_merge_may_reach_over_a_blank),
        cmocka_unit_test(characters_without_a_token_are_unknown),
        cmocka_unit_test(a_byte_level_vocabulary_may_lack_bytes),
        cmocka_unit_test(digits_and_punctuation_are_words),
        cmocka_unit_test(the_template_names_the_first_token),
        cmocka_unit_test(what_would_change_ids_is_refused),
        cmocka_unit_test(ranks_of_llama_3_are_merged_as_by_tiktoken),
        cmocka_unit_test(other_ranks_are_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* A tokenizer.json of a SentencePiece model; and models that have none. */
#include "ckpt/models/hf_internal.h"
#include "tests/cmocka_test.h"

#include <unistd.h>

static char path[] = "test_hf_pieces.model";

/* A field of a message, of at most 127 bytes. */
static void put_field(FILE *out, int number, const char *bytes, size_t count)
{
    putc(number << 3 | 2, out);
    putc((int)count, out);
    assert_int_equal(fwrite(bytes, 1, count, out), count);
}

static void put_piece(FILE *out, const char *text, float score, int type)
{
    char message[64] = {1 << 3 | 2, (char)strlen(text)};
    size_t at = 2 + strlen(text);

    memcpy(message + 2, text, strlen(text));
    message[at] = 2 << 3 | 5;
    memcpy(message + at + 1, &score, 4);
    message[at + 5] = 3 << 3;
    message[at + 6] = (char)type;
    put_field(out, 1, message, at + 7);
}

/* Pieces <unk>, ab, U+2581 ab, a, b, U+2581; the scores of the first two merges; and two messages of options. */
static json_t *make_json(float first, float second, const char *trainer, const char *normalizer, struct error *err)
{
    FILE *out = fopen(path, "w");
    json_t *json;

    assert_non_null(out);
    put_piece(out, "<unk>", 0, 2);
    put_piece(out, "ab", first, 1);
    put_piece(out,
              "\xe2\x96\x81"
              "ab",
              second, 1);
    put_piece(out, "a", -3, 1);
    put_piece(out, "b", -4, 1);
    put_piece(out, "\xe2\x96\x81", -5, 1);
    put_piece(out, "<0x0A>", 0, 6);
    put_field(out, 2, trainer, strlen(trainer));
    put_field(out, 3, normalizer, strlen(normalizer));
    assert_int_equal(fclose(out), 0);
    json = hf_make_piece_json(path, err);
    unlink(path);
    return json;
}

#define BPE      "\x18\x02"
#define FALLBACK "\x98\x02\x01"
#define SUFFIX   "\xc0\x01\x01"
#define MAP                                                                                                            \
    "\x12\x04"                                                                                                         \
    "abcd"

/* The value of a member, "a.b.2.c", as compact JSON. */
static void has(json_t *json, const char *member, const char *expected)
{
    char name[100], *rest = NULL;
    char *text;

    snprintf(name, sizeof name, "%s", member);
    for (char *key = strtok_r(name, ".", &rest); key; key = strtok_r(NULL, ".", &rest))
        json = json_is_array(json) ? json_array_get(json, (size_t)atoi(key)) : json_object_get(json, key);
    text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
}

static void a_model_becomes_a_tokenizer_json(void **state)
{
    struct error err = {0};
    json_t *json = make_json(-1, -2, BPE FALLBACK, MAP, &err);

    if (!json)
        fail_msg("%s", err.text);
    has(json, "model.type", "\"BPE\"");
    has(json, "model.byte_fallback", "true");
    has(json, "model.vocab", "{\"<unk>\":0,\"ab\":1,\"\\u2581ab\":2,\"a\":3,\"b\":4,\"\\u2581\":5,\"<0x0A>\":6}");
    has(json, "model.merges", "[\"a b\",\"\\u2581 ab\"]");
    has(json, "added_tokens.0.content", "\"<unk>\"");
    has(json, "normalizer.normalizers.0.precompiled_charsmap", "\"YWJjZA==\"");
    has(json, "normalizer.normalizers.3.prepend", "\"\\u2581\"");
    has(json, "decoder.decoders.4.start", "1");
    json_decref(json);

    json = make_json(-1, -2, "", "\x18", &err); /* broken */
    assert_null(json);
    json = make_json(-2, -1, "", "", &err);
    assert_non_null(json);
    has(json, "model.type", "\"Unigram\"");
    has(json, "model.byte_fallback", "false");
    has(json, "model.vocab.1", "[\"ab\",-2.0]");
    json_decref(json);
}

static void what_tokenizers_cannot_do_is_refused(void **state)
{
    struct error err;

    assert_null(make_json(-2, -1, BPE, "", &err));
    assert_int_equal(err.code, CODE_DATA);
    assert_string_equal(err.text,
                        "test_hf_pieces.model: piece 2: its score is higher than that of the piece before it: "
                        "tokenizers cannot do that");
    assert_null(make_json(-1, -2, BPE SUFFIX, "", &err));
    assert_string_equal(err.text, "test_hf_pieces.model: blanks end words: tokenizers cannot do that");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_becomes_a_tokenizer_json),
        cmocka_unit_test(what_tokenizers_cannot_do_is_refused),
    };

    return cmocka_run_group_tests_name("hf_pieces", tests, NULL, NULL);
}

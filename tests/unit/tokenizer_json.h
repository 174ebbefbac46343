/* Tokenizers made of small files, for the unit tests of tokenizer/: files in a directory, JSON with ', ids as text. */
#ifndef MUSTER_TESTS_UNIT_TOKENIZER_JSON_H
#define MUSTER_TESTS_UNIT_TOKENIZER_JSON_H

#include <jansson.h>

#include "tests/unit/test_files.h"
#include "tokenizer/tokenizer.h"

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

static char dir[] = "/tmp/test_tokenizer.XXXXXX";
static struct error err;

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static const char *file_path(const char *name)
{
    static char path[4][200];
    static int next;

    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", dir, name);
    return path[next];
}

static const char *write_named(const char *name, const char *text)
{
    const char *path = file_path(name);

    write_text(path, text);
    return path;
}

static const char *write_json(const char *name, json_t *root)
{
    char *text = json_dumps(root, 0);
    const char *path = write_named(name, text);

    free(text);
    return path;
}

static struct tokenizer *open_json(json_t *root)
{
    struct tokenizer *tokenizer = tokenizer_open(write_json("tokenizer.json", root), &err);

    json_decref(root);
    if (!tokenizer)
        fail_msg("%s", err.text);
    return tokenizer;
}

/* "{'lstrip': true}" as an object. */
static json_t *parse(const char *text)
{
    char *copy = strdup(text);
    json_t *value;

    for (char *at = copy; *at; at++)
        *at = *at == '\'' ? '"' : *at;
    value = json_loads(copy, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    free(copy);
    return value;
}

/* ---- ids as text ------------------------------------------------------------------------------------------------- */

/* "116 256": the ids of a text. */
static const char *ids_of(const struct tokenizer *tokenizer, const char *text, size_t bytes, unsigned flags)
{
    static char line[2000];
    struct encoder *encoder = encoder_create(tokenizer, &err);
    struct token_list ids = {0};
    size_t used = 0;

    assert_int_equal(encoder_encode(encoder, text, bytes, flags, &ids, &err), 0);
    line[0] = '\0';
    for (size_t i = 0; i < ids.count; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%d", i ? " " : "", (int)ids.ids[i]);
    free(ids.ids);
    encoder_destroy(encoder);
    return line;
}

static void expect_ids(const struct tokenizer *tokenizer, const char *text, unsigned flags, const char *expected)
{
    assert_string_equal(ids_of(tokenizer, text, strlen(text), flags), expected);
}

static struct token_list encode_whole(const struct tokenizer *tokenizer, const char *text, size_t bytes)
{
    struct encoder *encoder = encoder_create(tokenizer, &err);
    struct token_list ids = {0};

    assert_int_equal(encoder_encode(encoder, text, bytes, 0, &ids, &err), 0);
    encoder_destroy(encoder);
    return ids;
}

/* A text of words, white space, broken and whole characters. */
static size_t random_text(uint64_t *seed, char *text, size_t most)
{
    static const char *const parts[] = {"the",
                                        " in",
                                        "  ",
                                        "\n",
                                        "\r\n",
                                        "aaaa",
                                        "'s",
                                        "12345",
                                        "<|end|>",
                                        "<|end",
                                        ".",
                                        "\xc3\xa9",
                                        "\xe6\x96\x87",
                                        "\xf0\x9f\x98\x80",
                                        "\xff",
                                        "\xe6\x96",
                                        "e\xcc\x81",
                                        "\t",
                                        "\xe2\x80\x83",
                                        "!?"};
    size_t used = 0;

    for (const char *part; used + 10 < most && next_random(seed) % 60; used += strlen(part)) {
        part = parts[next_random(seed) % LENGTH(parts)];
        memcpy(text + used, part, strlen(part));
    }
    return used;
}

/* Cuts every text in every way that a window allows. */
static void check_cuts(const struct tokenizer *tokenizer)
{
    struct encoder *encoder = encoder_create(tokenizer, &err);
    uint64_t seed = 3;
    int cuts = 0;

    for (int round = 0; round < 300; round++) {
        char text[400];
        size_t bytes = random_text(&seed, text, sizeof text);
        struct token_list whole = encode_whole(tokenizer, text, bytes), pieces = {0};

        for (size_t window = 2; window < bytes; window++) {
            size_t cut = tokenizer_cut(tokenizer, text, window);

            assert_true(cut < window);
            if (cut == 0)
                continue;
            cuts++;
            pieces.count = 0;
            assert_int_equal(encoder_encode(encoder, text, cut, 0, &pieces, &err), 0);
            assert_int_equal(encoder_encode(encoder, text + cut, bytes - cut, ENCODE_CONTINUES, &pieces, &err), 0);
            assert_int_equal(pieces.count, whole.count);
            assert_memory_equal(pieces.ids, whole.ids, whole.count * sizeof *whole.ids);
        }
        free(pieces.ids);
        free(whole.ids);
    }
    assert_true(cuts > 1000);
    encoder_destroy(encoder);
}

#endif

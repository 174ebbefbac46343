/*
 * open_files.c - opens a tokenizer. Of a directory that has several vocabularies, as Hugging Face's often do, it takes
 * the first whose kind is known, and notes where its ids are not those of the others.
 */
#include "tokenizer/tokenizer_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/foreign/foreign_json.h"

#define BYTES_END 256            /* the id that ends a document of bytes */
#define BLANK     "\xe2\x96\x81" /* U+2581, which stands for a blank in SentencePiece's files */

static int open_bytes(struct tokenizer *tokenizer, struct error *err)
{
    for (int byte = 0; byte < 256; byte++) {
        char text = (char)byte;

        if (token_table_add(&tokenizer->table, byte, &text, 1, err) < 0)
            return -1;
    }
    if (token_table_add(&tokenizer->table, BYTES_END, "", 0, err) < 0)
        return -1;
    tokenizer->table.entries[BYTES_END].flags |= TOKEN_SPECIAL;
    tokenizer->special[SPECIAL_END] = BYTES_END;
    return 0;
}

static int read_layout(struct tokenizer *tokenizer, const struct tokenizer_files *files, struct error *err)
{
    const char *path = files->paths[0];

    switch (files->layout) {
    case LAYOUT_PAIR:
        return read_bpe_files(tokenizer, path, files->paths[1], err) < 0
                   ? -1
                   : read_special_tokens(tokenizer, path, true, err);
    case LAYOUT_JSON:
        return read_tokenizer_json(tokenizer, path, err) < 0 ? -1 : read_special_tokens(tokenizer, path, false, err);
    case LAYOUT_MODEL:
        return read_sentencepiece(tokenizer, path, err) < 0 ? -1 : read_special_tokens(tokenizer, path, false, err);
    case LAYOUT_LINES:
        if (read_vocab_txt(tokenizer, path, err) < 0 || read_special_tokens(tokenizer, path, true, err) < 0)
            return -1;
        tokenizer->unknown = tokenizer->special[SPECIAL_UNKNOWN];
        return 0;
    default:
        return open_bytes(tokenizer, err);
    }
}

static struct tokenizer *open_layout(const struct tokenizer_files *files, const char *path, struct error *err)
{
    struct tokenizer *tokenizer = error_calloc(1, sizeof *tokenizer, err);

    if (!tokenizer)
        return NULL;
    memset(tokenizer->special, 0xff, sizeof tokenizer->special);
    tokenizer->unknown = -1;
    snprintf(tokenizer->path, sizeof tokenizer->path, "%s", path);
    if (read_layout(tokenizer, files, err) < 0 || tokenizer_finish(tokenizer, err) < 0) {
        tokenizer_close(tokenizer);
        return NULL;
    }
    return tokenizer;
}

/* ---- ids that differ --------------------------------------------------------------------------------------------- */

/* Whether the token of an id is `name`, as files write it. */
static bool has_token(const struct tokenizer *tokenizer, int64_t id, const char *name, size_t bytes)
{
    struct text_list text = {0};
    const char *token;
    unsigned byte;
    size_t length;
    bool same;

    if (id < 0 || id >= tokenizer->table.size || !(token = tokenizer_token(tokenizer, (int32_t)id, &length)))
        return false;
    if (tokenizer->table.entries[id].flags & TOKEN_BYTE)
        return sscanf(name, "<0x%2X>", &byte) == 1 && length == 1 && (uint8_t)*token == byte;
    if (tokenizer->kind == KIND_BPE && token_in_alphabet(tokenizer->alphabet, name, bytes, token, length))
        return true;
    for (size_t at = 0; tokenizer->kind == KIND_SENTENCEPIECE && at < bytes;) {
        bool blank = bytes - at >= 3 && memcmp(name + at, BLANK, 3) == 0;

        if (text_list_append(&text, blank ? " " : name + at, 1, NULL) < 0)
            break;
        at += blank ? 3 : 1;
    }
    same = tokenizer->kind == KIND_SENTENCEPIECE
               ? text.count == length && length > 0 && memcmp(text.text, token, length) == 0
               : bytes == length && memcmp(name, token, length) == 0;
    free(text.text);
    return same;
}

/* Tokens of other files: those that the tokenizer lacks, and those that have another id in it. */
struct differences {
    size_t absent, others;
    char first_absent[64], first_other[64];
};

/* `id` -1: not a number. */
static void compare_token(const struct tokenizer *tokenizer, const char *name, size_t bytes, int64_t id,
                          struct differences *found)
{
    bool absent = id >= tokenizer->table.size;

    if (has_token(tokenizer, id, name, bytes))
        return;
    if ((absent ? found->absent++ : found->others++) == 0)
        snprintf(absent ? found->first_absent : found->first_other, sizeof found->first_absent, "'%.40s' (%lld)", name,
                 (long long)id);
}

static int64_t read_id(json_t *id)
{
    return json_is_integer(id) ? json_integer_value(id) : -1;
}

static void compare_tokens(const struct tokenizer *tokenizer, json_t *vocab, struct differences *found)
{
    const char *token;
    json_t *id;

    json_object_foreach(vocab, token, id) compare_token(tokenizer, token, strlen(token), read_id(id), found);
}

/* tokenizer.json's vocabulary is an object of tokens and ids or, of a Unigram model, a list of tokens and scores. */
static void compare_json(const struct tokenizer *tokenizer, json_t *root, struct differences *found)
{
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"), *item;
    int64_t listed = (int64_t)json_array_size(vocab);
    size_t i;

    compare_tokens(tokenizer, vocab, found);
    json_array_foreach(vocab, i, item)
    {
        json_t *name = json_array_get(item, 0);

        if (json_is_string(name))
            compare_token(tokenizer, json_string_value(name), json_string_length(name), (int64_t)i, found);
    }
    json_array_foreach(json_object_get(root, "added_tokens"), i, item)
    {
        json_t *name = json_object_get(item, "content");
        int64_t id = read_id(json_object_get(item, "id"));

        if (json_is_string(name) && !json_object_get(vocab, json_string_value(name)) && id >= listed)
            compare_token(tokenizer, json_string_value(name), json_string_length(name), id, found);
    }
}

/* Appends to the note what differs. */
static void note_differences(struct tokenizer *tokenizer, const struct differences *found)
{
    size_t used = strlen(tokenizer->note), room = sizeof tokenizer->note;

    if (found->absent > 0)
        snprintf(tokenizer->note + used, room - used, "; warning: tokens that are not in it: %zu, the first %s",
                 found->absent, found->first_absent);
    used = strlen(tokenizer->note);
    if (found->others > 0)
        snprintf(tokenizer->note + used, room - used, "; warning: tokens that have another id in it: %zu, the first %s",
                 found->others, found->first_other);
}

/* transformers adds the tokens of added_tokens.json to a SentencePiece model. */
static void check_model(struct tokenizer *tokenizer, const char *path)
{
    struct differences found = {0};
    char file[PATH_MAX];
    json_t *root = tokenizer_neighbour(path, "added_tokens.json", file) == 0
                       ? foreign_json_read(file, TOKENIZER_FILE_MOST, NULL)
                       : NULL;

    compare_tokens(tokenizer, root, &found);
    json_decref(root);
    if (found.absent + found.others > 0)
        snprintf(tokenizer->note, sizeof tokenizer->note, "%.300s is taken without added_tokens.json", path);
    note_differences(tokenizer, &found);
}

/* ---- a directory ------------------------------------------------------------------------------------------------- */

/* A vocabulary of another kind than the first, which is not known. One that is damaged is refused. */
static struct tokenizer *open_other(const char *path, const struct tokenizer_files *first, struct error *err)
{
    struct error why = *err, later;
    struct tokenizer *tokenizer = NULL;
    struct differences found = {0};
    struct tokenizer_files files;
    json_t *root = NULL;

    if ((err->code != CODE_DATA && err->code != CODE_CONFIG) || tokenizer_find_files(path, 1, &files, NULL) < 0)
        return NULL;
    if (first->layout == LAYOUT_JSON && !(root = foreign_json_read(first->paths[0], TOKENIZER_FILE_MOST, NULL)))
        return NULL;
    for (int i = 1; !tokenizer && tokenizer_find_files(path, i, &files, NULL) == 0; i++) {
        tokenizer = open_layout(&files, files.paths[0], &later);
        if (!tokenizer && i == 1)
            error_set(err, why.code, "%.450s; beside it, %.450s", why.text, later.text);
    }
    if (tokenizer) {
        compare_json(tokenizer, root, &found);
        snprintf(tokenizer->note, sizeof tokenizer->note, "%.300s is taken instead of %.450s", tokenizer->path,
                 why.text);
        note_differences(tokenizer, &found);
    }
    json_decref(root);
    return tokenizer;
}

struct tokenizer *tokenizer_open(const char *path, struct error *err)
{
    struct tokenizer_files files;
    struct tokenizer *tokenizer;
    struct error why;

    if (tokenizer_find_files(path, 0, &files, err) < 0)
        return NULL;
    tokenizer = open_layout(&files, path, &why);
    if (tokenizer && files.layout == LAYOUT_MODEL)
        check_model(tokenizer, files.paths[0]);
    if (!tokenizer)
        tokenizer = open_other(path, &files, &why);
    if (!tokenizer)
        error_set(err, why.code, "%s", why.text);
    return tokenizer;
}

/*
 * open_files.c - opens a tokenizer. Of a directory that has several vocabularies, as Hugging Face's often do, it takes
 * the first whose kind is known, and notes where its ids are not those of the others.
 */
#include "tokenizer/tokenizer_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/foreign/foreign_json.h"

static int open_bytes(struct tokenizer *tokenizer, const struct tokenizer_files *files, struct error *err)
{
    (void)files;
    for (int byte = 0; byte < 256; byte++)
        if (token_table_add(&tokenizer->table, byte, &(char){(char)byte}, 1, 0, err) < 0)
            return -1;
    if (token_table_add(&tokenizer->table, BYTES_END, "", 0, TOKEN_SPECIAL, err) < 0)
        return -1;
    tokenizer->special[SPECIAL_END] = BYTES_END;
    return 0;
}

static int read_layout(struct tokenizer *tokenizer, const struct tokenizer_files *files, struct error *err)
{
    static int (*const readers[])(struct tokenizer *, const struct tokenizer_files *, struct error *) = {
        [LAYOUT_BYTES] = open_bytes, [LAYOUT_JSON] = read_tokenizer_json, [LAYOUT_MODEL] = read_sentencepiece,
        [LAYOUT_RANKS] = read_ranks, [LAYOUT_PAIR] = read_bpe_files,      [LAYOUT_LINES] = read_vocab_txt,
    };
    bool add = files->layout == LAYOUT_PAIR || files->layout == LAYOUT_LINES;

    if (readers[files->layout](tokenizer, files, err) < 0)
        return -1;
    return files->layout == LAYOUT_BYTES ? 0 : read_special_tokens(tokenizer, files->paths[0], add, err);
}

static struct tokenizer *open_layout(const struct tokenizer_files *files, const char *path, struct error *err)
{
    struct tokenizer *tokenizer = error_calloc(1, sizeof *tokenizer, err);

    if (!tokenizer)
        return NULL;
    memset(tokenizer->special, 0xff, sizeof tokenizer->special);
    tokenizer->unknown = tokenizer->begin_token = -1;
    snprintf(tokenizer->path, sizeof tokenizer->path, "%s", path);
    if (read_layout(tokenizer, files, err) < 0 || tokenizer_finish(tokenizer, err) < 0) {
        tokenizer_close(tokenizer);
        return NULL;
    }
    return tokenizer;
}

/* ---- ids that differ --------------------------------------------------------------------------------------------- */

/* Whether the token of an id is `text`, as files write it. */
static bool has_token(const struct tokenizer *tokenizer, int64_t id, const char *text, size_t bytes)
{
    struct text_list piece = {0};
    const char *token;
    size_t length;
    bool same;

    if (id < 0 || id >= tokenizer->table.size || !(token = tokenizer_token(tokenizer, (int32_t)id, &length)))
        return false;
    if (tokenizer->kind == KIND_BPE && find_written(tokenizer, text, bytes) == id)
        return true;
    if (tokenizer->kind == KIND_SENTENCEPIECE) {
        append_piece(&piece, text, bytes, tokenizer->table.entries[id].flags & TOKEN_BYTE, NULL);
        text = piece.text;
        bytes = piece.count;
    }
    same = bytes == length && length > 0 && memcmp(text, token, length) == 0;
    free(piece.text);
    return same;
}

/* Tokens of other files: those that the tokenizer lacks, and those that have another id in it. */
struct differences {
    const struct tokenizer *tokenizer;
    size_t count[2]; /* absent, others */
    char first[2][64];
};

static int compare_token(void *arg, const struct file_token *token, struct error *err)
{
    struct differences *found = arg;
    int other = token->id < found->tokenizer->table.size;

    (void)err;
    if (!has_token(found->tokenizer, token->id, token->text, token->bytes) && found->count[other]++ == 0)
        snprintf(found->first[other], sizeof found->first[other], "'%.40s' (%lld)", token->text, (long long)token->id);
    return 0;
}

/* Appends to the note what differs. */
static void note_differences(struct tokenizer *tokenizer, const struct differences *found)
{
    for (int other = 0; other < 2; other++) {
        size_t used = strlen(tokenizer->note);

        if (found->count[other] > 0)
            snprintf(tokenizer->note + used, sizeof tokenizer->note - used,
                     "; warning: tokens that %s in it: %zu, the first %s", other ? "have another id" : "are not",
                     found->count[other], found->first[other]);
    }
}

/* transformers adds the tokens of added_tokens.json to a SentencePiece model. */
static void check_model(struct tokenizer *tokenizer, const char *path)
{
    struct differences found = {.tokenizer = tokenizer};

    file_tokens_read_added(path, compare_token, &found, NULL);
    if (found.count[0] + found.count[1] > 0)
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
        found.tokenizer = tokenizer;
        file_tokens_take_json(root, compare_token, &found, NULL);
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

bool tokenizer_matches(const struct tokenizer *tokenizer, const char *path)
{
    struct tokenizer_files files;
    bool same = false;

    for (int i = 0; !same && tokenizer_find_files(path, i, &files, NULL) == 0; i++) {
        struct tokenizer *other = open_layout(&files, path, NULL);

        same = other && other->fingerprint == tokenizer->fingerprint;
        tokenizer_close(other);
    }
    return same;
}

/* hf_tokenizer.c - a tokenizer's files in an exported folder, and the ids of its special tokens. See hf_internal.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/format/json_fields.h"
#include "ckpt/models/hf_internal.h"
#include "tokenizer/file_tokens.h"

/* ---- the vocabulary ---------------------------------------------------------------------------------------------- */

struct hf_vocabulary {
    struct tokenizer_files files;
    json_t *ids; /* {"token": id, ...} */
    int64_t last;
    json_t *config, *named; /* special_tokens_read */
};

/* Of two tokens with the same text, the later counts. */
static int add_token(void *arg, const struct file_token *token, struct error *err)
{
    struct hf_vocabulary *vocab = arg;

    if (token->id < 0)
        return error_set(err, CODE_DATA, "token \"%.100s\": its id is not a number", token->text);
    if (token->id > vocab->last)
        vocab->last = token->id;
    json_object_setn_new(vocab->ids, token->text, token->bytes, json_integer(token->id)); /* not if it is not UTF-8 */
    return 0;
}

/* Tokens that tokenizer_config.json adds: {"50257": {"content": "<pad>", ...}, ...} */
static int add_decoder(struct hf_vocabulary *vocab, const char *path, struct error *err)
{
    const char *id;
    json_t *value;

    json_object_foreach(json_object_get(vocab->config, "added_tokens_decoder"), id, value)
    {
        json_t *text = special_token_text(value);
        struct file_token token = {json_string_value(text), json_string_length(text), strtoll(id, NULL, 10), 0, 0};

        if (text && add_token(vocab, &token, err) < 0)
            return error_prefix(err, "%s", path);
    }
    return 0;
}

static int read_vocabulary(struct hf_vocabulary *vocab, struct hf_tokenizer *tokenizer, const struct model_shape *shape,
                           struct error *err)
{
    const struct tokenizer_files *files = &vocab->files;

    if (tokenizer_find_files(tokenizer->path, 0, &vocab->files, err) < 0)
        return -1;
    if (files->layout == LAYOUT_BYTES) {
        tokenizer->json = hf_make_byte_json(shape);
        vocab->config = json_object();
        vocab->named = json_object();
        return file_tokens_take_json(tokenizer->json, add_token, vocab, err);
    }
    return special_tokens_read(files->paths[0], &vocab->config, &vocab->named, err) < 0 ||
                   file_tokens_read(files, add_token, vocab, err) < 0
               ? -1
               : add_decoder(vocab, tokenizer->path, err);
}

/* The id of a special token: as a file names it, or else by the first usual name in the vocabulary, which `named` then
 * has. -1 for none. */
static int64_t find_special(const struct hf_vocabulary *vocab, enum special_token special)
{
    const char *key = special_token_keys[special];
    json_t *text = special_token_text(json_object_get(vocab->named, key)), *id;

    for (const char *const *usual = special_token_names[special]; !text && *usual; usual++)
        if (json_object_get(vocab->ids, *usual) && json_object_set_new(vocab->named, key, json_string(*usual)) == 0)
            text = json_object_get(vocab->named, key);
    id = json_object_get(vocab->ids, json_string_value(text));
    return id ? json_integer_value(id) : -1;
}

/*
 * What AutoTokenizer needs, if the file does not name a class: the class, the longest text, and all special tokens. One
 * that the vocabulary lacks is null: the class's own would become a new token. And clean_up_tokenization_spaces is
 * false, or transformers would drop the blank before a full stop when it decodes.
 */
static json_t *complete_config(const struct hf_vocabulary *vocab, const struct model_shape *shape)
{
    static const char clean_up[] = "clean_up_tokenization_spaces";
    enum layout layout = vocab->files.layout;

    json_object_set_new(vocab->config, "tokenizer_class",
                        json_string(layout == LAYOUT_PAIR    ? "GPT2Tokenizer"
                                    : layout == LAYOUT_LINES ? "BertTokenizer"
                                                             : "PreTrainedTokenizerFast"));
    json_object_set_new(vocab->config, "model_max_length", json_integer(shape->seq_length));
    if (layout != LAYOUT_LINES && !json_object_get(vocab->config, clean_up))
        json_object_set_new(vocab->config, clean_up, json_false());
    for (int i = 0; i < SPECIAL_TOKENS; i++) {
        const char *key = special_token_keys[i];
        bool known = find_special(vocab, i) >= 0;

        if (!json_object_get(vocab->config, key))
            json_object_set(vocab->config, key,
                            known ? special_token_text(json_object_get(vocab->named, key)) : json_null());
    }
    return json_incref(vocab->config);
}

int hf_tokenizer_open(struct hf_tokenizer *tokenizer, const char *path, const struct model_shape *shape,
                      struct error *err)
{
    struct hf_vocabulary vocab = {.ids = json_object(), .last = -1};
    int result;

    *tokenizer = (struct hf_tokenizer){.path = path};
    result = read_vocabulary(&vocab, tokenizer, shape, err);
    if (result == 0 && vocab.last >= shape->vocab)
        result = error_set(err, CODE_USAGE,
                           "%s: its ids go to %lld, the model's vocabulary has %d: not the model's tokenizer", path,
                           (long long)vocab.last, shape->vocab);
    if (result == 0)
        tokenizer->ids = (struct hf_ids){.begin = find_special(&vocab, SPECIAL_BEGIN),
                                         .end = find_special(&vocab, SPECIAL_END),
                                         .pad = find_special(&vocab, SPECIAL_PAD)};
    if (result == 0 && !json_object_get(vocab.config, "tokenizer_class")) {
        tokenizer->config = complete_config(&vocab, shape);
        if (vocab.files.layout == LAYOUT_MODEL)
            tokenizer->json = hf_make_piece_json(vocab.files.paths[0], err);
        if (vocab.files.layout == LAYOUT_RANKS)
            tokenizer->json = hf_make_rank_json(&vocab.files, err);
        if ((vocab.files.layout == LAYOUT_MODEL || vocab.files.layout == LAYOUT_RANKS) && !tokenizer->json)
            result = -1;
    }
    json_decref(vocab.ids);
    json_decref(vocab.config);
    json_decref(vocab.named);
    if (result < 0)
        hf_tokenizer_close(tokenizer);
    return result;
}

/* transformers leaves out the first line of merges.txt, and what is behind the last line break. */
static int mend_merges(const struct directory *directory, struct error *err)
{
    size_t bytes;
    char *text = file_read(directory, "merges.txt", TOKENIZER_FILE_MOST, &bytes, NULL), *mended = NULL;
    int length = 0;

    if (text && (strncmp(text, "#version", 8) != 0 || text[bytes - 1] != '\n'))
        length = asprintf(&mended, "%s%s%s", strncmp(text, "#version", 8) != 0 ? "#version: 0.2\n" : "", text,
                          bytes > 0 && text[bytes - 1] == '\n' ? "" : "\n");
    free(text);
    if (length > 0)
        length = file_write(directory, "merges.txt", mended, (size_t)length, err);
    else if (length < 0)
        error_set(err, CODE_IO, "no memory for merges.txt");
    free(mended);
    return length < 0 ? -1 : 0;
}

int hf_tokenizer_write(const struct hf_tokenizer *tokenizer, const struct directory *directory, struct error *err)
{
    if (tokenizer->json && json_write_file(directory, "tokenizer.json", json_incref(tokenizer->json), 0, err) < 0)
        return -1;
    if (tokenizer_copy(tokenizer->path, directory->path, err) < 0 || mend_merges(directory, err) < 0)
        return -1;
    return tokenizer->config
               ? json_write_file(directory, TOKENIZER_CONFIG, json_incref(tokenizer->config), JSON_INDENT(2), err)
               : 0;
}

void hf_tokenizer_close(struct hf_tokenizer *tokenizer)
{
    json_decref(tokenizer->config);
    json_decref(tokenizer->json);
}

/* hf_tokenizer.c - a tokenizer's files in an exported folder, and the ids of its special tokens. See hf_internal.h. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/format/json_fields.h"
#include "ckpt/models/hf_internal.h"
#include "common/foreign/foreign_json.h"
#include "common/text.h"
#include "tokenizer/tokenizer_files.h"

/* ---- vocabularies: an object of tokens and ids ------------------------------------------------------------------- */

static void add_token(json_t *vocab, const char *token, size_t bytes, json_int_t id)
{
    json_t *name = json_stringn(token, bytes); /* NULL for bytes that are not UTF-8: no special token's name */

    if (name && bytes > 0)
        json_object_set_new(vocab, json_string_value(name), json_integer(id));
    json_decref(name);
}

/* tokenizer.json: the model's vocabulary, and added tokens. */
static int take_json_vocab(json_t *root, const char *path, json_t *vocab, struct error *err)
{
    json_t *model = json_object_get(json_object_get(root, "model"), "vocab"), *token;
    size_t i;

    if (!json_is_array(model) && json_object_update(vocab, model) < 0)
        return error_set(err, CODE_DATA, "%s: model.vocab must be an object of tokens and ids, or a list", path);
    json_array_foreach(model, i, token) /* of a Unigram model: tokens and scores */
        add_token(vocab, json_string_value(json_array_get(token, 0)), json_string_length(json_array_get(token, 0)),
                  (json_int_t)i);
    json_array_foreach(json_object_get(root, "added_tokens"), i, token)
    {
        json_t *content = json_object_get(token, "content"), *id = json_object_get(token, "id");

        if (json_string_length(content) > 0)
            json_object_set(vocab, json_string_value(content), id ? id : json_null());
    }
    return 0;
}

static int read_json_vocab(const char *path, json_t *vocab, struct error *err)
{
    json_t *root = foreign_json_read(path, TOKENIZER_FILE_MOST, err);
    int result = root ? take_json_vocab(root, path, vocab, err) : -1;

    json_decref(root);
    return result;
}

static int read_pair_vocab(const char *path, json_t *vocab, struct error *err)
{
    json_t *root = foreign_json_read(path, TOKENIZER_FILE_MOST, err);

    json_object_update(vocab, root);
    json_decref(root);
    return root ? 0 : -1;
}

static int read_line_vocab(const char *path, json_t *vocab, struct error *err)
{
    char *text = text_read_file(path, TOKENIZER_FILE_MOST, NULL, err), *line = text, *end;

    if (!text)
        return -1;
    for (json_int_t id = 0; *line; id++, line = *end ? end + 1 : end) {
        end = line + strcspn(line, "\n");
        add_token(vocab, line, (size_t)(end - line) - (end > line && end[-1] == '\r'), id);
    }
    free(text);
    return 0;
}

/* A number of Protocol Buffers at *at, which moves behind it; 0 at the end. */
static uint64_t take_varint(const unsigned char **at, const unsigned char *end)
{
    uint64_t value = 0;

    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        unsigned char byte = *(*at)++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            break;
    }
    return value;
}

/* The next field of a message: its number, and its bytes unless it is a varint. 0 at the end or if malformed. */
static uint64_t take_field(const unsigned char **at, const unsigned char *end, const unsigned char **field,
                           uint64_t *bytes)
{
    uint64_t key = *at < end ? take_varint(at, end) : 0;

    *bytes = 0;
    if ((key & 7) == 0)
        take_varint(at, end);
    else if ((key & 7) == 2)
        *bytes = take_varint(at, end);
    else if ((key & 7) == 1 || (key & 7) == 5)
        *bytes = (key & 7) == 1 ? 8 : 4;
    else
        return 0;
    *field = *at;
    if (*bytes > (uint64_t)(end - *at))
        return 0;
    *at += *bytes;
    return key >> 3;
}

/* SentencePiece's ModelProto: field 1 is a piece, whose field 1 is its text. Pieces have their ids in order.
 * https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto */
static int read_piece_vocab(const char *path, json_t *vocab, struct error *err)
{
    size_t bytes;
    char *model = text_read_file(path, TOKENIZER_FILE_MOST, &bytes, err);
    const unsigned char *at = (const unsigned char *)model, *end, *piece, *text;
    uint64_t number, length, text_bytes;
    json_int_t id = 0;

    if (!model)
        return -1;
    end = at + bytes;
    while ((number = take_field(&at, end, &piece, &length)) > 0) {
        const unsigned char *in = piece;

        if (number == 1 && take_field(&in, piece + length, &text, &text_bytes) == 1)
            add_token(vocab, (const char *)text, text_bytes, id);
        id += number == 1;
    }
    free(model);
    return at == end && id > 0 ? 0 : error_set(err, CODE_DATA, "%s: not a model of SentencePiece", path);
}

static const struct {
    int (*read)(const char *path, json_t *vocab, struct error *err);
    const char *class; /* transformers' */
} layouts[] = {
    [LAYOUT_JSON] = {read_json_vocab, "PreTrainedTokenizerFast"},
    [LAYOUT_MODEL] = {read_piece_vocab, "BertGenerationTokenizer"}, /* of them, the one that adds nothing */
    [LAYOUT_PAIR] = {read_pair_vocab, "GPT2Tokenizer"},
    [LAYOUT_LINES] = {read_line_vocab, "BertTokenizer"},
};

/* Tokens that tokenizer_config.json adds: {"50257": {"content": "<pad>", ...}, ...} */
static void add_decoder(json_t *vocab, json_t *config)
{
    const char *id;
    json_t *token;

    json_object_foreach(json_object_get(config, "added_tokens_decoder"), id, token)
    {
        json_t *content = json_object_get(token, "content");

        add_token(vocab, json_string_value(content), json_string_length(content), strtoll(id, NULL, 10));
    }
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

#define BYTES_END 256 /* the id of the end of a document (tokenizer/tokenizer.h) */

/* Byte-level BPE without merges. Its files have a printable character for each byte: those of Latin-1 for themselves,
 * U+0100 and up for the others. */
static json_t *make_byte_vocab(void)
{
    json_t *vocab = json_object();
    int next = 256;

    for (int byte = 0; byte < 256; byte++) {
        bool shown = (byte > ' ' && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        int code = shown ? byte : next++;
        char text[3] = {(char)code};

        if (code >= 0x80) {
            text[0] = (char)(0xc0 | code >> 6);
            text[1] = (char)(0x80 | (code & 0x3f));
        }
        json_object_set_new(vocab, text, json_integer(byte));
    }
    return vocab;
}

/* A tokenizer.json that gives the ids of "bytes". The end of a document is a token if the model has an id for it. */
static json_t *make_byte_tokenizer(const struct model_shape *shape)
{
    json_t *root =
        json_pack("{s:s, s:[], s:{s:s, s:b, s:b, s:b}, s:{s:s, s:b, s:b, s:b}, s:{s:s, s:o, s:[]}}", "version", "1.0",
                  "added_tokens", "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0,
                  "use_regex", 0, "decoder", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0, "use_regex",
                  0, "model", "type", "BPE", "vocab", make_byte_vocab(), "merges");

    if (shape->vocab > BYTES_END)
        json_array_append_new(json_object_get(root, "added_tokens"),
                              json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", BYTES_END, "content",
                                        "<|endoftext|>", "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0,
                                        "special", 1));
    return root;
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

static int64_t find_id(json_t *vocab, const char *name, size_t bytes)
{
    json_t *id = json_object_getn(vocab, name, bytes);

    return json_is_integer(id) ? json_integer_value(id) : -1;
}

/* The id and the name of a special token: as a file names it, or else the first usual name in the vocabulary. */
static int64_t find_special(json_t *vocab, json_t *const named[2], int special, json_t **name)
{
    const char *key = tokenizer_special_keys[special], *usual = tokenizer_special_names[special];

    for (int i = 0; i < 2; i++) {
        json_t *value = json_object_get(named[i], key);

        *name = json_is_object(value) ? json_object_get(value, "content") : value;
        if (json_is_string(*name))
            return find_id(vocab, json_string_value(json_incref(*name)), json_string_length(*name));
    }
    for (size_t bytes; *usual; usual += bytes + (usual[bytes] == ' ')) {
        bytes = strcspn(usual, " ");
        if (find_id(vocab, usual, bytes) >= 0) {
            *name = json_stringn(usual, bytes);
            return find_id(vocab, usual, bytes);
        }
    }
    *name = NULL;
    return -1;
}

static int check_ids(json_t *vocab, const char *path, const struct model_shape *shape, struct error *err)
{
    json_int_t last = -1;
    const char *token;
    json_t *id;

    json_object_foreach(vocab, token, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            return error_set(err, CODE_DATA, "%s: token \"%.100s\": its id is not a number", path, token);
        if (json_integer_value(id) > last)
            last = json_integer_value(id);
    }
    if (last < shape->vocab)
        return 0;
    return error_set(err, CODE_USAGE,
                     "%s: its ids go to %lld, the model's vocabulary has %d: not the model's tokenizer", path,
                     (long long)last, shape->vocab);
}

/* ---- tokenizer_config.json --------------------------------------------------------------------------------------- */

/*
 * What AutoTokenizer needs, if the file does not name a class: the class, the longest text, and all special tokens. One
 * that the vocabulary lacks is null: the class's own would become a new token.
 */
static json_t *complete_config(json_t *const named[2], json_t *vocab, enum layout layout,
                               const struct model_shape *shape)
{
    json_t *config = json_copy(named[1]);

    json_object_set_new(config, "tokenizer_class", json_string(layouts[layout].class));
    json_object_set_new(config, "model_max_length", json_integer(shape->seq_length));
    for (int i = 0; i < SPECIAL_TOKENS; i++) {
        json_t *name;
        int64_t id = find_special(vocab, named, i, &name);

        if (!json_object_get(config, tokenizer_special_keys[i]))
            json_object_set(config, tokenizer_special_keys[i], id < 0 ? json_null() : name);
        json_decref(name);
    }
    return config;
}

/* The two files that name special tokens; empty objects where they are missing. */
static int read_named(const char *beside, json_t *named[2], struct error *err)
{
    static const char *const files[] = {TOKENIZER_MAP, TOKENIZER_CONFIG};
    char path[PATH_MAX];

    for (int i = 0; i < 2; i++) {
        named[i] = tokenizer_neighbour(beside, files[i], path) == 0 ? foreign_json_read(path, TOKENIZER_FILE_MOST, err)
                                                                    : json_object();
        if (!named[i])
            return -1;
    }
    return 0;
}

int hf_tokenizer_open(struct hf_tokenizer *tokenizer, const char *path, const struct model_shape *shape,
                      struct error *err)
{
    struct tokenizer_files files;
    json_t *named[2] = {NULL}, *vocab = json_object();
    int64_t *const ids[] = {[SPECIAL_END] = &tokenizer->ids.end,
                            [SPECIAL_BEGIN] = &tokenizer->ids.begin,
                            [SPECIAL_PAD] = &tokenizer->ids.pad};
    int result = -1;

    *tokenizer = (struct hf_tokenizer){.path = path};
    if (tokenizer_find_files(path, 0, &files, err) < 0)
        goto done;
    if (files.layout == LAYOUT_BYTES) {
        files.layout = LAYOUT_JSON;
        tokenizer->bytes = make_byte_tokenizer(shape);
        named[0] = json_object();
        named[1] = json_object();
        if (take_json_vocab(tokenizer->bytes, path, vocab, err) < 0)
            goto done;
    } else if (read_named(files.paths[0], named, err) < 0 ||
               layouts[files.layout].read(files.paths[0], vocab, err) < 0) {
        goto done;
    }
    add_decoder(vocab, named[1]);
    if (check_ids(vocab, path, shape, err) < 0)
        goto done;
    for (int i = 0; i < (int)(sizeof ids / sizeof *ids); i++) {
        json_t *name;

        *ids[i] = find_special(vocab, named, i, &name);
        json_decref(name);
    }
    if (!json_object_get(named[1], "tokenizer_class")) {
        tokenizer->config = complete_config(named, vocab, files.layout, shape);
        tokenizer->is_model = files.layout == LAYOUT_MODEL;
    }
    result = 0;
done:
    json_decref(vocab);
    json_decref(named[0]);
    json_decref(named[1]);
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
    struct tokenizer_files files;

    if (tokenizer->bytes && json_write_file(directory, "tokenizer.json", json_incref(tokenizer->bytes), 0, err) < 0)
        return -1;
    if (tokenizer_copy(tokenizer->path, directory->path, err) < 0 || mend_merges(directory, err) < 0)
        return -1;
    if (tokenizer->is_model && (tokenizer_find_files(directory->path, 0, &files, err) < 0 ||
                                renameat(AT_FDCWD, files.paths[0], directory->fd, "spiece.model") < 0))
        return error_errno(err, CODE_IO, "%s", files.paths[0]);
    return tokenizer->config
               ? json_write_file(directory, TOKENIZER_CONFIG, json_incref(tokenizer->config), JSON_INDENT(2), err)
               : 0;
}

void hf_tokenizer_close(struct hf_tokenizer *tokenizer)
{
    json_decref(tokenizer->config);
    json_decref(tokenizer->bytes);
}

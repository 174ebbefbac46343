/* file_tokens.c - reads what all kinds of tokenizers have in their files: tokens, ids, names of special tokens. */
#include "tokenizer/file_tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/foreign/foreign_json.h"
#include "common/text.h"

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static int64_t read_id(json_t *id)
{
    return json_is_integer(id) ? json_integer_value(id) : -1;
}

/* `text` is a string; for anything else, nothing is taken. */
static int take_string(json_t *text, int64_t id, token_taker take, void *arg, struct error *err)
{
    struct file_token token = {json_string_value(text), json_string_length(text), id, 0, 0};

    return token.text ? take(arg, &token, err) : 0;
}

/* {"token": id, ...} */
static int take_object(json_t *object, token_taker take, void *arg, struct error *err)
{
    struct file_token token = {0};
    json_t *id;

    json_object_keylen_foreach(object, token.text, token.bytes, id)
    {
        token.id = read_id(id);
        if (take(arg, &token, err) < 0)
            return -1;
    }
    return 0;
}

/* The model's vocabulary is such an object or, of a Unigram model, a list of tokens and scores. */
int file_tokens_take_json(json_t *root, token_taker take, void *arg, struct error *err)
{
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"), *item;
    size_t i;

    if (take_object(vocab, take, arg, err) < 0)
        return -1;
    json_array_foreach(vocab, i, item)
    {
        if (take_string(json_array_get(item, 0), (int64_t)i, take, arg, err) < 0)
            return -1;
    }
    json_array_foreach(json_object_get(root, "added_tokens"), i, item)
    {
        json_t *text = json_object_get(item, "content");
        int64_t id = read_id(json_object_get(item, "id"));

        if (!json_object_get(vocab, json_string_value(text)) &&
            !json_equal(json_array_get(json_array_get(vocab, (size_t)id), 0), text) &&
            take_string(text, id, take, arg, err) < 0)
            return -1;
    }
    return json_is_object(vocab) || json_is_array(vocab)
               ? 0
               : error_set(err, CODE_DATA, "model.vocab must be an object of tokens and ids, or a list");
}

/* ---- vocab.txt: a token a line ----------------------------------------------------------------------------------- */

size_t file_line(const char **text, const char *end)
{
    const char *line = *text, *stop = memchr(line, '\n', (size_t)(end - line));

    *text = stop ? stop + 1 : end;
    stop = stop ? stop : end;
    return (size_t)(stop - line) - (stop > line && stop[-1] == '\r');
}

static int take_lines(const char *path, const char *text, size_t bytes, token_taker take, void *arg, struct error *err)
{
    const char *end = text + bytes;

    for (int64_t id = 0; text < end; id++) {
        struct file_token token = {.text = text, .id = id};

        token.bytes = file_line(&text, end);
        if (token.bytes > 0 && take(arg, &token, err) < 0)
            return error_prefix(err, "%s:%lld", path, (long long)id + 1);
    }
    return 0;
}

/* ---- tiktoken's ranks -------------------------------------------------------------------------------------------- */

/* Decodes base64 (RFC 4648) into `out`, and returns the number of bytes; 0 if it is not base64, or too long. */
static size_t decode_base64(const char *text, size_t count, char out[RANKED_MOST])
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    size_t used = 0;
    int held = 0;

    while (count > 0 && text[count - 1] == '=')
        count--;
    for (; count > 0 && used < RANKED_MOST; text++, count--) {
        const char *digit = memchr(digits, *text, 64);

        if (!digit)
            return 0;
        bits = bits << 6 | (uint32_t)(digit - digits);
        held += 6;
        if (held >= 8)
            out[used++] = (char)(bits >> (held -= 8));
    }
    return count == 0 ? used : 0;
}

/* Those of meta-llama's llama-models, from the first id behind the ranks on. */
static int take_llama3_specials(token_taker take, void *arg, struct error *err)
{
    static const char *const names[] = {"begin_of_text",
                                        "end_of_text",
                                        "reserved_special_token_0",
                                        "reserved_special_token_1",
                                        "finetune_right_pad_id",
                                        "step_id",
                                        "start_header_id",
                                        "end_header_id",
                                        "eom_id",
                                        "eot_id",
                                        "python_tag",
                                        "image"};
    const int named = sizeof names / sizeof *names;
    char text[64];

    for (int i = 0; i < 256; i++) {
        struct file_token token = {.text = text, .id = LLAMA3_RANKS + i, .type = PIECE_CONTROL};

        if (i < named)
            token.bytes = (size_t)snprintf(text, sizeof text, "<|%s|>", names[i]);
        else
            token.bytes = (size_t)snprintf(text, sizeof text, "<|reserved_special_token_%d|>", i - named + 2);
        if (take(arg, &token, err) < 0)
            return -1;
    }
    return 0;
}

/* The lines of Llama 3's tokenizer.model, which tiktoken reads: a token in base64 and its rank, which is its id. Then come
 * its special tokens, which Meta's programs add to the file's: of type PIECE_CONTROL. */
static int take_ranks(const char *text, size_t bytes, token_taker take, void *arg, struct error *err)
{
    const char *end = text + bytes;
    int64_t id = 0;

    for (; text < end; id++) {
        const char *line = text, *blank;
        size_t length = file_line(&text, end);
        char token_bytes[RANKED_MOST], rank[24];
        struct file_token token = {.text = token_bytes, .id = id};

        blank = memchr(line, ' ', length);
        token.bytes = blank ? decode_base64(line, (size_t)(blank - line), token_bytes) : 0;
        snprintf(rank, sizeof rank, " %lld", (long long)id);
        if (token.bytes == 0 || length - (size_t)(blank - line) != strlen(rank) ||
            memcmp(blank, rank, strlen(rank)) != 0)
            return error_set(err, CODE_DATA, "line %lld: expected a token in base64 and its rank,%s", (long long)id + 1,
                             rank);
        if (take(arg, &token, err) < 0)
            return error_prefix(err, "line %lld", (long long)id + 1);
    }
    if (id != LLAMA3_RANKS)
        return error_set(
            err, CODE_DATA,
            "%lld ranks of tiktoken; supported are the %d of Llama 3: of other models, give tokenizer.json",
            (long long)id, LLAMA3_RANKS);
    return take_llama3_specials(take, arg, err);
}

/* ---- SentencePiece's model --------------------------------------------------------------------------------------- */

static bool read_varint(const char **at, const char *end, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        uint8_t byte = (uint8_t) * (*at)++;

        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

/* A protobuf field: a number, or bytes [at, at + size). */
struct proto_field {
    uint64_t number, value;
    const char *at;
    size_t size;
};

/* Reads the next field of a message and returns 1; 0 at its end, -1 if the bytes are not a field. */
static int next_field(const char **at, const char *end, struct proto_field *field)
{
    uint64_t key;

    *field = (struct proto_field){0};
    if (*at == end)
        return 0;
    if (!read_varint(at, end, &key))
        return -1;
    field->number = key >> 3;
    switch (key & 7) {
    case 0:
        return read_varint(at, end, &field->value) ? 1 : -1;
    case 1:
        field->size = 8;
        break;
    case 2:
        if (!read_varint(at, end, &field->value))
            return -1;
        field->size = field->value;
        break;
    case 5:
        field->size = 4;
        break;
    default:
        return -1;
    }
    if (field->size > (size_t)(end - *at))
        return -1;
    field->at = *at;
    *at += field->size;
    return 1;
}

/* A piece of the model, which is a message, too. */
static int read_piece(const struct proto_field *piece, struct file_token *token)
{
    const char *at = piece->at;
    struct proto_field field;
    int found = -1;

    token->type = PIECE_NORMAL;
    while (at && (found = next_field(&at, piece->at + piece->size, &field)) > 0)
        if (field.number == 1) {
            token->text = field.at;
            token->bytes = field.size;
        } else if (field.number == 2 && field.size == sizeof token->score) {
            memcpy(&token->score, field.at, sizeof token->score);
        } else if (field.number == 3) {
            token->type = field.value;
        }
    return token->bytes > 0 ? found : -1;
}

int file_tokens_take_pieces(const char *model, size_t bytes, token_taker take, void *arg, struct error *err)
{
    const char *at = model, *end = model + bytes;
    struct proto_field field;
    int64_t id = 0;
    int found;

    while ((found = next_field(&at, end, &field)) > 0) {
        struct file_token token = {.id = id};

        if (field.number != 1)
            continue;
        if (read_piece(&field, &token) < 0)
            break;
        if (take(arg, &token, err) < 0)
            return error_prefix(err, "piece %lld", (long long)id);
        id++;
    }
    return found == 0 && id > 0 ? 0 : error_set(err, CODE_DATA, "not a model of SentencePiece");
}

/* Takes a field of trainer_spec (message 2) or normalizer_spec (message 3) of sentencepiece_model.proto. */
static void take_option(struct piece_options *options, uint64_t message, const struct proto_field *field)
{
    static const char *const rules[] = {"identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"};
    const struct {
        uint64_t message, number;
        bool *flag;
    } flags[] = {
        {2, 24, &options->suffix},   /* treat_whitespace_as_suffix */
        {2, 35, &options->fallback}, /* byte_fallback */
        {3, 3, &options->prefix},    /* add_dummy_prefix */
        {3, 4, &options->remove},    /* remove_extra_whitespaces */
        {3, 5, &options->escape},    /* escape_whitespaces */
    };

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (message == flags[i].message && field->number == flags[i].number)
            *flags[i].flag = field->value;
    if (message == 2 && field->number == 3) /* model_type */
        options->bpe = field->value == 2;
    for (int i = 0; i < 5 && message == 3 && field->number == 1; i++) /* name */
        options->known_rules |= field->size == strlen(rules[i]) && memcmp(field->at, rules[i], field->size) == 0;
    if (message == 3 && field->number == 2) { /* precompiled_charsmap */
        options->map = field->at;
        options->map_size = field->size;
    }
}

int piece_options_read(const char *model, size_t bytes, struct piece_options *options, struct error *err)
{
    const char *at = model, *end = model + bytes;
    struct proto_field field, option;
    int found, inner = 0;

    *options = (struct piece_options){.prefix = true, .remove = true, .escape = true};
    while ((found = next_field(&at, end, &field)) > 0 && inner == 0)
        for (const char *in = field.at; in && (field.number == 2 || field.number == 3) &&
                                        (inner = next_field(&in, field.at + field.size, &option)) > 0;)
            take_option(options, field.number, &option);
    return found < 0 || inner < 0 ? error_set(err, CODE_DATA, "not a model of SentencePiece") : 0;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

int file_tokens_read(const struct tokenizer_files *files, token_taker take, void *arg, struct error *err)
{
    const char *path = files->paths[0];
    bool is_json = files->layout == LAYOUT_JSON || files->layout == LAYOUT_PAIR;
    json_t *root = is_json ? foreign_json_read(path, TOKENIZER_FILE_MOST, err) : NULL;
    size_t bytes = 0;
    char *text = is_json ? NULL : text_load(path, TOKENIZER_FILE_MOST, &bytes, err);
    int result;

    if (!root && !text)
        return -1;
    if (files->layout == LAYOUT_JSON)
        result = file_tokens_take_json(root, take, arg, err);
    else if (files->layout == LAYOUT_PAIR)
        result = take_object(root, take, arg, err);
    else if (files->layout == LAYOUT_MODEL)
        result = file_tokens_take_pieces(text, bytes, take, arg, err);
    else if (files->layout == LAYOUT_RANKS)
        result = take_ranks(text, bytes, take, arg, err);
    else
        result = take_lines(path, text, bytes, take, arg, err); /* names the line, too */
    if (result < 0 && files->layout != LAYOUT_LINES)
        error_prefix(err, "%s", path);
    json_decref(root);
    free(text);
    return result;
}

int file_tokens_read_added(const char *path, token_taker take, void *arg, struct error *err)
{
    struct tokenizer_files added = {.layout = LAYOUT_PAIR};

    return tokenizer_neighbour(path, "added_tokens.json", added.paths[0]) < 0
               ? 0
               : file_tokens_read(&added, take, arg, err);
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

const char *const special_token_keys[SPECIAL_TOKENS] = {"eos_token",  "bos_token", "pad_token", "unk_token",
                                                        "mask_token", "cls_token", "sep_token"};

const char *const special_token_names[SPECIAL_TOKENS][5] = {
    {"<|endoftext|>", "<|end_of_text|>", "</s>", "[SEP]"},
    {"<|begin_of_text|>", "<s>", "[CLS]"},
    {"<pad>", "[PAD]"},
    {"<unk>", "[UNK]"},
    {"<mask>", "[MASK]"},
    {"[CLS]", "<s>"},
    {"[SEP]", "</s>"},
};

static json_t *read_beside(const char *path, const char *name, struct error *err)
{
    char file[PATH_MAX];

    return tokenizer_neighbour(path, name, file) < 0 ? json_object()
                                                     : foreign_json_read(file, TOKENIZER_FILE_MOST, err);
}

int special_tokens_read(const char *path, json_t **config, json_t **named, struct error *err)
{
    const char *key;
    json_t *value;
    bool newer;

    *named = read_beside(path, TOKENIZER_MAP, err);
    *config = *named ? read_beside(path, TOKENIZER_CONFIG, err) : NULL;
    newer = json_object_get(*config, "added_tokens_decoder");
    json_object_foreach(*config, key, value)
    {
        if (!json_is_null(value) && (newer || !json_object_get(*named, key)))
            json_object_set(*named, key, value);
    }
    return *config ? 0 : -1;
}

json_t *special_token_text(json_t *value)
{
    json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;

    return json_is_string(text) ? text : NULL;
}

/* ---- the alphabet of byte-level BPE ------------------------------------------------------------------------------ */

/* A printable character for each byte: those of Latin-1 for themselves, U+0100 and up for the others. */
void fill_byte_alphabet(int16_t bytes[ALPHABET])
{
    int next = 256;

    memset(bytes, 0xff, ALPHABET * sizeof *bytes);
    for (int byte = 0; byte < 256; byte++) {
        bool shown = (byte > ' ' && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);

        bytes[shown ? byte : next++] = (int16_t)byte;
    }
}

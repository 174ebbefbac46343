/*
 * sentencepiece.c - a SentencePiece model's tokens, from libsentencepiece and from the model itself, a protobuf message
 * (sentencepiece_model.proto), of which the library does not show two options that decoding depends on.
 */
#include "config.h"

#include "tokenizer/tokenizer_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/crc32c.h"
#include "common/text.h"

#ifdef HAVE_SENTENCEPIECE

#define BLANK "\xe2\x96\x81" /* U+2581, which stands for a blank in pieces */

/* A protobuf field: a number, or bytes [at, at + size). */
struct proto_field {
    uint64_t number, value;
    const char *at;
    size_t size;
};

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

/* What ids and text depend on, with the defaults of sentencepiece_model.proto. */
struct model_options {
    bool bpe, known_rules, suffix, prefix, remove, escape;
};

static void take_option(struct model_options *options, uint64_t message, const struct proto_field *field)
{
    static const char *const rules[] = {"identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"};

    switch (message << 8 | field->number) {
    case 2 << 8 | 3: /* trainer_spec.model_type */
        options->bpe = field->value == 2;
        break;
    case 2 << 8 | 24: /* treat_whitespace_as_suffix */
        options->suffix = field->value;
        break;
    case 3 << 8 | 1: /* normalizer_spec.name */
        for (int i = 0; i < 5; i++)
            options->known_rules |= field->size == strlen(rules[i]) && memcmp(field->at, rules[i], field->size) == 0;
        break;
    case 3 << 8 | 3: /* add_dummy_prefix */
        options->prefix = field->value;
        break;
    case 3 << 8 | 4: /* remove_extra_whitespaces */
        options->remove = field->value;
        break;
    case 3 << 8 | 5: /* escape_whitespaces */
        options->escape = field->value;
        break;
    default:
        break;
    }
}

static int read_options(struct model_options *options, const char *model, size_t bytes)
{
    const char *at = model, *end = model + bytes;
    struct proto_field field, option;
    int found, inner = 0;

    *options = (struct model_options){.prefix = true, .remove = true, .escape = true};
    while ((found = next_field(&at, end, &field)) > 0 && inner == 0)
        for (const char *in = field.at; in && (field.number == 2 || field.number == 3) &&
                                        (inner = next_field(&in, field.at + field.size, &option)) > 0;)
            take_option(options, field.number, &option);
    return found < 0 || inner < 0 ? -1 : 0;
}

/*
 * For a BPE model, text can be cut before a blank if no piece has a blank behind another character: then no merge
 * reaches over the cut. A Unigram model adds up the scores of a whole text in floats; which of two equally good
 * segmentations it takes depends on the rounding, and so on all the text before.
 */
static bool is_cuttable(const struct tokenizer *tokenizer, const struct model_options *options)
{
    const struct token_table *table = &tokenizer->table;

    for (int32_t id = 0; id < table->size; id++) {
        const char *text = table->bytes + table->entries[id].at;

        for (uint32_t i = 1; i < table->entries[id].length; i++)
            if (text[i] == ' ' && text[i - 1] != ' ')
                return false;
    }
    return options->bpe && options->known_rules && options->escape && !options->suffix &&
           (options->prefix || !options->remove) && tokenizer->blank >= 0;
}

/* Adds a piece as the text that decoding makes of it. */
static int add_piece(struct tokenizer *tokenizer, int32_t id, struct error *err)
{
    enum piece_kind kind;
    const char *piece = piece_model_text(tokenizer->pieces, id, &kind);
    char *text = malloc(strlen(piece) + 1);
    unsigned byte = 0;
    size_t count = 0;
    int result;

    if (!text)
        return error_set(err, CODE_IO, "out of memory for a piece");
    while (*piece && kind != PIECE_BYTE) {
        bool blank = strncmp(piece, BLANK, 3) == 0;

        text[count++] = blank ? ' ' : *piece;
        piece += blank ? 3 : 1;
    }
    if (kind == PIECE_BYTE && sscanf(piece, "<0x%2X>", &byte) == 1)
        text[count++] = (char)byte;
    result = token_table_add(&tokenizer->table, id, text, count, err);
    free(text);
    if (result == 0 && kind == PIECE_BYTE)
        tokenizer->table.entries[id].flags |= TOKEN_BYTE;
    if (result == 0 && kind == PIECE_CONTROL)
        tokenizer->table.entries[id].flags |= TOKEN_SPECIAL;
    return result;
}

int read_sentencepiece(struct tokenizer *tokenizer, const char *path, struct error *err)
{
    size_t bytes;
    char *model = text_read_file(path, TOKENIZER_FILE_MOST, &bytes, err);
    struct model_options options;
    int32_t size = 0;

    if (!model)
        return -1;
    tokenizer->kind = KIND_SENTENCEPIECE;
    if (read_options(&options, model, bytes) < 0) {
        error_set(err, CODE_DATA, "%s: not a SentencePiece model, which is a protobuf message", path);
        goto fail;
    }
    tokenizer->pieces = piece_model_create(model, bytes, err);
    if (!tokenizer->pieces) {
        error_prefix(err, "%s", path);
        goto fail;
    }
    piece_model_special(tokenizer->pieces, tokenizer->special);
    tokenizer->unknown = tokenizer->special[SPECIAL_UNKNOWN];
    tokenizer->fingerprint = crc32c(0, model, bytes);
    size = piece_model_size(tokenizer->pieces);
    for (int32_t id = 0; id < size; id++)
        if (add_piece(tokenizer, id, err) < 0) {
            error_prefix(err, "%s: piece %d", path, (int)id);
            goto fail;
        }
    tokenizer->drop_blank = options.prefix || options.remove;
    tokenizer->adds_blank = options.prefix;
    tokenizer->blank = token_table_find(&tokenizer->table, " ", 1);
    tokenizer->cuttable = is_cuttable(tokenizer, &options);
    free(model);
    return 0;
fail:
    free(model);
    return -1;
}

#else

int read_sentencepiece(struct tokenizer *tokenizer, const char *path, struct error *err)
{
    (void)tokenizer;
    return error_set(err, CODE_CONFIG,
                     "%s: muster was built without libsentencepiece: install libsentencepiece-dev and configure again",
                     path);
}

void piece_model_destroy(struct piece_model *pieces)
{
    (void)pieces;
}

int piece_model_encode(const struct piece_model *pieces, const char *text, size_t bytes, struct token_list *ids,
                       struct error *err)
{
    (void)pieces, (void)text, (void)bytes, (void)ids;
    return error_set(err, CODE_INTERNAL, "no libsentencepiece");
}

int tokenizer_train(const struct tokenizer_training *training, char **model, size_t *bytes, struct error *err)
{
    (void)training, (void)model, (void)bytes;
    return error_set(err, CODE_CONFIG,
                     "muster was built without libsentencepiece: install libsentencepiece-dev and configure again");
}

#endif

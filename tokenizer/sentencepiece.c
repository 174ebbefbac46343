/*
 * sentencepiece.c - a SentencePiece model's tokens and options, from the model itself, a protobuf message
 * (sentencepiece_model.proto): libsentencepiece does not show two options that decoding depends on.
 */
#include "config.h"

#include "tokenizer/tokenizer_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/crc32c.h"
#include "common/text.h"

#define BLANK "\xe2\x96\x81" /* U+2581, which stands for a blank in pieces */

int append_piece(struct text_list *list, const char *piece, size_t bytes, bool is_byte, struct error *err)
{
    char name[8] = "";
    unsigned byte;

    memcpy(name, piece, bytes < 7 ? bytes : 7);
    if (is_byte && sscanf(name, "<0x%2X>", &byte) == 1)
        return text_list_append(list, &(char){(char)byte}, 1, err);
    for (size_t at = 0; at < bytes;) {
        bool blank = bytes - at >= 3 && memcmp(piece + at, BLANK, 3) == 0;

        if (text_list_append(list, blank ? " " : piece + at, 1, err) < 0)
            return -1;
        at += blank ? 3 : 1;
    }
    return 0;
}

#ifdef HAVE_SENTENCEPIECE

/* What ids and text depend on, with the defaults of sentencepiece_model.proto. */
struct model_options {
    bool bpe, known_rules, suffix, prefix, remove, escape;
};

static void take_option(struct model_options *options, uint64_t message, const struct proto_field *field)
{
    static const char *const rules[] = {"identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"};
    const struct {
        uint64_t message, number;
        bool *flag;
    } flags[] = {
        {2, 24, &options->suffix}, /* trainer_spec.treat_whitespace_as_suffix */
        {3, 3, &options->prefix},  /* normalizer_spec.add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces */
        {3, 4, &options->remove},
        {3, 5, &options->escape},
    };

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (message == flags[i].message && field->number == flags[i].number)
            *flags[i].flag = field->value;
    if (message == 2 && field->number == 3) /* trainer_spec.model_type */
        options->bpe = field->value == 2;
    for (int i = 0; i < 5 && message == 3 && field->number == 1; i++) /* normalizer_spec.name */
        options->known_rules |= field->size == strlen(rules[i]) && memcmp(field->at, rules[i], field->size) == 0;
}

static int read_options(struct model_options *options, const char *model, size_t bytes, struct error *err)
{
    const char *at = model, *end = model + bytes;
    struct proto_field field, option;
    int found, inner = 0;

    while ((found = proto_next(&at, end, &field)) > 0 && inner == 0)
        for (const char *in = field.at; in && (field.number == 2 || field.number == 3) &&
                                        (inner = proto_next(&in, field.at + field.size, &option)) > 0;)
            take_option(options, field.number, &option);
    return found < 0 || inner < 0 ? error_set(err, CODE_DATA, "not a model of SentencePiece") : 0;
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

static int add_piece(void *arg, const struct file_token *token, struct error *err)
{
    struct tokenizer *tokenizer = arg;
    struct text_list text = {0};
    int result = append_piece(&text, token->text, token->bytes, token->type == PIECE_BYTE, err);

    if (result == 0)
        result = token_table_add(&tokenizer->table, token->id, text.text, text.count, err);
    free(text.text);
    if (result == 0 && token->type == PIECE_BYTE)
        tokenizer->table.entries[token->id].flags |= TOKEN_BYTE;
    if (result == 0 && token->type == PIECE_CONTROL)
        tokenizer->table.entries[token->id].flags |= TOKEN_SPECIAL;
    return result;
}

int read_sentencepiece(struct tokenizer *tokenizer, const struct tokenizer_files *files, struct error *err)
{
    size_t bytes;
    char *model = text_read_file(files->paths[0], TOKENIZER_FILE_MOST, &bytes, err);
    struct model_options options = {.prefix = true, .remove = true, .escape = true};

    if (!model)
        return -1;
    tokenizer->kind = KIND_SENTENCEPIECE;
    if (file_tokens_take_pieces(model, bytes, add_piece, tokenizer, err) == 0 &&
        read_options(&options, model, bytes, err) == 0)
        tokenizer->pieces = piece_model_create(model, bytes, err);
    if (tokenizer->pieces) {
        piece_model_special(tokenizer->pieces, tokenizer->special);
        tokenizer->unknown = tokenizer->special[SPECIAL_UNKNOWN];
        tokenizer->fingerprint = crc32c(0, model, bytes);
        tokenizer->drop_blank = options.prefix || options.remove;
        tokenizer->adds_blank = options.prefix;
        tokenizer->blank = token_table_find(&tokenizer->table, " ", 1);
        tokenizer->cuttable = is_cuttable(tokenizer, &options);
    }
    free(model);
    return tokenizer->pieces ? 0 : error_prefix(err, "%s", files->paths[0]);
}

#else

int read_sentencepiece(struct tokenizer *tokenizer, const struct tokenizer_files *files, struct error *err)
{
    (void)tokenizer;
    return error_set(err, CODE_CONFIG,
                     "%s: muster was built without libsentencepiece: install libsentencepiece-dev and configure again",
                     files->paths[0]);
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

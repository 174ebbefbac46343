/*
 * sentencepiece.c - a SentencePiece model's tokens and options, from the model itself (file_tokens.h): libsentencepiece
 * does not show two options that decoding depends on.
 */
#include "config.h"

#include "tokenizer/tokenizer_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/crc32c.h"
#include "common/text.h"

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

/*
 * For a BPE model, text can be cut before a blank if no piece has a blank behind another character: then no merge
 * reaches over the cut. A Unigram model adds up the scores of a whole text in floats; which of two equally good
 * segmentations it takes depends on the rounding, and so on all the text before.
 */
static bool is_cuttable(const struct tokenizer *tokenizer, const struct piece_options *options)
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
    struct piece_options options;

    if (!model)
        return -1;
    tokenizer->kind = KIND_SENTENCEPIECE;
    if (file_tokens_take_pieces(model, bytes, add_piece, tokenizer, err) == 0 &&
        piece_options_read(model, bytes, &options, err) == 0)
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

/*
 * sentencepiece.c - a SentencePiece model's tokens and options, from the model itself (file_tokens.h): libsentencepiece
 * does not show two options that decoding depends on. The models of Llama 2, Mistral and train-tokenizer, which are BPE
 * and normalize nothing, are merged by bpe.c, ten times as fast; all others by libsentencepiece.
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
 * Text can be cut before a blank for BPE models only. A Unigram model adds up the scores of a whole text in floats; which
 * of two equally good segmentations it takes depends on the rounding, and so on all the text before.
 */
static bool is_cuttable(const struct tokenizer *tokenizer, const struct piece_options *options)
{
    return options->bpe && options->known_rules && options->escape && !options->suffix &&
           (options->prefix || !options->remove) && blanks_begin_tokens(tokenizer);
}

/* The highest score has the lowest rank. The bits of a float are in the order of its value, but for the sign. */
static uint32_t rank_of(float score)
{
    const float sum = score + 0.0f; /* not -0 */
    uint32_t bits;

    memcpy(&bits, &sum, sizeof bits);
    return bits >> 31 ? bits : ~bits & ~(1u << 31);
}

struct piece_reader {
    struct tokenizer *tokenizer;
    uint32_t *ranks; /* by id */
    size_t room;
    bool other; /* there are pieces that are found in text, or that are not used */
};

static int add_piece(void *arg, const struct file_token *token, struct error *err)
{
    struct piece_reader *reader = arg;
    struct tokenizer *tokenizer = reader->tokenizer;
    const unsigned flags[] = {
        [PIECE_UNKNOWN] = TOKEN_ADDED, [PIECE_CONTROL] = TOKEN_ADDED | TOKEN_SPECIAL, [PIECE_BYTE] = TOKEN_BYTE};
    struct text_list text = {0};
    int result = append_piece(&text, token->text, token->bytes, token->type == PIECE_BYTE, err);

    if (result == 0)
        result = token_table_add(&tokenizer->table, token->id, text.text, text.count,
                                 token->type <= PIECE_BYTE ? flags[token->type] : 0, err);
    free(text.text);
    if (result < 0 || error_reserve(&reader->ranks, &reader->room, 0, (size_t)token->id + 1, 4, err) < 0)
        return -1;
    reader->ranks[token->id] = rank_of(token->score);
    reader->other |= !(token->type <= PIECE_CONTROL || token->type == PIECE_BYTE);
    if (token->type == PIECE_BYTE)
        tokenizer->byte_ids[(uint8_t)tokenizer->table.bytes[tokenizer->table.entries[token->id].at]] =
            (int32_t)token->id;
    return 0;
}

/* Whether all characters of pieces are pieces: libsentencepiece merges also those that are not. */
static bool has_characters(const struct token_table *table)
{
    for (int32_t id = 0; id < table->size; id++) {
        const uint8_t *at = (const uint8_t *)table->bytes + table->entries[id].at,
                      *end = at + table->entries[id].length;
        uint32_t code;

        for (int length; at < end && !(table->entries[id].flags & (TOKEN_ADDED | TOKEN_BYTE)); at += length) {
            length = utf8_next(at, end, &code);
            if (token_table_own(table, (const char *)at, (size_t)length) < 0)
                return false;
        }
    }
    return true;
}

/* Prepares bpe.c, if it can do what the library does. */
static int take_merges(struct tokenizer *tokenizer, const struct piece_reader *reader,
                       const struct piece_options *options, struct error *err)
{
    tokenizer->characters = options->bpe && options->map_size == 0 && options->escape && !options->suffix &&
                            !options->remove && !reader->other && has_characters(&tokenizer->table);
    if (!tokenizer->characters)
        return 0;
    tokenizer->fallback = options->fallback;
    tokenizer->fuse_unknown = true;
    tokenizer->prepend = options->prefix;
    if (merge_any_pairs(tokenizer, reader->ranks, err) < 0)
        return -1;
    return blanks_begin_tokens(tokenizer)
               ? splitter_add(&tokenizer->splitter, split_patterns[SPLIT_BLANKS], false, false, err)
               : 0;
}

int read_sentencepiece(struct tokenizer *tokenizer, const struct tokenizer_files *files, struct error *err)
{
    size_t bytes;
    char *model = text_read_file(files->paths[0], TOKENIZER_FILE_MOST, &bytes, err);
    struct piece_reader reader = {.tokenizer = tokenizer};
    struct piece_options options;
    int result = -1;

    if (!model)
        return -1;
    tokenizer->kind = KIND_SENTENCEPIECE;
    memset(tokenizer->byte_ids, 0xff, sizeof tokenizer->byte_ids);
    if (file_tokens_take_pieces(model, bytes, add_piece, &reader, err) == 0 &&
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
        result = take_merges(tokenizer, &reader, &options, err);
    }
    free(reader.ranks);
    free(model);
    return result == 0 ? 0 : error_prefix(err, "%s", files->paths[0]);
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

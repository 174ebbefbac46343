/*
 * file_tokens.h - reads tokens and ids from a tokenizer's files. Of every kind: also those that tokenizer_open refuses,
 * because it does not know their rules for splitting a text.
 */
#ifndef MUSTER_TOKENIZER_FILE_TOKENS_H
#define MUSTER_TOKENIZER_FILE_TOKENS_H

#include <jansson.h>
#include <stdint.h>

#include "tokenizer/tokenizer_files.h"

/* A token as a file writes it; zero-terminated if that is JSON. */
struct file_token {
    const char *text;
    size_t bytes;
    int64_t id;    /* -1: not a number */
    uint64_t type; /* of a piece of SentencePiece; 0 for other tokens */
    float score;   /* of a piece */
};

enum { PIECE_NORMAL = 1, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER, PIECE_BYTE = 6 }; /* types */
#define BLANK "\xe2\x96\x81" /* U+2581, which stands for a blank in pieces */

/* -1 ends the reading. */
typedef int (*token_taker)(void *arg, const struct file_token *token, struct error *err);

/*
 * Calls `take` for each token of the vocabulary in these files, not of LAYOUT_BYTES. What `take` says comes behind the
 * file, and the line of a vocab.txt.
 */
int file_tokens_read(const struct tokenizer_files *files, token_taker take, void *arg, struct error *err);

/* The same of added_tokens.json beside the file `path`, if it exists. */
int file_tokens_read_added(const char *path, token_taker take, void *arg, struct error *err);

/* The same of a tokenizer.json: its added tokens come last, without those that the model has. */
int file_tokens_take_json(json_t *root, token_taker take, void *arg, struct error *err);

/* The same of the bytes of a SentencePiece model: pieces in the order of their ids. */
int file_tokens_take_pieces(const char *model, size_t bytes, token_taker take, void *arg, struct error *err);

#define LLAMA3_RANKS 128000 /* in the file: other vocabularies split text in other ways */
#define RANKED_MOST  512    /* bytes of a token */

/* The regular expression by which Llama 3 splits text; Qwen 2 has single digits, "\\p{N}". */
#define LLAMA3_DIGITS "\\p{N}{1,3}"
#define LLAMA3_PATTERN(digits)                                                                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                                               \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* The line at *text: its length without its end; *text moves to the next one. */
size_t file_line(const char **text, const char *end);

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

/* Their keys in the two files that name special tokens: "eos_token" and so on. */
extern const char *const special_token_keys[SPECIAL_TOKENS];

/* Names that count where no file says so: the first that exists. Ended by NULL. */
extern const char *const special_token_names[SPECIAL_TOKENS][5];

/*
 * Reads the files that name special tokens beside the file `path`: *config is tokenizer_config.json, and *named has the
 * members of both, of special_tokens_map.json first: in transformers, tokenizer_config.json comes first since it has
 * added_tokens_decoder. Both are objects, without members where there is no file; to be released also after a failure.
 */
int special_tokens_read(const char *path, json_t **config, json_t **named, struct error *err);

/* The string in a value of *named, which may be an object with the token's flags; NULL for anything else. */
json_t *special_token_text(json_t *value);

/* ---- the alphabet of byte-level BPE ------------------------------------------------------------------------------ */

#define ALPHABET 324 /* its characters are below */

/* The byte that files write as this character, or -1. */
void fill_byte_alphabet(int16_t bytes[ALPHABET]);

/* ---- SentencePiece's model -------------------------------------------------------------------------------------- */

/* The options that encoding and decoding depend on. */
struct piece_options {
    bool bpe, known_rules, suffix, prefix, remove, escape;
    bool fallback;   /* to bytes */
    const char *map; /* in the model: the compiled rules of normalization */
    size_t map_size; /* 0: there are none */
};

/* Reads them from the bytes of a model. CODE_DATA if these are not one. */
int piece_options_read(const char *model, size_t bytes, struct piece_options *options, struct error *err);

#endif

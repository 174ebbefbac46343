/* tokenizer_impl.h - what the files of tokenizer/ share. */
#ifndef MUSTER_TOKENIZER_TOKENIZER_IMPL_H
#define MUSTER_TOKENIZER_TOKENIZER_IMPL_H

#include <jansson.h>
#include <limits.h>
#include <string.h>

#include "tokenizer/split.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"
#include "tokenizer/file_tokens.h"

#define TOKENS_MOST    ((int32_t)1 << 24) /* ids are below */
#define WORD_LONG      64                 /* bytes from which merging uses a heap */
#define BERT_WORD_MOST 100                /* characters: a longer word is unknown (max_input_chars_per_word) */

/* A hash of short byte strings: 8 bytes a multiplication. */
static inline uint64_t hash_bytes(const char *bytes, size_t count)
{
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t hash = count * odd, part;

    for (; count >= 8; bytes += 8, count -= 8) {
        memcpy(&part, bytes, 8);
        hash = (hash ^ part) * odd;
        hash ^= hash >> 29;
    }
    if (count > 0) {
        part = 0;
        for (size_t i = 0; i < count; i++)
            part |= (uint64_t)(uint8_t)bytes[i] << 8 * i;
        hash = (hash ^ part) * odd;
    }
    return hash ^ hash >> 32;
}

/* ---- token_table.c: id -> bytes, and back ------------------------------------------------------------------------ */

enum {
    TOKEN_KNOWN = 1,
    TOKEN_SPECIAL = 2,
    TOKEN_ADDED = 4,  /* not the model's own: words do not become it */
    TOKEN_BYTE = 8,   /* of a byte, for characters without a token; is not found by its bytes */
    TOKEN_FOUND = 16, /* is found in text before it is split */
};

struct token_entry {
    uint32_t at, length; /* in bytes[] */
    uint8_t flags;
};

struct token_table {
    char *bytes;
    size_t used, room;
    struct token_entry *entries; /* [size]; an id without token has no flags */
    size_t entries_room;
    int32_t size, known;
    int32_t *slots; /* open addressing by hash_bytes: an id, or -1 */
    uint32_t mask;
};

/* Fails for an id that is out of range or taken. If two ids have the same bytes, the first is found. */
int token_table_add(struct token_table *table, int64_t id, const char *bytes, size_t count, unsigned flags,
                    struct error *err);
int32_t token_table_find(const struct token_table *table, const char *bytes, size_t count);

/* The same of the model's own tokens: -1 also for one that was added. */
int32_t token_table_own(const struct token_table *table, const char *bytes, size_t count);

void token_table_free(struct token_table *table);

/* ---- added_tokens.c: tokens that are found in text before it is split -------------------------------------------- */

struct added_token {
    char *text; /* malloc'ed, zero-terminated; may contain zeros */
    size_t bytes;
    int32_t id;
    bool special, single_word, left, right; /* left, right: takes white space at that side */
    bool normalized; /* is found in normalized text, after those that are not; `text` is then normalized, too */
    int order;       /* in which they were added */
};

/* Those that are normalized, or those that are not: in the order of their bytes, of two with one beginning the longer
 * first. */
struct added_set {
    struct added_token *tokens;
    int count;
    size_t room, longest;
    int first[257];         /* of those with the first byte b: first[b] to first[b + 1] - 1 */
    uint8_t pairs[1 << 13]; /* a bit for each two bytes that begin a token */
};

/* Copies the token. Of two with the same text the later counts, as in Hugging Face's. */
int added_set_add(struct added_set *set, const struct added_token *token, struct error *err);

/* After the last add, before the first use. */
void added_set_close(struct added_set *set);
void added_set_free(struct added_set *set);

struct added_match {
    int token;         /* index in the set, -1 for text between two tokens */
    size_t begin, end; /* of the text that it takes */
};

struct added_matches {
    struct added_match *matches;
    size_t count, room;
};

/* Divides a text into tokens of the set and what is between them, as Hugging Face's AddedVocabulary does. */
int added_find(const struct added_set *set, const char *text, size_t bytes, bool plain, struct added_matches *found,
               struct error *err);

/* ---- the tokenizer ----------------------------------------------------------------------------------------------- */

enum kind { KIND_BYTES, KIND_BPE, KIND_WORDPIECE, KIND_SENTENCEPIECE };

/* Of a pair of tokens: the pair with the lowest rank is merged first. */
struct pair_merge {
    uint32_t rank; /* NO_RANK: no merge */
    int32_t id;
};

#define NO_RANK UINT32_MAX

struct merge_slot {
    uint64_t pair; /* left << 32 | right; ~0 for an empty slot, which has NO_RANK */
    struct pair_merge merge;
};

struct merge_table {
    struct merge_slot *slots;
    uint32_t mask;
    uint8_t *seen; /* a bit for the hash of each pair: most pairs have no merge, and this is in the cache */
};

struct tokenizer {
    enum kind kind;
    struct token_table table;
    struct added_set raw, normalized; /* added tokens found before and after normalization */
    bool never_cut;                   /* an added token may be written in so many ways that any cut could be in one */
    int32_t special[SPECIAL_TOKENS];
    uint32_t fingerprint;
    char path[PATH_MAX], note[1024]; /* tokenizer.h */

    /* BPE, also SentencePiece's if nothing is normalized */
    bool characters;            /* merges begin with characters; U+2581 is a blank. Otherwise they begin with bytes */
    bool fallback;              /* characters without a token become their bytes' tokens */
    int32_t byte_ids[256];      /* -1: the byte has no token; of characters, without fallback none has */
    int16_t alphabet[ALPHABET]; /* the byte that files write as this character, or -1; not of characters */
    struct merge_table merges;
    struct splitter splitter;
    bool nfc;
    bool prepend;        /* normalization puts a blank before a text */
    bool prefix_space;   /* a text that does not begin with a blank gets one, after normalization */
    bool prefix_first;   /* prefix_space: only at the beginning of a document */
    bool whole_words;    /* a word that is a token is not merged (ignore_merges) */
    bool fuse_unknown;   /* unknown characters in a row become one token */
    int32_t unknown;     /* of characters or bytes without a token, and of WordPiece's words; -1: they are left out */
    int32_t begin_token; /* that the post-processor puts before a text; -1 for none */

    /* WordPiece; its splitter is not used */
    bool clean, chinese, lower, strip; /* BERT's options */
    size_t longest;                    /* token, in bytes */

    bool drop_blank; /* decoding: the first token's blank is not of the text. Of BPE, too */

    /* SentencePiece by libsentencepiece */
    struct piece_model *pieces;
    bool adds_blank; /* encoding: the library puts a blank before a text */
    bool cuttable;   /* text may be cut before a blank */
    int32_t blank;   /* the token of a blank, -1 for none */
};

static inline uint64_t token_pair(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static inline uint64_t hash_pair(uint64_t pair)
{
    return pair * 0x9e3779b97f4a7c15u >> 32;
}

/* The slot of the pair, or the empty one where it belongs. */
static inline struct merge_slot *merge_table_slot(const struct merge_table *table, uint64_t pair)
{
    uint32_t at = (uint32_t)hash_pair(pair) & table->mask;

    while (table->slots[at].pair != pair && table->slots[at].pair != UINT64_MAX)
        at = (at + 1) & table->mask;
    return &table->slots[at];
}

/* Room for `count` merges; of a pair that is added twice the last counts. */
int merge_table_create(struct merge_table *table, uint32_t count, struct error *err);
void merge_table_add(struct merge_table *table, int32_t left, int32_t right, uint32_t rank, int32_t id);

/* Makes a merge of any two tokens that make a third one, whose rank counts: ranks[id], or without `ranks` its id. */
int merge_any_pairs(struct tokenizer *tokenizer, const uint32_t *ranks, struct error *err);

/* Adds a token that is found in text: one of the vocabulary by its id, or another one. */
int tokenizer_add_token(struct tokenizer *tokenizer, const struct added_token *token, struct error *err);

/* After reading, before use. */
int tokenizer_finish(struct tokenizer *tokenizer, struct error *err);

/* Makes *text what its normalizer makes of it, in `room` if that is another text. `first`: as in encode_bpe. */
int tokenizer_normalize(const struct tokenizer *tokenizer, bool first, const char **text, size_t *bytes,
                        struct text_list *room, struct error *err);

/* ---- readers: each fills a zeroed tokenizer ---------------------------------------------------------------------- */

int read_tokenizer_json(struct tokenizer *tokenizer, const struct tokenizer_files *files, struct error *err);
int read_bpe_files(struct tokenizer *tokenizer, const struct tokenizer_files *files, struct error *err);
int read_vocab_txt(struct tokenizer *tokenizer, const struct tokenizer_files *files, struct error *err);
int read_ranks(struct tokenizer *tokenizer, const struct tokenizer_files *files, struct error *err);
int read_sentencepiece(struct tokenizer *tokenizer, const struct tokenizer_files *files, struct error *err);

/* Reads the special tokens' names from the files beside `path`, if they exist. With `add`, makes them tokens that are
 * found in text, and reads the options that tokenizer.json would have. */
int read_special_tokens(struct tokenizer *tokenizer, const char *path, bool add, struct error *err);

/* Parts of the readers. {"content": "<pad>", "lstrip": false, ...}. `where` is its JSON path. */
int read_added_token(struct tokenizer *tokenizer, json_t *object, int64_t id, const char *path, const char *where,
                     struct error *err);

/* Whether text may be divided before a blank: no token has a blank behind another character, and so no merge reaches
 * over that place. */
bool blanks_begin_tokens(const struct tokenizer *tokenizer);

/* A model's vocabulary {"token": id, ...}. `where` is its JSON path after ": ", or "". */
int read_vocab_object(struct tokenizer *tokenizer, json_t *vocab, const char *path, const char *where,
                      struct error *err);

/* The id of the token that files write so; -1 for none. Special tokens are written as they are. */
int32_t find_written(const struct tokenizer *tokenizer, const char *name, size_t bytes);

/* Adds a merge of two tokens as files write them; in the text, with a blank between them. `place` is for the message. */
int add_merge_text(struct tokenizer *tokenizer, const char *text, size_t bytes, uint32_t rank, const char *place,
                   struct error *err);
int add_merge(struct tokenizer *tokenizer, const char *left, size_t left_bytes, const char *right, size_t right_bytes,
              uint32_t rank, const char *place, struct error *err);

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* Scratch memory for the words of one thread. */
struct word_scratch {
    int32_t *numbers;
    uint64_t *heap;
    size_t numbers_room, heap_room;
    struct encode_loss loss;
};

/* Appends the ids of a word, which the tokenizer does not split further. */
int bpe_word(const struct tokenizer *tokenizer, struct word_scratch *scratch, const char *word, size_t bytes,
             struct token_list *ids, struct error *err);
int wordpiece_word(const struct tokenizer *tokenizer, const char *word, size_t bytes, struct token_list *ids,
                   struct error *err);

/* Appends a text, cleaned as BERT does. */
int wordpiece_normalize(const struct tokenizer *tokenizer, const char *text, size_t bytes, struct text_list *out,
                        struct error *err);

/* The word at or behind *text, where it is moved to, and its end; empty at the end of the text. */
const char *wordpiece_next(const char **text, const char *end);

/* Whether text may be cut before this character. */
bool wordpiece_cuts(const struct tokenizer *tokenizer, uint32_t behind);

/* ---- SentencePiece: sentencepiece.c reads the model, sentencepiece_shim.cc calls libsentencepiece ---------------- */

/* Appends the text that decoding makes of a piece: a blank for each U+2581, or the byte that "<0x0A>" names. */
int append_piece(struct text_list *list, const char *piece, size_t bytes, bool is_byte, struct error *err);

#ifdef __cplusplus
extern "C" {
#endif

/* Takes the bytes of a .model. CODE_DATA with the library's words. */
struct piece_model *piece_model_create(const char *model, size_t bytes, struct error *err);
void piece_model_destroy(struct piece_model *pieces);

/* May be called by several threads at once. */
int piece_model_encode(const struct piece_model *pieces, const char *text, size_t bytes, struct token_list *ids,
                       struct error *err);

/* -1 for none: the beginning, the end, the unknown, the padding. */
void piece_model_special(const struct piece_model *pieces, int32_t special[SPECIAL_TOKENS]);

/* Room in a list. */
int token_list_reserve(struct token_list *list, size_t more, struct error *err);

#ifdef __cplusplus
}
#endif

#endif

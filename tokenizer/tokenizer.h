/*
 * tokenizer.h - text to tokens and back, with exactly the ids of the reference tokenizers.
 *
 *     struct tokenizer *tokenizer = tokenizer_open("gpt2/", &err);
 *     struct encoder *encoder = encoder_create(tokenizer, &err); // one for each thread
 *     struct token_list ids = {0};
 *     encoder_encode(encoder, text, bytes, 0, &ids, &err);       // appends
 *
 * tokenizer_open takes "bytes", a file, or a directory, in which it takes the first of these that exists and is of a
 * known kind (tokenizer_files.h, which also has tokenizer_save, a copy of the files):
 *
 *   file                            kind                  the same ids as
 *   tokenizer.json                  byte-level BPE        Hugging Face's `tokenizers`
 *                                   BPE                   the same: of characters, with or without bytes (Llama 2)
 *                                   WordPiece             the same (BERT)
 *   *.model (one)                   SentencePiece         libsentencepiece, which does the work for most models
 *                                   byte-level BPE        `tiktoken` with these ranks, which must be Llama 3's
 *   vocab.json and merges.txt       byte-level BPE        GPT2Tokenizer; `tiktoken` with these ranks
 *   encoder.json and vocab.bpe      the same, under OpenAI's names
 *   vocab.txt                       WordPiece             BertTokenizerFast
 *   the word "bytes"                bytes                 ids 0 to 255, and 256 for the end of a document
 *
 * A file of a pair may be given for both. What a tokenizer.json asks for and muster does not support is an error, with
 * its JSON path. Beside these files, tokenizer_config.json and special_tokens_map.json are read if they exist: they
 * name the special tokens (eos_token, mask_token, ...) and BERT's options (do_lower_case, strip_accents,
 * tokenize_chinese_chars). A post-processor is not applied: special tokens around a text are the caller's, who finds
 * their ids with tokenizer_special and tokenizer_begin. Nor are truncation and padding.
 *
 * Text is UTF-8. What becomes of a byte that is not:
 *
 *   byte-level BPE   is kept, as that byte's token. To the split pattern it is one character that is neither letter,
 *                    number nor white space, like the U+FFFD that the references take in its place. With an NFC
 *                    normalizer, too.
 *   BPE              is kept, as that byte's token
 *   WordPiece        is removed, as BERT removes U+FFFD (without clean_text: is U+FFFD)
 *   SentencePiece    becomes U+FFFD, as in libsentencepiece. In a BPE model that normalizes nothing, as with BPE
 *   bytes            is kept
 *
 * So for bytes and for byte-level BPE without a normalizer, decode(encode(text)) is the text, whatever it contains. A
 * vocabulary of BPE may lack bytes, though (encoder_take_loss).
 *
 * Unicode: categories and normal forms are those of libutf8proc, Unicode 15 in Debian 12. The references have other
 * versions. Ids may differ on code points that one of two versions does not know: unicode.h lists them.
 *
 * libsentencepiece: of two segmentations that are equally good, releases from 0.2.3 on may take another one than
 * Debian's 0.1.97. It happens in Unigram models, in words like ")))".
 *
 * A tokenizer is constant once it is open: any number of threads may use it, each with its own encoder.
 */
#ifndef MUSTER_TOKENIZER_TOKENIZER_H
#define MUSTER_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "tokenizer/tokenizer_files.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tokenizer;

/* CODE_DATA for bad or unsupported files, CODE_IO for those that cannot be read. */
struct tokenizer *tokenizer_open(const char *path, struct error *err);
void tokenizer_close(struct tokenizer *tokenizer);

/* The file that was taken, or the path that was given if that is the first one there. */
const char *tokenizer_path(const struct tokenizer *tokenizer);

/*
 * A line for the user if the first vocabulary in a directory is of an unknown kind, and another one was taken: which,
 * why, and where their ids differ. Also if added_tokens.json has tokens that a SentencePiece model lacks. NULL: nothing
 * to say.
 */
const char *tokenizer_note(const struct tokenizer *tokenizer);

/* "byte-level BPE", "BPE", "WordPiece", "SentencePiece", "bytes". */
const char *tokenizer_kind(const struct tokenizer *tokenizer);

/* Ids are 0 to size - 1. Some may have no token. */
int32_t tokenizer_size(const struct tokenizer *tokenizer);

/*
 * A checksum of all that ids depend on: kind, tokens, merges, options. A data set and a checkpoint name their tokenizer
 * with it. The same vocabulary has the same fingerprint in each of its file formats, if its added tokens agree.
 */
uint32_t tokenizer_fingerprint(const struct tokenizer *tokenizer);

/* Whether a vocabulary at `path` has this fingerprint: of a directory, any of its vocabularies. An export of a
 * SentencePiece model has a tokenizer.json beside it. */
bool tokenizer_matches(const struct tokenizer *tokenizer, const char *path);

/*
 * The bytes of a token as they appear in text; NULL if the id has no token. Not zero-terminated. WordPiece: as in
 * vocab.txt, with "##". SentencePiece: with blanks for U+2581.
 */
const char *tokenizer_token(const struct tokenizer *tokenizer, int32_t id, size_t *bytes);

/*
 * The id of a special token; -1 if the vocabulary has none. SPECIAL_END ends a document: eos_token, or else the one of
 * "<|endoftext|>", "<|end_of_text|>", "</s>", "[SEP]" that exists.
 */
int32_t tokenizer_special(const struct tokenizer *tokenizer, enum special_token special);

/* The id of the token that is written so; -1 if there is none. */
int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *token);

/*
 * The token that the reference puts before a text: its post-processor does, or add_bos_token in tokenizer_config.json,
 * or Meta's programs for Llama 3's ranks. -1 if it puts none.
 */
int32_t tokenizer_begin(const struct tokenizer *tokenizer);

/* Text that grows; begins as {0}. free(text). There is always room for one byte more. */
struct text_list {
    char *text;
    size_t count, room;
};

int text_list_append(struct text_list *list, const char *text, size_t bytes, struct error *err);

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

/* Grows as needed; begins as {0}. free(ids). */
struct token_list {
    int32_t *ids;
    size_t count, room;
};

struct encoder;

/* An encoder has a cache of words, about 2 MiB, and scratch memory. It borrows the tokenizer. */
struct encoder *encoder_create(const struct tokenizer *tokenizer, struct error *err);
void encoder_destroy(struct encoder *encoder);

enum {
    ENCODE_CONTINUES = 1, /* the text is not the beginning of a document, but follows a piece of it */
    ENCODE_ORDINARY = 2,  /* special tokens in the text ("<|endoftext|>") are text, as in tiktoken's encode_ordinary */
};

#define ENCODE_MOST ((size_t)1 << 30) /* bytes in one call */

/* Appends the ids of a text. On failure (CODE_DATA, CODE_IO) *ids is as before. */
int encoder_encode(struct encoder *encoder, const char *text, size_t bytes, unsigned flags, struct token_list *ids,
                   struct error *err);

/* Bytes of text that have no token, in vocabularies of BPE that lack some. They were left out, or became the unknown
 * token. */
struct encode_loss {
    uint64_t bytes;
    char first[4]; /* the first character, or byte, of which they are */
    int length;
};

/* What was lost since the last call. */
struct encode_loss encoder_take_loss(struct encoder *encoder);

/*
 * Where a long document may be cut: the last position p, 0 < p < bytes, for which encoding text[0, p) and then, with
 * ENCODE_CONTINUES, what follows p, gives the ids of the whole, whatever comes after the `bytes` given. 0 if there is
 * none: then more text is needed.
 *
 * So a document of any length is encoded in constant memory, by any number of threads: read a block, cut it, hand the
 * piece to a thread, begin the next block with the rest. The ids do not depend on the size of the blocks.
 *
 * A run of letters, of digits or of white space is never cut. Nothing is cut at all with
 *   - a Unigram model of SentencePiece;
 *   - a tokenizer.json with a split pattern of its own;
 *   - BPE of characters with a token that has a blank inside;
 *   - an added token that is found in normalized text and has several words, or with NFC more than ASCII.
 */
size_t tokenizer_cut(const struct tokenizer *tokenizer, const char *text, size_t bytes);

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

/* What decoding remembers between two calls; begins as {0}. */
struct decode_state {
    bool begun;
    int held;
    char bytes[4]; /* the beginning of a character, until its other bytes come */
};

/*
 * Appends the text of tokens. If `more` follow, an incomplete character is kept for the next call, so that each call's
 * text can be printed at once; other bytes that are not UTF-8 are appended as they are. CODE_DATA for an id without a
 * token.
 */
int tokenizer_decode(const struct tokenizer *tokenizer, struct decode_state *state, const int32_t *ids, size_t count,
                     bool more, struct text_list *text, struct error *err);

/* ---- training ---------------------------------------------------------------------------------------------------- */

#define TRAINING_LINE_MOST 4096 /* bytes */

struct tokenizer_training {
    bool unigram;    /* a Unigram model; otherwise BPE */
    long vocab_size; /* tokens, among them 256 for bytes, and <unk>, <s> and </s>, which are 0, 1 and 2 */
    long threads;

    /* The next line of the text, of at most TRAINING_LINE_MOST bytes, without a line feed; NULL at the end. */
    const char *(*next_line)(void *arg, size_t *bytes);
    void *arg;
};

/*
 * Trains a SentencePiece model with libsentencepiece: text as it is (no normalization), each digit a token, and bytes
 * for what has no token, so that decode(encode(text)) is the text. *model is malloc'ed: the bytes of a .model file.
 * libsentencepiece keeps the text in memory, of more than two million lines a random part. CODE_DATA with the library's
 * words, if the text is too short for the vocabulary, for example; CODE_CONFIG without libsentencepiece.
 */
int tokenizer_train(const struct tokenizer_training *training, char **model, size_t *bytes, struct error *err);

#ifdef __cplusplus
}
#endif

#endif

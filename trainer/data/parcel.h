/*
 * parcel.h - a parcel of text, which one thread encodes: some 256 KiB of whole documents, and of pieces of longer ones.
 *
 * text_reader.h fills parcels, threads encode them, and convert.c writes the tokens in the order in which the parcels
 * were filled. Neither the parcels nor their order, and so the data set, depend on the number of threads.
 */
#ifndef MUSTER_TRAINER_DATA_PARCEL_H
#define MUSTER_TRAINER_DATA_PARCEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "tokenizer/tokenizer.h"
#include "trainer/data/indexed.h"

#define PARCEL_SIZE ((size_t)256 << 10) /* bytes of text from which a parcel is full */
#define PIECE_MOST  ((size_t)64 << 20)  /* bytes: of a line of JSON, and of text in which there is no cut */

/*
 * Divides a text into sentences, by a rule without knowledge of languages.
 *
 * A sentence ends after one of . ! ? and the quotes and brackets " ' ) ] that close it, if white space follows, and at
 * a blank line. The white space after it belongs to it, so every byte of a text is in exactly one sentence. White space
 * is ASCII's, and a blank line may contain some. The rule divides after "Dr." and does not know full stops outside
 * ASCII. A better tool can divide the text by a blank line after each sentence.
 */

/* The state of the current sentence: {0} at the beginning of a text. */
struct sentences {
    enum { SENTENCE_EMPTY, SENTENCE_TEXT, SENTENCE_STOP, SENTENCE_LINE_END, SENTENCE_OVER } state;
};

/*
 * Returns how many of the next `count` bytes of the text, in chunks of any size, belong to the current sentence. If
 * *ended, it ends after them, and the next sentence begins with the rest, which is not empty.
 */
size_t sentences_next(struct sentences *sentences, const char *bytes, size_t count, bool *ended);

/* Where something is in a text. */
struct text_place {
    const char *name;
    uint64_t line, offset; /* from 1; in bytes, from 0, after decompression */
};

/* Line feeds in a text. */
uint64_t text_lines(const char *text, size_t bytes);

enum {
    PIECE_JSON = 1,          /* a line of JSON lines; otherwise text */
    PIECE_CONTINUES = 2,     /* its first sequence began in an earlier piece */
    PIECE_ENDS_SEQUENCE = 4, /* the sentence ends with the piece */
    PIECE_ENDS_DOCUMENT = 8,
    PIECE_LONG = 16, /* a line of JSON of more than PIECE_MOST bytes, which was not kept */
};

struct text_piece {
    size_t at, bytes; /* in the parcel's text */
    unsigned flags;
    struct text_place place;    /* of its first byte */
    struct sentences sentences; /* the state before it */
};

/* Text that is left out: a document of JSON lines, or bytes of a text. "web.txt:7, offset 1234: not UTF-8" */
struct bad_place {
    char line[480];
};

/* A run of tokens of a piece, and what ends with it. */
struct token_run {
    size_t count, piece;
    enum { RUN_GOES_ON, RUN_ENDS_SEQUENCE, RUN_ENDS_DOCUMENT } end;
};

struct parcel {
    /* filled by a reader */
    struct text_list text;
    struct text_piece *pieces;
    size_t piece_count, piece_room;

    /* filled by parcel_encode */
    char *tokens; /* of the set's type */
    size_t token_count, token_room;
    struct token_run *runs;
    size_t run_count, run_room;
    struct bad_place *bad;
    size_t bad_count, bad_room;
    uint64_t lost;        /* bytes without a token */
    char first_lost[300]; /* "web.txt:7, byte 0x04" */
    struct error err;     /* if it failed */
    bool failed;
};

/* Appends a piece with this text, a copy. */
int parcel_add(struct parcel *parcel, const struct text_piece *piece, const char *text, struct error *err);

/* Forgets what it holds, but keeps the memory. */
void parcel_clear(struct parcel *parcel);
void parcel_free(struct parcel *parcel);

/* How texts become tokens. */
struct encoding {
    const struct tokenizer *tokenizer; /* NULL: each byte is a token */
    enum indexed_type type;
    const char *key; /* of JSON lines */
    bool sentences;  /* each is a sequence, encoded by itself */
    bool utf8;       /* other bytes are bad */
};

/* What a thread needs: created by it, and its own. */
struct parcel_worker;
struct parcel_worker *parcel_worker_create(const struct encoding *encoding, struct error *err);
void parcel_worker_destroy(struct parcel_worker *worker);

/*
 * The text of a piece: of JSON, its string; without the bytes that are bad. Lists what is left out in parcel->bad. A
 * zero byte is bad in a text that is not JSON, and so are bytes that are not UTF-8, if encoding->utf8. Valid until the
 * next call. A document that is left out is NULL, without a failure.
 */
int parcel_text(struct parcel_worker *worker, struct parcel *parcel, size_t piece, const char **text, size_t *bytes,
                struct error *err);

/* Fills in tokens, runs and bad places, or err. */
void parcel_encode(struct parcel_worker *worker, struct parcel *parcel);

/* ---- JSON lines (json_text.c) ------------------------------------------------------------------------------------ */

/*
 * The whole line is checked as RFC 8259 has it, and only the string is kept: five to ten times faster than a library
 * that builds the object. Of a key that occurs twice the last value counts, as in Python's json.
 */

#define JSON_DEPTH_MOST 1000 /* of arrays and objects within each other */

/*
 * Replaces *text by the value of `key` in `line`, which has no line feed. The text is UTF-8. On failure returns -1; *at
 * is the offset in the line and err->text says what is wrong there, without a place.
 */
int json_line_text(const char *line, size_t bytes, const char *key, struct text_list *text, size_t *at,
                   struct error *err);

/*
 * Whether a text begins with a JSON object a line: the first line that is not blank is an object. Of a line that is not
 * complete in these bytes, unless the text `ended`, the beginning of one is enough.
 */
bool json_text_begins(const char *text, size_t bytes, bool ended);

/* Whether a text begins with an array whose first value is an object. */
bool json_text_is_array(const char *text, size_t bytes, bool ended);

#endif

/*
 * text_reader.h - reads texts and fills parcels with their documents, in order.
 *
 * A text is JSON lines or plain text. It is JSON lines if its name ends with .jsonl, .ndjson or .json, before .gz or
 * .zst if it has that, or if its first line is a JSON object (json_text_begins). Then each line that is not blank is a
 * document. A plain text is one document.
 *
 * A document that does not fit into a parcel is cut into pieces where a cut does not change the tokens (tokenizer_cut).
 * So memory does not grow with the texts. More than PIECE_MOST bytes without a place to cut are refused.
 */
#ifndef MUSTER_TRAINER_DATA_TEXT_READER_H
#define MUSTER_TRAINER_DATA_TEXT_READER_H

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "trainer/data/parcel.h"

struct text_reader;

struct text_inputs {
    char *const *paths; /* "-" is standard input */
    int count;
    bool raw;        /* all are one document, whatever their names and contents */
    bool json_input; /* all but *.txt are JSON lines, whatever their names */
    /* After each parcel: bytes of the files that were read, and of all; 0 if one is no regular file. May be NULL. */
    void (*progress)(uint64_t done, uint64_t total, void *arg);
    void *progress_arg;
    const volatile sig_atomic_t *stop; /* fails with CODE_STOPPED when this is not 0; may be NULL */
};

/* Both are borrowed. CODE_DATA if a text cannot be read or is a directory: none is converted then. */
struct text_reader *text_reader_create(const struct text_inputs *texts, const struct encoding *encoding,
                                       struct error *err);
void text_reader_destroy(struct text_reader *reader);

/* Fills an empty parcel. Returns 1, or 0 when all texts are read. Returns -1 for an error; the parcel then has what was
 * read before it. */
int text_reader_fill(struct text_reader *reader, struct parcel *parcel, struct error *err);

/* ---- the bytes of a text (text_source.c) ------------------------------------------------------------------------- */

/*
 * Reads a text from beginning to end: plain, gzip (RFC 1952, with any number of members) or Zstandard (RFC 8878, with
 * any number of frames). The first bytes tell which, so standard input may be compressed, too.
 */

struct text_source;

/*
 * "-" is standard input. CODE_DATA for a file that cannot be opened, and for one whose name ends with .gz or .zst and
 * that is not of this kind. When *stop is not 0, reading fails with CODE_STOPPED; stop may be NULL.
 */
struct text_source *text_source_open(const char *path, const volatile sig_atomic_t *stop, struct error *err);
void text_source_close(struct text_source *source);

/* Fills the buffer: fewer bytes are returned only at the end of the text. CODE_DATA, with the offset in the file, for
 * compressed data that is broken or ends early. */
ssize_t text_source_read(struct text_source *source, void *buffer, size_t bytes, struct error *err);

/* Bytes of the file that have been read: of compressed ones. */
uint64_t text_source_taken(const struct text_source *source);

#endif

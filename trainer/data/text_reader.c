#include "trainer/data/text_reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/text.h"

#define PIECES_MOST 16384 /* in a parcel */

struct text_reader {
    const struct text_inputs *texts;
    const struct encoding *encoding;
    uint64_t total, before; /* bytes of all files; of those before the current one */

    /* the current text */
    struct text_source *source;
    int next; /* text to open when source is NULL */
    bool json, ended, noticed;
    bool marked; /* a text had a byte order mark */
    char *block; /* read and not yet in a parcel: block[at, used) */
    size_t at, used, room;
    struct text_piece piece; /* the next one */
};

/* The size of all texts together. Detects unreadable texts before the start. */
static int measure_texts(struct text_reader *r, struct error *err)
{
    bool known = true;

    for (int i = 0; i < r->texts->count; i++) {
        const char *path = r->texts->paths[i];
        struct stat status;

        if ((strcmp(path, "-") == 0 ? fstat(STDIN_FILENO, &status) : stat(path, &status)) < 0)
            return error_errno(err, CODE_DATA, "cannot read %s", path);
        if (S_ISDIR(status.st_mode))
            return error_set(err, CODE_DATA, "%s is a directory; give the files in it", path);
        known = known && S_ISREG(status.st_mode);
        r->total += (uint64_t)status.st_size;
    }
    if (!known)
        r->total = 0;
    return 0;
}

struct text_reader *text_reader_create(const struct text_inputs *texts, const struct encoding *encoding,
                                       struct error *err)
{
    struct text_reader *r = error_calloc(1, sizeof *r, err);

    if (!r)
        return NULL;
    r->texts = texts;
    r->encoding = encoding;
    if (measure_texts(r, err) < 0) {
        text_reader_destroy(r);
        return NULL;
    }
    return r;
}

void text_reader_destroy(struct text_reader *r)
{
    if (!r)
        return;
    text_source_close(r->source);
    free(r->block);
    free(r);
}

/* ---- the current text -------------------------------------------------------------------------------------------- */

/* Reads until the block has `wanted` bytes, or the text ends. */
static int fill_block(struct text_reader *r, size_t wanted, struct error *err)
{
    ssize_t got;

    if (r->used - r->at >= wanted || r->ended)
        return 0;
    if (r->at > 0)
        memmove(r->block, r->block + r->at, r->used - r->at);
    r->used -= r->at;
    r->at = 0;
    if (error_reserve(&r->block, &r->room, r->used, wanted - r->used, 1, err) < 0)
        return -1;
    got = text_source_read(r->source, r->block + r->used, wanted - r->used, err);
    if (got < 0)
        return -1;
    r->used += (size_t)got;
    r->ended = r->used < wanted;
    return 0;
}

/* Whether the name ends with `end`, before what says how it is compressed. */
static bool is_named(const char *path, const char *end, bool in_any_case)
{
    size_t length = strlen(path), bytes = strlen(end);

    length -= text_ends_with(path, ".gz") ? 3 : text_ends_with(path, ".zst") ? 4 : 0;
    if (length < bytes)
        return false;
    path += length - bytes;
    return in_any_case ? strncasecmp(path, end, bytes) == 0 : strncmp(path, end, bytes) == 0;
}

/* Whether the text is JSON lines: as requested, by its name, or by its contents. A notice names the first text whose
 * name does not say so. An array is refused: the model would learn its brackets. */
static int choose_form(struct text_reader *r, const char *path, struct error *err)
{
    const struct text_inputs *texts = r->texts;
    char line[512];

    r->json = !texts->raw && (is_named(path, ".jsonl", false) || is_named(path, ".json", false) ||
                              (texts->json_input && !is_named(path, ".txt", true)));
    if (r->json || texts->raw)
        return 0;
    r->json = is_named(path, ".jsonl", true) || is_named(path, ".ndjson", true) || is_named(path, ".json", true) ||
              json_text_begins(r->block + r->at, r->used - r->at, r->ended);
    if (r->json && text_notice && !r->noticed) {
        snprintf(line, sizeof line,
                 "%.300s is read as JSON lines, and so are other texts like it; --raw takes each text as one document",
                 r->piece.place.name);
        text_notice(line);
        r->noticed = true;
    }
    if (r->json || !json_text_is_array(r->block + r->at, r->used - r->at, r->ended))
        return 0;
    return error_set(err, CODE_DATA,
                     "%s: an array of JSON objects: write one a line, as jq -c '.[]' does; --raw takes each text as "
                     "one document",
                     r->piece.place.name);
}

/* Moves behind the next `bytes`, which have so many lines. */
static void pass_bytes(struct text_reader *r, size_t bytes, uint64_t lines)
{
    r->at += bytes;
    r->piece.place.offset += bytes;
    r->piece.place.line += lines;
}

static int open_text(struct text_reader *r, struct error *err)
{
    const char *path = r->texts->paths[r->next++];
    size_t mark;

    r->source = text_source_open(path, r->texts->stop, err);
    if (!r->source)
        return -1;
    r->ended = false;
    r->at = r->used = 0;
    r->piece = (struct text_piece){.place = {.name = strcmp(path, "-") == 0 ? "standard input" : path, .line = 1}};
    if (fill_block(r, PARCEL_SIZE, err) < 0)
        return -1;
    mark = text_mark(r->block, r->used, r->marked ? NULL : r->piece.place.name);
    r->marked = r->marked || mark > 0;
    pass_bytes(r, mark, 0);
    return choose_form(r, path, err);
}

static void close_text(struct text_reader *r)
{
    r->before += text_source_taken(r->source);
    text_source_close(r->source);
    r->source = NULL;
}

/* ---- documents that are texts ------------------------------------------------------------------------------------ */

/* Moves the state behind a text. Returns the end of the last sentence that ends in it; 0 for none. */
static size_t pass_sentences(struct sentences *state, const char *text, size_t bytes)
{
    size_t last = 0;
    bool ended = true;

    for (size_t at = 0; ended;) {
        at += sentences_next(state, text + at, bytes - at, &ended);
        if (ended)
            last = at;
    }
    return last;
}

/* Bytes are cut behind a line, or, if the line is long, before a character. */
static size_t cut_bytes(const char *text, size_t bytes)
{
    const char *line = memrchr(text, '\n', bytes);
    size_t cut = bytes;

    if (line)
        return (size_t)(line + 1 - text);
    while (cut > 1 && bytes - cut < 3 && ((uint8_t)text[cut - 1] & 0xc0) == 0x80)
        cut--;
    return cut > 1 && ((uint8_t)text[cut - 1] & 0xc0) == 0xc0 ? cut - 1 : cut;
}

/* How much of the block the next piece takes; 0 if more text is needed. */
static size_t find_cut(struct text_reader *r)
{
    const char *text = r->block + r->at;
    size_t bytes = r->used - r->at, cut;
    struct sentences state = r->piece.sentences;

    if (r->encoding->sentences && (cut = pass_sentences(&state, text, bytes)) > 0) {
        r->piece.flags |= PIECE_ENDS_SEQUENCE;
        return cut;
    }
    return r->encoding->tokenizer ? tokenizer_cut(r->encoding->tokenizer, text, bytes) : cut_bytes(text, bytes);
}

static int add_text(struct text_reader *r, struct parcel *parcel, struct error *err)
{
    size_t cut = 0;
    const char *text;

    for (size_t wanted = PARCEL_SIZE; cut == 0; wanted *= 2) {
        if (wanted > PIECE_MOST)
            return error_set(err, CODE_DATA,
                             "%s:%" PRIu64 ", offset %" PRIu64 ": more than 64 MiB that this tokenizer cannot divide: "
                             "give shorter documents, as files or as JSON lines",
                             r->piece.place.name, r->piece.place.line, r->piece.place.offset);
        if (fill_block(r, wanted, err) < 0)
            return -1;
        if (r->ended)
            break;
        cut = find_cut(r);
    }
    if (cut == 0) {
        cut = r->used - r->at;
        r->piece.flags |= PIECE_ENDS_DOCUMENT;
    }
    text = r->block + r->at;
    r->piece.bytes = cut;
    if (parcel_add(parcel, &r->piece, text, err) < 0)
        return -1;
    if (r->piece.flags & PIECE_ENDS_DOCUMENT) {
        close_text(r);
        return 0;
    }
    if (r->piece.flags & PIECE_ENDS_SEQUENCE)
        r->piece.sentences = (struct sentences){0};
    else if (r->encoding->sentences)
        pass_sentences(&r->piece.sentences, text, cut);
    r->piece.flags = r->piece.flags & PIECE_ENDS_SEQUENCE ? 0 : PIECE_CONTINUES;
    pass_bytes(r, cut, text_lines(text, cut));
    return 0;
}

/* ---- documents that are lines of JSON ---------------------------------------------------------------------------- */

static bool is_blank(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
            return false;
    return true;
}

/* Passes over the rest of a line that is too long. */
static int pass_line(struct text_reader *r, struct error *err)
{
    for (;;) {
        const char *end = memchr(r->block + r->at, '\n', r->used - r->at);

        if (end) {
            pass_bytes(r, (size_t)(end + 1 - (r->block + r->at)), 1);
            return 0;
        }
        pass_bytes(r, r->used - r->at, 0);
        if (r->ended)
            return 0;
        if (fill_block(r, PARCEL_SIZE, err) < 0)
            return -1;
    }
}

static int add_line(struct text_reader *r, struct parcel *parcel, struct error *err)
{
    size_t length = 0;
    const char *text, *end = NULL;

    r->piece.flags = PIECE_JSON | PIECE_ENDS_DOCUMENT;
    for (size_t wanted = PARCEL_SIZE;; wanted = 2 * (r->used - r->at)) {
        text = r->block + r->at;
        end = r->used > r->at ? memchr(text + length, '\n', r->used - r->at - length) : NULL;
        length = end ? (size_t)(end - text) : r->used - r->at;
        if (end || r->ended || length > PIECE_MOST)
            break;
        if (fill_block(r, wanted > PARCEL_SIZE ? wanted : PARCEL_SIZE, err) < 0)
            return -1;
    }
    if (length > PIECE_MOST) {
        r->piece.flags |= PIECE_LONG;
        r->piece.bytes = 0;
        return parcel_add(parcel, &r->piece, "", err) < 0 ? -1 : pass_line(r, err);
    }
    r->piece.bytes = length;
    if (!is_blank(text, length) && parcel_add(parcel, &r->piece, text, err) < 0)
        return -1;
    pass_bytes(r, length + (end != NULL), 1);
    if (!end)
        close_text(r);
    return 0;
}

int text_reader_fill(struct text_reader *r, struct parcel *parcel, struct error *err)
{
    while (parcel->text.count < PARCEL_SIZE && parcel->piece_count < PIECES_MOST) {
        if (!r->source && r->next == r->texts->count)
            break;
        if (!r->source && open_text(r, err) < 0)
            return -1;
        if ((r->json ? add_line(r, parcel, err) : add_text(r, parcel, err)) < 0)
            return -1;
    }
    if (r->texts->progress)
        r->texts->progress(r->before + (r->source ? text_source_taken(r->source) : 0), r->total,
                           r->texts->progress_arg);
    return parcel->piece_count > 0;
}

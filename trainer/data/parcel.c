#include "trainer/data/parcel.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

struct parcel_worker {
    const struct encoding *encoding;
    struct encoder *encoder; /* NULL for bytes */
    struct text_list text;   /* of a piece, where it is not as the parcel has it */
    struct token_list ids;
};

/* ---- sentences --------------------------------------------------------------------------------------------------- */

static bool is_one_of(char byte, const char *set)
{
    return byte && strchr(set, byte);
}

static int after_space(int state, char space)
{
    switch (state) {
    case SENTENCE_STOP:
        return SENTENCE_OVER;
    case SENTENCE_TEXT:
        return space == '\n' ? SENTENCE_LINE_END : SENTENCE_TEXT;
    case SENTENCE_LINE_END:
        return space == '\n' ? SENTENCE_OVER : SENTENCE_LINE_END;
    default:
        return state;
    }
}

size_t sentences_next(struct sentences *s, const char *bytes, size_t count, bool *ended)
{
    *ended = false;
    for (size_t i = 0; i < count; i++) {
        bool space = is_one_of(bytes[i], " \t\n\v\f\r");

        if (s->state == SENTENCE_OVER && !space) {
            s->state = SENTENCE_EMPTY;
            *ended = true;
            return i;
        }
        if (space)
            s->state = after_space(s->state, bytes[i]);
        else if (is_one_of(bytes[i], ".!?") || (s->state == SENTENCE_STOP && is_one_of(bytes[i], "\"')]")))
            s->state = SENTENCE_STOP;
        else
            s->state = SENTENCE_TEXT;
    }
    return count;
}

int parcel_add(struct parcel *parcel, const struct text_piece *piece, const char *text, struct error *err)
{
    size_t at = parcel->text.count;

    if (error_reserve(&parcel->pieces, &parcel->piece_room, parcel->piece_count, 1, sizeof *piece, err) < 0 ||
        text_list_append(&parcel->text, text, piece->bytes, err) < 0)
        return -1;
    parcel->pieces[parcel->piece_count] = *piece;
    parcel->pieces[parcel->piece_count++].at = at;
    return 0;
}

void parcel_clear(struct parcel *parcel)
{
    parcel->text.count = parcel->piece_count = 0;
    parcel->token_count = parcel->run_count = parcel->bad_count = 0;
    parcel->lost = 0;
    parcel->failed = false;
}

void parcel_free(struct parcel *parcel)
{
    free(parcel->text.text);
    free(parcel->pieces);
    free(parcel->tokens);
    free(parcel->runs);
    free(parcel->bad);
}

struct parcel_worker *parcel_worker_create(const struct encoding *encoding, struct error *err)
{
    struct parcel_worker *worker = error_calloc(1, sizeof *worker, err);

    if (!worker)
        return NULL;
    worker->encoding = encoding;
    if (encoding->tokenizer && !(worker->encoder = encoder_create(encoding->tokenizer, err))) {
        parcel_worker_destroy(worker);
        return NULL;
    }
    return worker;
}

void parcel_worker_destroy(struct parcel_worker *worker)
{
    if (!worker)
        return;
    encoder_destroy(worker->encoder);
    free(worker->text.text);
    free(worker->ids.ids);
    free(worker);
}

uint64_t text_lines(const char *text, size_t bytes)
{
    const char *end = text + bytes;
    uint64_t lines = 0;

    while ((text = memchr(text, '\n', (size_t)(end - text)))) {
        lines++;
        text++;
    }
    return lines;
}

/* ---- bad places -------------------------------------------------------------------------------------------------- */

static int add_bad(struct parcel *parcel, const struct text_place *place, const char *what, struct error *err)
{
    struct bad_place *bad;

    if (error_reserve(&parcel->bad, &parcel->bad_room, parcel->bad_count, 1, sizeof *bad, err) < 0)
        return -1;
    bad = &parcel->bad[parcel->bad_count++];
    snprintf(bad->line, sizeof bad->line, "%.200s:%" PRIu64 ", offset %" PRIu64 ": %.159s", place->name, place->line,
             place->offset, what);
    return 0;
}

/* The next zero byte, or the end. */
static const char *find_zero(const char *text, const char *end)
{
    const char *zero = memchr(text, 0, (size_t)(end - text));

    return zero ? zero : end;
}

/* How much of the text is good. */
static size_t good_bytes(const char *text, size_t bytes, bool utf8)
{
    size_t end = (size_t)(find_zero(text, text + bytes) - text);

    return utf8 ? text_utf8_end(text, end) : end;
}

/* Copies a text without its bad bytes; each run of them is a bad place. */
static int clean_text(struct parcel_worker *worker, struct parcel *parcel, const struct text_piece *piece,
                      const char *text, struct error *err)
{
    const bool utf8 = worker->encoding->utf8;
    struct text_list *clean = &worker->text;
    struct text_place place = piece->place;
    const char *end = text + piece->bytes, *zero = find_zero(text, end);
    char what[100];

    clean->count = 0;
    for (size_t at = 0; at < piece->bytes;) {
        size_t good;

        if (zero < text + at)
            zero = find_zero(text + at, end); /* once for each zero: texts of 64 MiB may have many bad places */
        good = (size_t)(zero - (text + at));
        good = utf8 ? text_utf8_end(text + at, good) : good;
        if (text_list_append(clean, text + at, good, err) < 0)
            return -1;
        place.line += text_lines(text + at, good);
        at += good;
        if (at == piece->bytes)
            break;
        place.offset = piece->place.offset + at;
        if (text[at])
            snprintf(what, sizeof what, "not UTF-8: byte 0x%02x", (uint8_t)text[at]);
        else
            snprintf(what, sizeof what, "a zero byte; give plain text, not UTF-16, not a binary file");
        if (add_bad(parcel, &place, what, err) < 0)
            return -1;
        do
            at++;
        while (at < piece->bytes && good_bytes(text + at, piece->bytes - at < 4 ? piece->bytes - at : 4, utf8) == 0);
    }
    return 0;
}

static int read_json(struct parcel_worker *worker, struct parcel *parcel, const struct text_piece *piece,
                     const char *line, bool *good, struct error *err)
{
    struct text_place place = piece->place;
    struct error why;
    size_t at;

    *good = json_line_text(line, piece->bytes, worker->encoding->key, &worker->text, &at, &why) == 0;
    if (*good)
        return 0;
    if (why.code != CODE_DATA)
        return error_set(err, why.code, "%s", why.text);
    place.offset += at;
    return add_bad(parcel, &place, why.text, err);
}

int parcel_text(struct parcel_worker *worker, struct parcel *parcel, size_t index, const char **text, size_t *bytes,
                struct error *err)
{
    const struct text_piece *piece = &parcel->pieces[index];
    const char *begin = parcel->text.text + piece->at;
    bool good = true;

    *text = NULL;
    *bytes = 0;
    if (piece->flags & PIECE_LONG)
        return add_bad(parcel, &piece->place, "a line of more than 64 MiB; expected one document a line", err);
    if (piece->flags & PIECE_JSON) {
        if (read_json(worker, parcel, piece, begin, &good, err) < 0)
            return -1;
    } else if (good_bytes(begin, piece->bytes, worker->encoding->utf8) == piece->bytes) {
        *text = begin;
        *bytes = piece->bytes;
        return 0;
    } else if (clean_text(worker, parcel, piece, begin, err) < 0) {
        return -1;
    }
    if (good) {
        *text = worker->text.text;
        *bytes = worker->text.count;
    }
    return 0;
}

/* ---- what has no token ------------------------------------------------------------------------------------------- */

/* Counts what a run of the piece's text lost. It is at text[at, at + bytes), where its first character is looked for. */
static void count_loss(struct parcel_worker *worker, struct parcel *parcel, const struct text_piece *piece,
                       const char *text, size_t at, size_t bytes)
{
    const struct encode_loss loss = encoder_take_loss(worker->encoder);
    const char *found = memmem(text + at, bytes, loss.first, (size_t)loss.length); /* normalization may change it */
    uint64_t line = piece->place.line;

    if (loss.bytes > 0 && parcel->lost == 0) {
        if (!(piece->flags & PIECE_JSON))
            line += text_lines(text, found ? (size_t)(found - text) : at);
        snprintf(parcel->first_lost, sizeof parcel->first_lost, "%.250s:%" PRIu64 ", byte 0x%02x", piece->place.name,
                 line, (uint8_t)loss.first[0]);
    }
    parcel->lost += loss.bytes;
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

/* Of text[at, at + bytes), the text of the run's piece. */
static int encode_run(struct parcel_worker *worker, struct parcel *parcel, const struct token_run *run,
                      const char *text, size_t at, size_t bytes, bool continues, struct error *err)
{
    const struct encoding *encoding = worker->encoding;
    const size_t width = indexed_width(encoding->type);
    size_t count = bytes;

    if (encoding->tokenizer) {
        worker->ids.count = 0;
        if (encoder_encode(worker->encoder, text + at, bytes, ENCODE_ORDINARY | (continues ? ENCODE_CONTINUES : 0),
                           &worker->ids, err) < 0)
            return -1;
        count = worker->ids.count;
        count_loss(worker, parcel, &parcel->pieces[run->piece], text, at, bytes);
    }
    if (error_reserve(&parcel->tokens, &parcel->token_room, parcel->token_count * width, count * width, 1, err) < 0 ||
        error_reserve(&parcel->runs, &parcel->run_room, parcel->run_count, 1, sizeof *run, err) < 0)
        return -1;
    if (encoding->tokenizer)
        indexed_pack(encoding->type, worker->ids.ids, count, parcel->tokens + parcel->token_count * width);
    else if (count > 0)
        memcpy(parcel->tokens + parcel->token_count, text + at, count);
    parcel->runs[parcel->run_count] = *run;
    parcel->runs[parcel->run_count++].count = count;
    parcel->token_count += count;
    return 0;
}

static int encode_piece(struct parcel_worker *worker, struct parcel *parcel, size_t index, const char *text,
                        size_t bytes, struct error *err)
{
    const struct text_piece *piece = &parcel->pieces[index];
    struct token_run run = {.piece = index};
    struct sentences state = piece->sentences;
    bool continues = piece->flags & PIECE_CONTINUES, ended;
    size_t at = 0;

    do {
        size_t here = bytes - at;

        ended = false;
        if (worker->encoding->sentences)
            here = sentences_next(&state, text + at, bytes - at, &ended);
        run.end = ended                                ? RUN_ENDS_SEQUENCE
                  : piece->flags & PIECE_ENDS_DOCUMENT ? RUN_ENDS_DOCUMENT
                  : piece->flags & PIECE_ENDS_SEQUENCE ? RUN_ENDS_SEQUENCE
                                                       : RUN_GOES_ON;
        if (encode_run(worker, parcel, &run, text, at, here, continues, err) < 0)
            return -1;
        continues = false;
        at += here;
    } while (ended);
    return 0;
}

void parcel_encode(struct parcel_worker *worker, struct parcel *parcel)
{
    for (size_t i = 0; i < parcel->piece_count && !parcel->failed; i++) {
        const struct text_place *place = &parcel->pieces[i].place;
        const char *text;
        size_t bytes;

        if (parcel_text(worker, parcel, i, &text, &bytes, &parcel->err) < 0 ||
            (text && encode_piece(worker, parcel, i, text, bytes, &parcel->err) < 0)) {
            error_prefix(&parcel->err, "%s:%" PRIu64, place->name, place->line);
            parcel->failed = true;
        }
    }
}

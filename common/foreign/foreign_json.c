#include "common/foreign/foreign_json.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

/* A walk over the tokens of a text. All but the replaced ones is copied to `out`. */
struct rewriting {
    const char *at, *end;
    const char *copied; /* up to here */
    size_t written;
    FILE *out;    /* NULL: the text is written nowhere */
    size_t limit; /* what would be written behind so many bytes is not */
    bool failed;  /* no memory */
};

static void write_bytes(struct rewriting *r, const char *bytes, size_t count)
{
    r->written += count;
    if (r->out && fwrite(bytes, 1, count, r->out) < count)
        r->failed = true;
}

/* Puts `before` and `after` around [from, until), or, without `after`, in its place. */
static void replace_token(struct rewriting *r, const char *from, const char *until, const char *before,
                          const char *after)
{
    if (r->written + (size_t)(from - r->copied) > r->limit)
        return;
    write_bytes(r, r->copied, (size_t)(from - r->copied));
    write_bytes(r, before, strlen(before));
    if (after) {
        write_bytes(r, from, (size_t)(until - from));
        write_bytes(r, after, strlen(after));
    }
    r->copied = until;
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

static void rewrite_escapes(struct rewriting *r, const char *at, const char *end, bool is_key)
{
    while ((at = memchr(at, '\\', (size_t)(end - at)))) {
        int code = utf16_read(at, end), next = code >= 0 ? utf16_read(at + 6, end) : -1;
        bool pair = code >= 0xd800 && code < 0xdc00 && next >= 0xdc00 && next < 0xe000;

        if (!pair && ((code >= 0xd800 && code < 0xe000) || (code == 0 && is_key)))
            replace_token(r, at, at + 6, "\\ufffd", NULL);
        at += pair ? 12 : code >= 0 ? 6 : 2;
    }
}

static void pass_string(struct rewriting *r)
{
    const char *begin = r->at, *end = begin + 1, *next;

    while (end < r->end && *end != '"')
        end += *end == '\\' && r->end - end > 1 ? 2 : 1;
    r->at = end;
    if (end == r->end)
        return;
    r->at = next = end + 1;
    while (next < r->end && isspace((unsigned char)*next))
        next++;
    rewrite_escapes(r, begin, end, next < r->end && *next == ':');
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static const char *pass_digits(const char *at, const char *end)
{
    while (at < end && isdigit((unsigned char)*at))
        at++;
    return at;
}

/* The end of the number at `at`, as RFC 8259 has it; `at` if there is none. */
static const char *number_end(const char *at, const char *end, bool *is_integer)
{
    const char *digits = at + (at < end && *at == '-'), *stop, *more;

    *is_integer = true;
    stop = digits < end && *digits == '0' ? digits + 1 : pass_digits(digits, end);
    if (stop == digits)
        return at;
    if (stop < end && *stop == '.' && (more = pass_digits(stop + 1, end)) > stop + 1) {
        *is_integer = false;
        stop = more;
    }
    if (stop < end && (*stop | 32) == 'e') {
        more = stop + 1 + (end - stop > 1 && (stop[1] == '+' || stop[1] == '-'));
        if (pass_digits(more, end) > more) {
            *is_integer = false;
            stop = pass_digits(more, end);
        }
    }
    return stop;
}

static void rewrite_number(struct rewriting *r, const char *end, bool is_integer)
{
    char *number = strndup(r->at, (size_t)(end - r->at));

    if (!number) {
        r->failed = true;
        return;
    }
    errno = 0;
    if (is_integer)
        strtoll(number, NULL, 10);
    if (isinf(strtod(number, NULL)))
        replace_token(r, r->at, end, "[\"", "\"]");
    else if (is_integer && errno == ERANGE)
        replace_token(r, r->at, end, "", ".0");
    free(number);
}

static void pass_scalar(struct rewriting *r)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    bool is_integer;
    const char *end;

    for (int i = 0; i < 3; i++) {
        size_t length = strlen(words[i]);

        if ((size_t)(r->end - r->at) >= length && memcmp(r->at, words[i], length) == 0) {
            replace_token(r, r->at, r->at + length, "[\"", "\"]");
            r->at += length;
            return;
        }
    }
    end = number_end(r->at, r->end, &is_integer);
    if (end - r->at >= (is_integer ? 19 : 5))
        rewrite_number(r, end, is_integer);
    r->at = end > r->at ? end : r->at + 1;
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static void rewrite_text(struct rewriting *r)
{
    size_t mark = text_mark(r->at, (size_t)(r->end - r->at), NULL);

    if (mark > 0)
        replace_token(r, r->at, r->at + mark, "", NULL);
    r->at += mark;
    while (r->at < r->end)
        if (*r->at == '"')
            pass_string(r);
        else
            pass_scalar(r);
}

/* Makes the place in the rewritten text that in the text. */
static void find_place(const char *text, size_t bytes, json_error_t *where)
{
    struct rewriting r = {.at = text, .end = text + bytes, .copied = text, .limit = (size_t)where->position};

    rewrite_text(&r);
    where->position = (int)(r.copied - text) + (r.written < r.limit ? (int)(r.limit - r.written) : 0);
    where->line = 1;
    where->column = 0;
    for (int i = 0; i < where->position && (size_t)i < bytes; i++) {
        where->column = text[i] == '\n' ? 0 : where->column + ((text[i] & 0xc0) != 0x80);
        where->line += text[i] == '\n';
    }
}

json_t *foreign_json_load(const char *text, size_t bytes, size_t flags, json_error_t *where)
{
    struct rewriting r = {.at = text, .end = text + bytes, .copied = text, .limit = SIZE_MAX};
    char *rewritten = NULL;
    size_t size = 0;
    json_t *json;

    r.out = open_memstream(&rewritten, &size);
    r.failed = !r.out;
    if (r.out) {
        rewrite_text(&r);
        if (r.copied > text)
            write_bytes(&r, r.copied, (size_t)(r.end - r.copied));
        r.failed |= fclose(r.out) != 0;
    }
    json =
        r.failed ? NULL : json_loadb(r.copied > text ? rewritten : text, r.copied > text ? size : bytes, flags, where);
    if (r.failed)
        *where = (json_error_t){.line = 1, .text = "out of memory"};
    else if (!json && r.copied > text)
        find_place(text, bytes, where);
    free(rewritten);
    return json;
}

json_t *foreign_json_object(const char *text, size_t bytes, const char *name, struct error *err)
{
    json_error_t where;
    json_t *json = foreign_json_load(text, bytes, JSON_ALLOW_NUL, &where);

    if (!json)
        error_set(err, CODE_DATA, "%s:%d:%d: %s", name, where.line, where.column, where.text);
    else if (!json_is_object(json)) {
        error_set(err, CODE_DATA, "%s: must be an object", name);
        json_decref(json);
        json = NULL;
    }
    return json;
}

json_t *foreign_json_read(const char *path, size_t most, struct error *err)
{
    size_t bytes;
    char *text = text_load(path, most, &bytes, err);
    json_t *json = text ? foreign_json_object(text, bytes, path, err) : NULL;

    free(text);
    return json;
}

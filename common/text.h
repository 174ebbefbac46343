/* text.h - parses numbers, reads whole text files, and writes JSON to a stream. */
#ifndef MUSTER_COMMON_TEXT_H
#define MUSTER_COMMON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/error.h"

/* True when the whole text is a decimal integer from least to most. *value is set only then. */
bool text_to_long(const char *text, long least, long most, long *value);

/* The same for a finite number, "0.5" or "1e-3". */
bool text_to_double(const char *text, double least, double most, double *value);

/* The same for a time above 0 of at most a century: "90", "90s", "30m", "24h" or "7d"; *seconds. */
bool text_to_seconds(const char *text, double *seconds);

/*
 * Read an unsigned decimal integer of at most `most` at *text, and move *text behind it. False if there is none or it
 * is larger; *text and *value are then unchanged.
 */
bool text_take_number(const char **text, long most, long *value);

/*
 * A whole file of at most `most` bytes, malloc'ed and zero-terminated. *bytes may be NULL. Reads to the end of the file
 * whatever its size, since files of /proc and /sys have size 0. CODE_DATA for a longer file and for anything but a
 * regular file (a FIFO, a directory); CODE_IO, with errno, for a file that cannot be read.
 */
char *text_read_file(const char *path, size_t most, size_t *bytes, struct error *err);

/*
 * text_mark returns the size of the byte order mark, U+FEFF, at the start of a text: 3, or 0 without one. Every reader of
 * a user's text drops it. text_notice gets a line that says so and begins with `name`, unless one of the two is NULL.
 * options_read makes text_notice print on standard error.
 */
extern void (*text_notice)(const char *line);
size_t text_mark(const char *text, size_t bytes, const char *name);

/* As text_read_file, without the byte order mark. */
char *text_load(const char *path, size_t most, size_t *bytes, struct error *err);

/*
 * Append a line, as printf writes it, to *count lines in *lines, malloc'ed; free them with text_free_lines. *lines and
 * *count begin as NULL and 0, and only this function changes them. False, and nothing is appended, when out of memory.
 */
bool text_add_line(char ***lines, size_t *count, const char *format, ...) __attribute__((format(printf, 3, 4)));
void text_free_lines(char **lines, size_t count);

/* "1.5 GiB", "512 B"; returns `text`. */
#define TEXT_BYTES_SIZE 32
const char *text_bytes(char text[TEXT_BYTES_SIZE], uint64_t bytes);

bool text_ends_with(const char *text, const char *end);

/* True if it begins with one of these; NULL is behind the last, and is no list. */
bool text_begins_with(const char *text, const char *const *beginnings);

/* Bytes of the name of an environment variable that `text` begins with; 0 for none. */
size_t text_name_length(const char *text);

/* ---- UTF-8 (RFC 3629) -------------------------------------------------------------------------------------------- */

#define CODE_POINTS 0x110000
#define REPLACEMENT 0xfffd

/*
 * The code point at text, which is before end. Returns its length. A byte that begins no valid sequence is REPLACEMENT,
 * with length 1.
 */
static inline int utf8_next(const uint8_t *text, const uint8_t *end, uint32_t *code)
{
    uint32_t first = text[0];
    long room = end - text;

    if (first < 0x80) {
        *code = first;
        return 1;
    }
    if (first >= 0xc2 && first < 0xe0 && room >= 2 && (text[1] & 0xc0) == 0x80) {
        *code = (first & 0x1f) << 6 | (text[1] & 0x3f);
        return 2;
    }
    if (first >= 0xe0 && first < 0xf0 && room >= 3 && (text[1] & 0xc0) == 0x80 && (text[2] & 0xc0) == 0x80) {
        *code = (first & 0xf) << 12 | (uint32_t)(text[1] & 0x3f) << 6 | (text[2] & 0x3f);
        if (*code >= 0x800 && (*code < 0xd800 || *code > 0xdfff))
            return 3;
    }
    if (first >= 0xf0 && first < 0xf5 && room >= 4 && (text[1] & 0xc0) == 0x80 && (text[2] & 0xc0) == 0x80 &&
        (text[3] & 0xc0) == 0x80) {
        *code =
            (first & 7) << 18 | (uint32_t)(text[1] & 0x3f) << 12 | (uint32_t)(text[2] & 0x3f) << 6 | (text[3] & 0x3f);
        if (*code >= 0x10000 && *code < CODE_POINTS)
            return 4;
    }
    *code = REPLACEMENT;
    return 1;
}

/* The code of JSON's escape \uXXXX at `at`, before `end`; -1 for anything else. */
int utf16_read(const char *at, const char *end);

/* Writes a code point, at most 4 bytes. Returns their number. */
int utf8_write(uint32_t code, char *out);

/* Bytes of the character at `text`, which is zero-terminated; 0 where there is none. */
size_t text_utf8_length(const char *text);

/* The offset of the first byte that is not UTF-8; `bytes` if all are. */
size_t text_utf8_end(const char *text, size_t bytes);

/* JSON without jansson, for the plugin: json-c, which Slurm's daemons load, has functions of the same names as that. */

/* A string with its quotes; NULL is null. Bytes that are not UTF-8 become U+FFFD. */
void json_quote(FILE *out, const char *text);

/* ,"key":"value" and ,"key":3 - the caller writes the first key of an object. */
void json_string_member(FILE *out, const char *key, const char *value);
void json_number_member(FILE *out, const char *key, long value);
void json_real_member(FILE *out, const char *key, double value); /* null if it is not finite */

#endif

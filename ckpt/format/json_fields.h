/*
 * json_fields.h - members of JSON objects: typed reads, structs as objects, and files of other releases.
 *
 * target.json, the parts and manifest.json each name their format, its number ("version") and the release that wrote
 * them ("muster"). A file with another number, or with other members than its format has, was written by another
 * release: its format is *unknown*, which is CODE_CONFIG, where damage is CODE_DATA. Files of an unknown format are
 * left alone: nothing beside them is drained, renamed or removed. doc/COMPATIBILITY.md has the rules for changes.
 */
#ifndef MUSTER_CKPT_FORMAT_JSON_FIELDS_H
#define MUSTER_CKPT_FORMAT_JSON_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ckpt/file/file.h"

/*
 * One member each; 0, or -1 with CODE_DATA and "key must be ...". A missing member is one of the wrong type, and so is
 * any member of a value that is no object.
 */

/* An integer of 0 to `most`. */
int json_get_integer(json_t *object, const char *key, uint64_t most, uint64_t *out, struct error *err);
int json_get_int(json_t *object, const char *key, int *out, struct error *err);

/* A string shorter than `size`, copied. */
int json_get_string(json_t *object, const char *key, char *out, size_t size, struct error *err);

/* A borrowed reference. */
int json_get_array(json_t *object, const char *key, json_t **out, struct error *err);

/* A string of exactly that many lower-case hexadecimal digits, at most 16; and the digits alone. */
int json_get_hex(json_t *object, const char *key, int digits, uint64_t *out, struct error *err);
int json_parse_hex(const char *text, int digits, uint64_t *out);

/* A new JSON string, with '?' for every byte that is not ASCII where the text is not UTF-8. NULL without memory. */
json_t *json_text(const char *text);

/* A struct's members that are members of an object by the same name. Tables end with an entry without a name. */
struct json_field {
    const char *name;
    enum { FIELD_COUNT, FIELD_INT, FIELD_DOUBLE, FIELD_SEED, FIELD_TEXT } kind;
    size_t offset, size;
    bool later; /* added to the format later: these members are all there or all missing */
};

/* FIELD_COUNT is a uint64_t of at most 63 bits, FIELD_SEED one of 64 bits in 16 hexadecimal digits. */
#define JSON_PLACE(type, member) offsetof(type, member), sizeof(((type *)NULL)->member)

/* A new object, or NULL. */
json_t *json_write_fields(const struct json_field *fields, const void *from);
int json_read_fields(json_t *object, const struct json_field *fields, void *to, struct error *err);

/* Write a file of JSON with jansson's flags; takes the value. NULL, of a failure before, is an error too. */
int json_write_file(const struct directory *directory, const char *name, json_t *json, size_t flags, struct error *err);

/* A file of at most `most` bytes that is JSON, or NULL. */
json_t *json_read_file(const struct directory *directory, const char *name, size_t most, struct error *err);

/* A kind of file, and the number of its format that this release writes. It reads all numbers from 1 to that. */
struct file_format {
    const char *name;
    int number;
};

/* Check "format" and "version". */
int format_check(json_t *object, const struct file_format *format, struct error *err);

/* Check that the object has these members, ended by NULL, and these fields, and no others; either may be NULL. */
int format_check_members(json_t *object, const char *const *members, const struct json_field *fields,
                         struct error *err);

/* Adds to an unknown format's error: the release and format that wrote the file, and the format that this one knows. */
int format_explain(json_t *object, const struct file_format *known, struct error *err);

#endif

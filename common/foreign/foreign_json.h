/*
 * foreign_json.h - reads JSON that other programs wrote. What Python's json module takes is taken: jansson holds no
 * integers above 64 bits, no NaN, and refuses the whole file for one. A caller checks the values that it needs; others
 * do not matter.
 *
 *   in the file                               becomes
 *   an integer above 64 bits                  a real
 *   NaN, Infinity, and reals above 1.8e308    a list of one string, ["NaN"]: no caller needs one
 *   half of a surrogate pair; \u0000 in keys  U+FFFD
 *   a key that occurs twice                   the last value, unless the flags refuse it
 *   a byte order mark                         nothing (text_mark)
 */
#ifndef MUSTER_COMMON_FOREIGN_FOREIGN_JSON_H
#define MUSTER_COMMON_FOREIGN_FOREIGN_JSON_H

#include <jansson.h>

#include "common/error.h"

/* As json_loadb. The place in *where is that in `text`. */
json_t *foreign_json_load(const char *text, size_t bytes, size_t flags, json_error_t *where);

/* The object that is all of `text`, the contents of the file `name`. NULL and CODE_DATA for anything else. */
json_t *foreign_json_object(const char *text, size_t bytes, const char *name, struct error *err);

/* The same of a file of at most `most` bytes. CODE_IO if it cannot be read. */
json_t *foreign_json_read(const char *path, size_t most, struct error *err);

#endif

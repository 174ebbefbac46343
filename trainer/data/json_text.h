/*
 * json_text.h - the text of a line of JSON lines: of an object, the string that has a given key.
 *
 * The whole line is checked as RFC 8259 has it, and only the string is kept: five to ten times faster than a library
 * that builds the object. Of a key that occurs twice the last value counts, as in Python's json.
 */
#ifndef MUSTER_TRAINER_DATA_JSON_TEXT_H
#define MUSTER_TRAINER_DATA_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"
#include "tokenizer/tokenizer.h"

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

#endif

/* text.h - numbers in texts, and whole text files. */
#ifndef MUSTER_COMMON_TEXT_H
#define MUSTER_COMMON_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

/* True when the whole text is a decimal integer from least to most. *value is set only then. */
bool text_to_long(const char *text, long least, long most, long *value);

/* The same for a finite number, "0.5" or "1e-3". */
bool text_to_double(const char *text, double least, double most, double *value);

/*
 * Read an integer without sign at *text, at most `most`, and move *text behind it. False when there is none there or it
 * is larger; *text and *value are then unchanged.
 */
bool text_take_number(const char **text, long most, long *value);

/*
 * A whole file of at most `most` bytes, malloc'ed, with a zero byte behind it. *bytes may be NULL. Reads to the end of
 * the file, so that files of /proc and /sys can be read too. Anything but a regular file (a FIFO, a directory) and a
 * longer file is CODE_DATA; a file that cannot be read is CODE_IO, and errno says why.
 */
char *text_read_file(const char *path, size_t most, size_t *bytes, struct error *err);

/*
 * Append a line, as printf writes it, to *count lines in *lines, malloc'ed; free them with text_free_lines. False, and
 * nothing is appended, when out of memory.
 */
bool text_add_line(char ***lines, size_t *count, const char *format, ...) __attribute__((format(printf, 3, 4)));
void text_free_lines(char **lines, size_t count);

#endif

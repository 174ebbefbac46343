/* text.h - parses numbers, and reads whole text files. */
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
 * Append a line, as printf writes it, to *count lines in *lines, malloc'ed; free them with text_free_lines. False, and
 * nothing is appended, when out of memory.
 */
bool text_add_line(char ***lines, size_t *count, const char *format, ...) __attribute__((format(printf, 3, 4)));
void text_free_lines(char **lines, size_t count);

#endif

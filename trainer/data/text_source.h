/*
 * text_source.h - reads a text from beginning to end: plain, gzip (RFC 1952, with any number of members) or Zstandard
 * (RFC 8878, with any number of frames). Which of them it is, the first bytes tell, so that standard input may be
 * compressed, too.
 */
#ifndef MUSTER_TRAINER_DATA_TEXT_SOURCE_H
#define MUSTER_TRAINER_DATA_TEXT_SOURCE_H

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"

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

/* io.h - reads and writes of whole ranges, continued after interrupted and short system calls; and files of output. */
#ifndef MUSTER_COMMON_IO_H
#define MUSTER_COMMON_IO_H

#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#include "common/error.h"

/* -1 with errno. */
int io_write_all(int fd, const void *data, size_t bytes);

/* Reads at `offset`. Returns the bytes read, fewer than asked for only at the end of the file; or -1 with errno. */
ssize_t io_read_at(int fd, void *buffer, size_t bytes, off_t offset);

/* `name` from the root, into path; CODE_CONFIG if it has no room there. */
int io_absolute(char *path, size_t size, const char *name, struct error *err);

/* fsync of the directory that holds `path`: a new or renamed file is on disk only after that. -1 with errno. */
int io_sync_parent(const char *path);

/*
 * A new file that a program writes for its user. io_close_file returns rc, or -1 if the file could not be written; then
 * it removes the incomplete file, but nothing that is not a regular file, such as /dev/full.
 */
FILE *io_create_file(const char *path, struct error *err);
int io_close_file(FILE *out, const char *path, int rc, struct error *err);

#endif

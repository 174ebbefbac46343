/*
 * file.h - the few things that checkpoints do with files, done so that a crash at any moment leaves the old or the new.
 *
 * Names are taken beneath an open directory and symbolic links are not followed, so that no name leads out of it.
 * `path` is the directory's, for messages only.
 */
#ifndef MUSTER_CKPT_FILE_H
#define MUSTER_CKPT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct directory {
    int fd; /* -1 when closed */
    char path[4096];
};

/* Open a directory; `beneath` NULL: any path; else a name beneath it, not through a link. -1 with errno and CODE_IO. */
int directory_open(struct directory *directory, const struct directory *beneath, const char *name, struct error *err);
void directory_close(struct directory *directory);
int directory_sync(const struct directory *directory, struct error *err);

/* mkdir -p, with an fsync of each parent of what was made. */
int directory_make_path(const char *path, struct error *err);

/* Call `each` for every name but "." and "..", until it returns other than 0; returns that, or -1 on failure. */
int directory_each(const struct directory *directory, int (*each)(const char *name, void *arg), void *arg,
                   struct error *err);

/* A name for a file that is not finished: starts with `stem`, ends with ".tmp", and nobody else has it. */
void file_temporary_name(char *name, size_t size, const char *stem);

/* Write a whole small file: temporary name, fsync, rename. The directory is not synced. */
int file_write(const struct directory *directory, const char *name, const void *data, size_t bytes, struct error *err);

/* Open for reading; anything but a regular file is CODE_DATA. Returns the descriptor. O_DIRECT where `direct` and
 * possible. */
int file_open(const struct directory *directory, const char *name, bool direct, uint64_t *bytes, struct error *err);

/* Read exactly that; a file that ends before is CODE_DATA. The message starts with the path and name. */
int file_read_at(int fd, void *buffer, size_t bytes, uint64_t offset, const char *path, const char *name,
                 struct error *err);

/* A whole file of at most `most` bytes, malloc'ed and ended by a zero byte. */
char *file_read(const struct directory *directory, const char *name, size_t most, size_t *bytes, struct error *err);

/* The error of a failed write: with what was wanted and what is free if the disk is full. Takes errno. */
int file_write_failed(const struct directory *directory, const char *name, uint64_t wanted, struct error *err);

/*
 * Make .trash while there is room for it: a full disk is emptied through it. Where another user's .trash cannot be
 * written to, here and below it is .trash-UID.
 */
int file_make_trash(const struct directory *directory, struct error *err);

/*
 * Remove the entry `name` with all that is in it: renamed into .trash first and that made durable, so that nobody ever
 * sees half of it under its own name. Also empties what earlier calls left in .trash. A name that is gone is fine.
 */
int file_trash(const struct directory *directory, const char *name, struct error *err);

/* Remove all that is in a directory, where nobody minds to see half of it: needs no room, as .trash would. */
void file_remove_all(const struct directory *directory);

/* Remove what a file_trash that was cut off left in .trash. What cannot be removed stays, and nobody is told. */
void file_empty_trash(const struct directory *directory);

#endif

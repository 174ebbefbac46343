/*
 * file.h - files and directories, changed so that a crash at any moment leaves the old or the new state.
 *
 * Names are relative to an open directory, which decides whether they may be symbolic links. In a user's directory they
 * may: a checkpoint that was moved to another file system, a model in Hugging Face's cache. In the stage, and in
 * directories that muster makes and removes, they may not, so that no name leads out of these. Writes, renames and
 * removals act on the name itself, never on the target of a link. `path` is the directory's, for messages only.
 */
#ifndef MUSTER_CKPT_FILE_FILE_H
#define MUSTER_CKPT_FILE_FILE_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct directory {
    int fd;     /* -1 when closed */
    bool links; /* symbolic links in it are followed */
    char path[4096];
};

/*
 * Open a directory; `beneath` NULL: any path, of a user's directory; else a name beneath it, with the same `links`. -1
 * with errno and CODE_IO. ENOENT is of a name that is not there: of a link to no directory it is ELOOP.
 */
int directory_open(struct directory *directory, const struct directory *beneath, const char *name, struct error *err);

/* The same for a directory that muster has made there: neither it nor what is in it may be a link. */
int directory_open_made(struct directory *directory, const struct directory *beneath, const char *name,
                        struct error *err);
void directory_close(struct directory *directory);
int directory_sync(const struct directory *directory, struct error *err);

/* mkdir -p, with an fsync of the parent of each new directory. */
int directory_make_path(const char *path, struct error *err);

/*
 * The names in a directory but "." and "..":
 *
 *     struct listing listing = listing_open(directory);
 *
 *     while ((name = listing_next(&listing)))
 *         ...
 *     return listing_close(&listing, err);
 */
struct listing {
    DIR *stream; /* NULL where it could not be opened: then it has no names */
    const struct directory *directory;
    int failure; /* errno, or 0 */
    /* of listing_keep */
    void **items;
    size_t *count, room;
};

struct listing listing_open(const struct directory *directory);

/* Valid until the next call; NULL at the end. */
const char *listing_next(struct listing *listing);

/* Append an item to the caller's malloc'ed array of *count, which is NULL at first; listing_close frees it on
 * failure. */
void listing_keep(struct listing *listing, void **items, size_t *count, const void *item, size_t size);

/* 0, or -1 when the directory could not be opened or read to the end, or memory was short. */
int listing_close(struct listing *listing, struct error *err);

/* Whether there is an entry of that name, be it a link that leads nowhere. */
bool file_exists(const struct directory *directory, const char *name);

/* A name for a file that is not finished: starts with `stem`, ends with ".tmp", unique. */
void file_temporary_name(char *name, size_t size, const char *stem);

/* Write a whole small file: temporary name, fsync, rename. The directory is not synced. */
int file_write(const struct directory *directory, const char *name, const void *data, size_t bytes, struct error *err);

/* Open for reading; anything but a regular file is CODE_DATA, and so is a missing one, but not a link that leads
 * nowhere. Returns the descriptor. */
int file_open(const struct directory *directory, const char *name, uint64_t *bytes, struct error *err);

/* Read exactly that; a file that ends before is CODE_DATA. The message starts with the path and name. */
int file_read_at(int fd, void *buffer, size_t bytes, uint64_t offset, const char *path, const char *name,
                 struct error *err);

/* A whole file of at most `most` bytes, malloc'ed and ended by a zero byte. */
char *file_read(const struct directory *directory, const char *name, size_t most, size_t *bytes, struct error *err);

/* The error of a failed write, from errno; with the wanted and the free bytes if the disk is full. Returns -1. */
int file_write_failed(const struct directory *directory, const char *name, uint64_t wanted, struct error *err);

#define FILE_TRASH_SIZE 32

/*
 * Make .trash while there is room for it: a full disk is emptied through it. Where another user's .trash cannot be
 * written to, here and below it is .trash-UID: who continues a colleague's run must be able to remove his own files.
 */
int file_make_trash(const struct directory *directory, char name[static FILE_TRASH_SIZE], struct error *err);

/*
 * Remove the entry `name` with all that is in it. It is renamed into .trash first and that made durable, so that half
 * of it is never visible under its own name. Also empties what earlier calls left in .trash. A missing name is no
 * failure.
 */
int file_trash(const struct directory *directory, const char *name, struct error *err);

/* Remove all entries of a directory, in place: needs no room, as .trash would. */
void file_remove_all(const struct directory *directory);

/* Remove what an interrupted file_trash left in .trash. What cannot be removed stays, without an error. */
void file_empty_trash(const struct directory *directory);

#endif

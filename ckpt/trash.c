/* trash.c - removing whole directories so that nobody ever sees half of one; file_trash of file.h. */
#include "config.h"

#include "ckpt/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRASH      ".trash"
#define TRASH_SIZE 32
#define MAX_DEPTH  8 /* a checkpoint has one level; whatever is deeper is not ours to follow */

struct removal {
    const struct directory *directory;
    int depth;
};

/* Remove one entry, whatever it is. Someone else may be removing the same tree: what is gone is fine. */
static int remove_entry(const char *name, void *arg)
{
    const struct removal *removal = arg;
    struct removal inner = {.depth = removal->depth + 1};
    struct directory directory;

    if (unlinkat(removal->directory->fd, name, 0) == 0 || errno == ENOENT)
        return 0;
    if ((errno != EISDIR && errno != EPERM) || inner.depth > MAX_DEPTH)
        return 0;
    if (directory_open(&directory, removal->directory, name, NULL) == 0) {
        inner.directory = &directory;
        directory_each(&directory, remove_entry, &inner, NULL);
        directory_close(&directory);
    }
    unlinkat(removal->directory->fd, name, AT_REMOVEDIR);
    return 0;
}

void file_remove_all(const struct directory *directory)
{
    struct removal all = {.directory = directory};

    directory_each(directory, remove_entry, &all, NULL);
}

/*
 * .trash; or one of our own, .trash-UID, where another user has made that and left it to himself: whoever takes over a
 * colleague's run must be able to remove at least what is his.
 */
static int make_trash(const struct directory *directory, char name[static TRASH_SIZE], struct error *err)
{
    snprintf(name, TRASH_SIZE, TRASH);
    if (mkdirat(directory->fd, name, 0777) < 0 && errno != EEXIST)
        return error_errno(err, CODE_IO, "%s/%s: cannot make the directory", directory->path, name);
    if (faccessat(directory->fd, name, W_OK | X_OK, AT_EACCESS) == 0 || errno != EACCES)
        return 0;
    snprintf(name, TRASH_SIZE, TRASH "-%u", (unsigned)geteuid());
    if (mkdirat(directory->fd, name, 0777) < 0 && errno != EEXIST)
        return error_errno(err, CODE_IO, "%s/%s: cannot make the directory", directory->path, name);
    return 0;
}

int file_make_trash(const struct directory *directory, struct error *err)
{
    char name[TRASH_SIZE];

    return make_trash(directory, name, err);
}

static void empty(const struct directory *directory, const char *name)
{
    struct directory trash;
    struct removal all = {.directory = &trash};

    if (directory_open(&trash, directory, name, NULL) < 0)
        return;
    if (directory_sync(directory, NULL) == 0) /* for the same reason as in file_trash */
        directory_each(&trash, remove_entry, &all, NULL);
    directory_close(&trash);
}

void file_empty_trash(const struct directory *directory)
{
    char own[TRASH_SIZE];

    snprintf(own, sizeof own, TRASH "-%u", (unsigned)geteuid());
    empty(directory, TRASH);
    empty(directory, own);
}

int file_trash(const struct directory *directory, const char *name, struct error *err)
{
    struct directory trash;
    struct removal all = {.directory = &trash};
    char own[TRASH_SIZE], unique[256];
    int result = -1;

    if (make_trash(directory, own, err) < 0 || directory_open(&trash, directory, own, err) < 0)
        return -1;
    file_temporary_name(unique, sizeof unique, name);
    if (renameat(directory->fd, name, trash.fd, unique) < 0 && errno != ENOENT) {
        error_errno(err, CODE_IO, "%s/%s: cannot move into %s", directory->path, name, own);
        goto out;
    }
    /* Before anything is removed: else a crash could undo the rename and keep the removals. */
    if (directory_sync(directory, err) < 0 || directory_sync(&trash, err) < 0)
        goto out;
    directory_each(&trash, remove_entry, &all, NULL); /* what cannot be removed now will be next time */
    result = 0;
out:
    directory_close(&trash);
    return result;
}

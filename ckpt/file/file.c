#include "ckpt/file/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/io.h"

/*
 * The error of a failed open, from errno. If the name is a link, adds where it leads: "No such file" of a name that is
 * there misleads. ELOOP instead of ENOENT then. Returns -1.
 */
static int open_failed(int fd, const char *name, const char *path, enum exit_code code, struct error *err)
{
    char target[256];
    ssize_t length;
    int saved = errno;

    length = readlinkat(fd, name, target, sizeof target - 1);
    errno = saved;
    if (length > 0) {
        error_errno(err, code, "%s, a link to %.*s", path, (int)length, target);
        saved = saved == ENOENT || saved == ENOTDIR ? ELOOP : saved;
    } else {
        error_errno(err, code, "%s", path);
    }
    errno = saved; /* callers check for ENOENT */
    return -1;
}

static int open_beneath(struct directory *directory, const struct directory *beneath, const char *name, bool links,
                        struct error *err)
{
    int length = beneath ? snprintf(directory->path, sizeof directory->path, "%s/%s", beneath->path, name)
                         : snprintf(directory->path, sizeof directory->path, "%s", name);
    int at = beneath ? beneath->fd : AT_FDCWD;

    directory->fd = -1;
    directory->links = links;
    if (length >= (int)sizeof directory->path) {
        errno = ENAMETOOLONG;
        return error_errno(err, CODE_IO, "%.100s...", name);
    }
    directory->fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (links ? 0 : O_NOFOLLOW));
    return directory->fd < 0 ? open_failed(at, name, directory->path, CODE_IO, err) : 0;
}

int directory_open(struct directory *directory, const struct directory *beneath, const char *name, struct error *err)
{
    return open_beneath(directory, beneath, name, !beneath || beneath->links, err);
}

int directory_open_made(struct directory *directory, const struct directory *beneath, const char *name,
                        struct error *err)
{
    return open_beneath(directory, beneath, name, false, err);
}

void directory_close(struct directory *directory)
{
    if (directory->fd >= 0)
        close(directory->fd);
    directory->fd = -1;
}

int directory_sync(const struct directory *directory, struct error *err)
{
    return fsync(directory->fd) < 0 ? error_errno(err, CODE_IO, "%s: cannot sync", directory->path) : 0;
}

/*
 * Whether mkdir() failed because the directory exists; keeps errno. A read-only file system gives EROFS for all names.
 */
static bool stands_already(const char *path)
{
    int why = errno;
    bool stands = why == EEXIST || (why == EROFS && access(path, F_OK) == 0);

    errno = why;
    return stands;
}

int directory_make_path(const char *path, struct error *err)
{
    char part[4096];

    if (strlen(path) >= sizeof part) {
        errno = ENAMETOOLONG;
        return error_errno(err, CODE_IO, "%.100s...", path);
    }
    for (size_t end = strspn(path, "/"); path[end];) {
        end += strcspn(path + end, "/");
        snprintf(part, sizeof part, "%.*s", (int)end, path);
        end += strspn(path + end, "/");
        if (mkdir(part, 0777) == 0) {
            if (io_sync_parent(part) < 0)
                return error_errno(err, CODE_IO, "%s: cannot sync its directory", part);
        } else if (!stands_already(part)) {
            return error_errno(err, CODE_IO, "%s: cannot make the directory", part);
        }
    }
    return 0;
}

struct listing listing_open(const struct directory *directory)
{
    int fd = openat(directory->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct listing listing = {.directory = directory, .stream = fd < 0 ? NULL : fdopendir(fd)};

    listing.failure = listing.stream ? 0 : errno;
    if (fd >= 0 && !listing.stream)
        close(fd);
    return listing;
}

const char *listing_next(struct listing *listing)
{
    struct dirent *entry;

    if (listing->failure)
        return NULL;
    errno = 0;
    do
        entry = readdir(listing->stream);
    while (entry && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
    if (!entry)
        listing->failure = errno;
    return entry ? entry->d_name : NULL;
}

void listing_keep(struct listing *listing, void **items, size_t *count, const void *item, size_t size)
{
    listing->items = items;
    listing->count = count;
    if (error_reserve(items, &listing->room, *count, 1, size, NULL) < 0)
        listing->failure = errno;
    else
        memcpy((char *)*items + (*count)++ * size, item, size);
}

int listing_close(struct listing *listing, struct error *err)
{
    if (listing->stream)
        closedir(listing->stream);
    if (listing->failure && listing->items) {
        free(*listing->items);
        *listing->items = NULL;
        *listing->count = 0;
    }
    errno = listing->failure;
    return errno ? error_errno(err, CODE_IO, "%s: cannot list", listing->directory->path) : 0;
}

bool file_exists(const struct directory *directory, const char *name)
{
    return faccessat(directory->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void file_temporary_name(char *name, size_t size, const char *stem)
{
    uint64_t random;

    /* Processes on several nodes may do this at once: a pid would not do. */
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        random = (uint64_t)getpid();
    snprintf(name, size, "%s.%016" PRIx64 ".tmp", stem, random);
}

int file_write_failed(const struct directory *directory, const char *name, uint64_t wanted, struct error *err)
{
    int saved = errno;
    struct statvfs fs;
    bool known = (saved == ENOSPC || saved == EDQUOT) && fstatvfs(directory->fd, &fs) == 0;
    bool inodes = known && fs.f_files > 0; /* btrfs counts none */
    uint64_t free = known ? (uint64_t)fs.f_bavail * fs.f_frsize : 0;

    errno = saved;
    if (!known)
        return error_errno(err, CODE_IO, "%s/%s: cannot write", directory->path, name);
    if (wanted == 0 && inodes) /* it was no file's data that found no room */
        return error_errno(err, CODE_IO, "%s/%s: cannot be made, %" PRIu64 " inodes and %" PRIu64 " bytes free",
                           directory->path, name, (uint64_t)fs.f_favail, free);
    /* Not every file system reports quotas. */
    return error_errno(err, CODE_IO, "%s/%s: %" PRIu64 " bytes needed, %" PRIu64 " free%s", directory->path, name,
                       wanted, free,
                       saved == EDQUOT              ? " on the file system"
                       : inodes && fs.f_favail == 0 ? ", but no inode"
                                                    : "");
}

int file_write(const struct directory *directory, const char *name, const void *data, size_t bytes, struct error *err)
{
    char temporary[256];
    int fd, result = 0;

    file_temporary_name(temporary, sizeof temporary, name);
    fd = openat(directory->fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return file_write_failed(directory, name, bytes, err);
    if (io_write_all(fd, data, bytes) < 0 || fsync(fd) < 0)
        result = file_write_failed(directory, name, bytes, err);
    if (close(fd) < 0 && result == 0)
        result = file_write_failed(directory, name, bytes, err);
    if (result == 0 && renameat(directory->fd, temporary, directory->fd, name) < 0)
        result = file_write_failed(directory, name, bytes, err);
    if (result < 0)
        unlinkat(directory->fd, temporary, 0);
    return result;
}

/* What cannot be opened may be whole; only what is not there is known to be missing. */
static int file_open_failed(const struct directory *directory, const char *name, struct error *err)
{
    int failure = errno;
    bool missing = failure == ENOENT && !file_exists(directory, name) && errno == ENOENT;
    bool refused = failure == ELOOP && !directory->links; /* by O_NOFOLLOW */
    char path[sizeof directory->path + 256];

    snprintf(path, sizeof path, "%s/%s", directory->path, name);
    errno = failure;
    return open_failed(directory->fd, name, path, missing || refused ? CODE_DATA : CODE_IO, err);
}

int file_open(const struct directory *directory, const char *name, uint64_t *bytes, struct error *err)
{
    /* O_NONBLOCK: a FIFO of that name must not hang us. It means nothing to a regular file. */
    int fd = openat(directory->fd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | (directory->links ? 0 : O_NOFOLLOW));
    struct stat info;

    if (fd < 0)
        return file_open_failed(directory, name, err);
    if (fstat(fd, &info) < 0) {
        error_errno(err, CODE_IO, "%s/%s", directory->path, name);
    } else if (!S_ISREG(info.st_mode)) {
        error_set(err, CODE_DATA, "%s/%s: not a regular file", directory->path, name);
    } else {
        *bytes = (uint64_t)info.st_size;
        return fd;
    }
    close(fd);
    return -1;
}

int file_read_at(int fd, void *buffer, size_t bytes, uint64_t offset, const char *path, const char *name,
                 struct error *err)
{
    ssize_t got = io_read_at(fd, buffer, bytes, (off_t)offset);

    if (got < 0)
        return error_errno(err, CODE_IO, "%s/%s: cannot read at offset %" PRIu64, path, name, offset);
    if ((size_t)got < bytes)
        return error_set(err, CODE_DATA, "%s/%s: truncated at offset %" PRIu64, path, name, offset + (uint64_t)got);
    return 0;
}

char *file_read(const struct directory *directory, const char *name, size_t most, size_t *bytes, struct error *err)
{
    uint64_t length;
    int fd = file_open(directory, name, &length, err);
    char *text = NULL;

    if (fd < 0)
        return NULL;
    if (length > most) {
        error_set(err, CODE_DATA, "%s/%s: %" PRIu64 " bytes, the limit is %zu", directory->path, name, length, most);
    } else if (!(text = malloc(length + 1))) {
        error_errno(err, CODE_IO, "%s/%s: %" PRIu64 " bytes", directory->path, name, length);
    } else if (file_read_at(fd, text, length, 0, directory->path, name, err) < 0) {
        free(text);
        text = NULL;
    } else {
        text[length] = '\0';
        *bytes = length;
    }
    close(fd);
    return text;
}

/* ---- removal ----------------------------------------------------------------------------------------------------- */

#define TRASH     ".trash"
#define MAX_DEPTH 8 /* a checkpoint has one level; deeper directories are not muster's */

/* Removes all entries. Other processes may be removing the same tree: a missing entry is no failure. */
static void remove_entries(const struct directory *directory, int depth)
{
    struct directory inner;
    struct listing listing = listing_open(directory);
    const char *name;

    while ((name = listing_next(&listing))) {
        if (unlinkat(directory->fd, name, 0) == 0 || (errno != EISDIR && errno != EPERM) || depth == MAX_DEPTH)
            continue;
        if (directory_open_made(&inner, directory, name, NULL) == 0) {
            remove_entries(&inner, depth + 1);
            directory_close(&inner);
        }
        unlinkat(directory->fd, name, AT_REMOVEDIR);
    }
    listing_close(&listing, NULL);
}

void file_remove_all(const struct directory *directory)
{
    remove_entries(directory, 0);
}

/* .trash, or .trash-UID. */
static void name_trash(char name[static FILE_TRASH_SIZE], bool own)
{
    if (own)
        snprintf(name, FILE_TRASH_SIZE, TRASH "-%u", (unsigned)geteuid());
    else
        snprintf(name, FILE_TRASH_SIZE, TRASH);
}

int file_make_trash(const struct directory *directory, char name[static FILE_TRASH_SIZE], struct error *err)
{
    for (int own = 0; own < 2; own++) {
        name_trash(name, own);
        if (mkdirat(directory->fd, name, 0777) < 0 && errno != EEXIST)
            return error_errno(err, CODE_IO, "%s/%s: cannot make the directory", directory->path, name);
        if (faccessat(directory->fd, name, W_OK | X_OK, AT_EACCESS) == 0 || errno != EACCES)
            break;
    }
    return 0;
}

void file_empty_trash(const struct directory *directory)
{
    struct directory trash;
    char name[FILE_TRASH_SIZE];

    for (int own = 0; own < 2; own++) {
        name_trash(name, own);
        if (directory_open_made(&trash, directory, name, NULL) < 0)
            continue;
        if (directory_sync(directory, NULL) == 0) /* for the same reason as in file_trash */
            remove_entries(&trash, 0);
        directory_close(&trash);
    }
}

int file_trash(const struct directory *directory, const char *name, struct error *err)
{
    struct directory trash;
    char own[FILE_TRASH_SIZE], unique[256];
    int result;

    if (file_make_trash(directory, own, err) < 0 || directory_open_made(&trash, directory, own, err) < 0)
        return -1;
    file_temporary_name(unique, sizeof unique, name);
    result = renameat(directory->fd, name, trash.fd, unique) < 0 && errno != ENOENT
                 ? error_errno(err, CODE_IO, "%s/%s: cannot move into %s", directory->path, name, own)
                 : 0;
    /* Before anything is removed: otherwise a crash could undo the rename and keep the removals. */
    if (result == 0 && (directory_sync(directory, err) < 0 || directory_sync(&trash, err) < 0))
        result = -1;
    if (result == 0)
        remove_entries(&trash, 0); /* the next call removes what cannot be removed now */
    directory_close(&trash);
    return result;
}

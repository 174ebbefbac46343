/*
 * shim.c - libshim.so: the wrappers. What they do not see (a file written through mmap, or from inside the C library)
 * shows: a log that is replayed with nothing lost must make the tree that is there, which the tests look at.
 */
#include "tests/crash/shim_state.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* The C library's own function of that name. */
#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

static int open_at(int directory, const char *path, int flags, mode_t mode)
{
    bool creates = (flags & O_CREAT) != 0, writes = creates || (flags & O_ACCMODE) != O_RDONLY;
    uint64_t before, parent;
    const char *name;
    int fd;

    if (!shim_watches_path(directory, path))
        return REAL(openat)(directory, path, flags, mode);
    if (!writes)
        return shim_fails("look") ? -1 : REAL(openat)(directory, path, flags, mode);
    if (shim_fails("open"))
        return -1;
    shim_lock();
    before = shim_inode_at(directory, path);
    parent = shim_parent(directory, path, &name);
    fd = REAL(openat)(directory, path, flags, mode);
    /* A call that failed may have made the file: some filesystems refuse O_DIRECT only after that. */
    if (creates && !before && (before = shim_inode_at(directory, path)))
        shim_log((struct shim_record){.kind = SHIM_CREATE, .inode = parent, .other = before}, name, NULL, NULL);
    else if (fd >= 0 && (flags & O_TRUNC))
        shim_log((struct shim_record){.kind = SHIM_TRUNCATE, .inode = before}, NULL, NULL, NULL);
    shim_unlock();
    return fd;
}

#define MODE_OF(flags, mode)                                                                                           \
    do {                                                                                                               \
        va_list list;                                                                                                  \
        va_start(list, flags);                                                                                         \
        mode = (flags) & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0;                                           \
        va_end(list);                                                                                                  \
    } while (0)

EXPORT int open(const char *path, int flags, ...)
{
    mode_t mode;

    MODE_OF(flags, mode);
    return open_at(AT_FDCWD, path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...)
{
    mode_t mode;

    MODE_OF(flags, mode);
    return open_at(AT_FDCWD, path, flags, mode);
}

EXPORT int openat(int directory, const char *path, int flags, ...)
{
    mode_t mode;

    MODE_OF(flags, mode);
    return open_at(directory, path, flags, mode);
}

EXPORT int openat64(int directory, const char *path, int flags, ...)
{
    mode_t mode;

    MODE_OF(flags, mode);
    return open_at(directory, path, flags, mode);
}

EXPORT int creat(const char *path, mode_t mode)
{
    return open_at(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

/* ---- data -------------------------------------------------------------------------------------------------------- */

static ssize_t write_at(int fd, const void *data, size_t bytes, off_t offset)
{
    ssize_t done;
    bool cut = shim_cuts() && bytes > 1;

    if (shim_fails("write"))
        return -1;
    shim_lock();
    done = REAL(pwrite)(fd, data, cut ? bytes / 2 : bytes, offset);
    if (done > 0)
        shim_log(
            (struct shim_record){
                .kind = SHIM_WRITE, .inode = shim_inode(fd), .offset = (uint64_t)offset, .bytes = (uint64_t)done},
            NULL, NULL, data);
    shim_unlock();
    return done;
}

EXPORT ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    return shim_watches(fd) ? write_at(fd, data, bytes, offset) : REAL(pwrite)(fd, data, bytes, offset);
}

EXPORT ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t offset)
{
    return pwrite(fd, data, bytes, offset);
}

EXPORT ssize_t write(int fd, const void *data, size_t bytes)
{
    ssize_t done;
    off_t at;

    if (fd == 1) {
        shim_lock();
        done = REAL(write)(fd, data, bytes);
        if (done > 0)
            shim_log((struct shim_record){.kind = SHIM_SAID, .bytes = (uint64_t)done}, NULL, NULL, data);
        shim_unlock();
        return done;
    }
    if (!shim_watches(fd))
        return REAL(write)(fd, data, bytes);
    at = lseek(fd, 0, fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR);
    done = write_at(fd, data, bytes, at);
    if (done > 0)
        lseek(fd, at + done, SEEK_SET);
    return done;
}

EXPORT int ftruncate(int fd, off_t length)
{
    int result;

    if (!shim_watches(fd))
        return REAL(ftruncate)(fd, length);
    if (shim_fails("ftruncate"))
        return -1;
    shim_lock();
    result = REAL(ftruncate)(fd, length);
    if (result == 0)
        shim_log((struct shim_record){.kind = SHIM_TRUNCATE, .inode = shim_inode(fd), .offset = (uint64_t)length}, NULL,
                 NULL, NULL);
    shim_unlock();
    return result;
}

EXPORT int ftruncate64(int fd, off_t length)
{
    return ftruncate(fd, length);
}

/* Reserving room changes no byte and no length that a reader could see, so there is nothing to log. */
EXPORT int fallocate(int fd, int mode, off_t offset, off_t length)
{
    if (!shim_watches(fd))
        return REAL(fallocate)(fd, mode, offset, length);
    return shim_fails("fallocate") ? -1 : REAL(fallocate)(fd, mode, offset, length);
}

EXPORT int fallocate64(int fd, int mode, off_t offset, off_t length)
{
    return fallocate(fd, mode, offset, length);
}

static int sync_one(int fd, int (*real)(int fd))
{
    struct stat info;
    bool directory;
    int result;

    if (!shim_watches(fd))
        return real(fd);
    if (shim_fails("fsync"))
        return -1;
    shim_lock();
    directory = fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
    if (!(shim_sync() & (directory ? SYNC_DIRECTORIES : SYNC_FILES))) {
        shim_unlock();
        return 0;
    }
    result = real(fd);
    if (result == 0)
        shim_log((struct shim_record){.kind = directory ? SHIM_SYNC_DIRECTORY : SHIM_SYNC_FILE, .inode = info.st_ino},
                 NULL, NULL, NULL);
    shim_unlock();
    return result;
}

EXPORT int fsync(int fd)
{
    return sync_one(fd, REAL(fsync));
}

EXPORT int fdatasync(int fd)
{
    return sync_one(fd, REAL(fdatasync));
}

EXPORT int close(int fd)
{
    bool fails = shim_watches(fd) && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY && shim_fails("close");
    int saved = errno, result = REAL(close)(fd);

    if (fails)
        errno = saved;
    return fails ? -1 : result;
}

/* ---- directories ------------------------------------------------------------------------------------------------- */

static int rename_at(int from_directory, const char *from, int to_directory, const char *to, unsigned flags)
{
    uint64_t from_parent, to_parent;
    const char *from_name, *to_name;
    int result;

    if (!shim_watches_path(from_directory, from) && !shim_watches_path(to_directory, to))
        return REAL(renameat2)(from_directory, from, to_directory, to, flags);
    if (shim_fails("rename"))
        return -1;
    shim_be_late();
    shim_lock();
    from_parent = shim_parent(from_directory, from, &from_name);
    to_parent = shim_parent(to_directory, to, &to_name);
    result = REAL(renameat2)(from_directory, from, to_directory, to, flags);
    if (result == 0)
        shim_log((struct shim_record){.kind = SHIM_RENAME, .inode = from_parent, .other = to_parent}, from_name,
                 to_name, NULL);
    shim_unlock();
    return result;
}

EXPORT int rename(const char *from, const char *to)
{
    return rename_at(AT_FDCWD, from, AT_FDCWD, to, 0);
}

EXPORT int renameat(int from_directory, const char *from, int to_directory, const char *to)
{
    return rename_at(from_directory, from, to_directory, to, 0);
}

EXPORT int renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags)
{
    return rename_at(from_directory, from, to_directory, to, flags);
}

EXPORT int unlinkat(int directory, const char *path, int flags)
{
    const char *name;
    uint64_t parent;
    int result;

    if (!shim_watches_path(directory, path))
        return REAL(unlinkat)(directory, path, flags);
    if (shim_fails("unlink"))
        return -1;
    shim_lock();
    parent = shim_parent(directory, path, &name);
    result = REAL(unlinkat)(directory, path, flags);
    if (result == 0)
        shim_log((struct shim_record){.kind = SHIM_UNLINK, .inode = parent}, name, NULL, NULL);
    shim_unlock();
    return result;
}

EXPORT int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

EXPORT int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

EXPORT int remove(const char *path)
{
    int result = unlinkat(AT_FDCWD, path, 0);

    return result < 0 && errno == EISDIR ? unlinkat(AT_FDCWD, path, AT_REMOVEDIR) : result;
}

EXPORT int mkdirat(int directory, const char *path, mode_t mode)
{
    const char *name;
    uint64_t parent;
    int result;

    if (!shim_watches_path(directory, path))
        return REAL(mkdirat)(directory, path, mode);
    if (shim_fails("mkdir"))
        return -1;
    shim_lock();
    parent = shim_parent(directory, path, &name);
    result = REAL(mkdirat)(directory, path, mode);
    if (result == 0)
        shim_log((struct shim_record){.kind = SHIM_MKDIR, .inode = parent, .other = shim_inode_at(directory, path)},
                 name, NULL, NULL);
    shim_unlock();
    return result;
}

EXPORT int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

/* A file that holds the link's text, for those who read the log. */
EXPORT int symlinkat(const char *text, int directory, const char *path)
{
    const char *name;
    uint64_t parent, inode;
    int result;

    if (!shim_watches_path(directory, path))
        return REAL(symlinkat)(text, directory, path);
    if (shim_fails("symlink"))
        return -1;
    shim_lock();
    parent = shim_parent(directory, path, &name);
    result = REAL(symlinkat)(text, directory, path);
    if (result == 0) {
        inode = shim_inode_at(directory, path);
        shim_log((struct shim_record){.kind = SHIM_CREATE, .inode = parent, .other = inode}, name, NULL, NULL);
        shim_log((struct shim_record){.kind = SHIM_WRITE, .inode = inode, .bytes = strlen(text)}, NULL, NULL, text);
    }
    shim_unlock();
    return result;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

EXPORT ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    return shim_watches(fd) && shim_fails("read") ? -1 : REAL(pread)(fd, data, bytes, offset);
}

EXPORT ssize_t pread64(int fd, void *data, size_t bytes, off_t offset)
{
    return pread(fd, data, bytes, offset);
}

EXPORT ssize_t read(int fd, void *data, size_t bytes)
{
    return shim_watches(fd) && shim_fails("read") ? -1 : REAL(read)(fd, data, bytes);
}

/* The next name that is not too young for SHIM_LATE. */
EXPORT struct dirent *readdir(DIR *stream)
{
    bool watched = shim_watches(dirfd(stream));
    struct dirent *entry;

    if (watched && shim_fails("list"))
        return NULL;
    do
        entry = REAL(readdir)(stream);
    while (entry && watched && shim_is_young(dirfd(stream), entry->d_name));
    return entry;
}

/* The same struct, on 64-bit machines. */
EXPORT struct dirent64 *readdir64(DIR *stream)
{
    return (struct dirent64 *)readdir(stream);
}

EXPORT int faccessat(int directory, const char *path, int mode, int flags)
{
    return shim_watches_path(directory, path) && shim_fails("stat") ? -1
                                                                    : REAL(faccessat)(directory, path, mode, flags);
}

EXPORT int fstatat(int directory, const char *restrict path, struct stat *restrict info, int flags)
{
    return shim_watches_path(directory, path) && shim_fails("stat") ? -1 : REAL(fstatat)(directory, path, info, flags);
}

EXPORT int fstatat64(int directory, const char *restrict path, struct stat64 *restrict info, int flags)
{
    return shim_watches_path(directory, path) && shim_fails("stat") ? -1
                                                                    : REAL(fstatat64)(directory, path, info, flags);
}

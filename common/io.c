#include "common/io.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

int io_write_all(int fd, const void *data, size_t bytes)
{
    for (const char *at = data; bytes > 0;) {
        ssize_t done = write(fd, at, bytes);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -1;
        at += done;
        bytes -= (size_t)done;
    }
    return 0;
}

ssize_t io_read_at(int fd, void *buffer, size_t bytes, off_t offset)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t got = pread(fd, (char *)buffer + done, bytes - done, offset + (off_t)done);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

int io_absolute(char *path, size_t size, const char *name, struct error *err)
{
    char here[PATH_MAX] = "";
    int length;

    if (name[0] != '/' && !getcwd(here, sizeof here))
        return error_errno(err, CODE_IO, "the working directory");
    length = name[0] == '/' ? snprintf(path, size, "%s", name) : snprintf(path, size, "%s/%s", here, name);
    if (length >= (int)size)
        return error_set(err, CODE_CONFIG, "%.100s...: is too long a path", name);
    return 0;
}

int io_sync_parent(const char *path)
{
    char copy[PATH_MAX];
    int fd, result;

    snprintf(copy, sizeof copy, "%s", path);
    fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    result = fsync(fd);
    close(fd);
    return result;
}

FILE *io_create_file(const char *path, struct error *err)
{
    FILE *out = fopen(path, "we");

    if (!out)
        error_errno(err, CODE_IO, "cannot create %s", path);
    return out;
}

int io_close_file(FILE *out, const char *path, int rc, struct error *err)
{
    bool failed = ferror(out);
    struct stat found;

    if ((fclose(out) != 0 || failed) && rc == 0)
        rc = error_errno(err, CODE_IO, "cannot write %s", path);
    if (rc < 0 && lstat(path, &found) == 0 && S_ISREG(found.st_mode))
        unlink(path);
    return rc;
}

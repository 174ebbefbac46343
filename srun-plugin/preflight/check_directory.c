#include "srun-plugin/preflight/checks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "srun-plugin/preflight/say.h"

enum { SAMPLE = 64 * 1024 }; /* more than a quota's or a file system's last block may still take */

/* The nearest directory at or above `path` that exists; the trainer makes those below. */
static void nearest(const char *path, char *found, size_t size)
{
    char *slash;

    snprintf(found, size, "%s", path);
    while (access(found, F_OK) < 0 && errno == ENOENT) {
        slash = strrchr(found, '/');
        if (!slash) {
            snprintf(found, size, ".");
            return;
        }
        slash[slash == found] = '\0';
    }
}

/* 0, or -1 and errno. Written through: a full quota may show as late as that. */
static int write_sample(int fd)
{
    static char zeros[SAMPLE];
    ssize_t done = write(fd, zeros, sizeof zeros);

    if (done >= 0 && done < SAMPLE)
        errno = ENOSPC;
    return done == SAMPLE && fsync(fd) == 0 ? 0 : -1;
}

static int try_directory(const char *directory)
{
    char name[PATH_MAX];
    int fd, failed, why;

    if (snprintf(name, sizeof name, "%s/.muster-preflight.XXXXXX", directory) >= (int)sizeof name) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0)
        return -1;
    failed = write_sample(fd);
    why = errno;
    unlink(name);
    close(fd);
    errno = why;
    return failed;
}

void check_directory(const char *what, const char *path, uint64_t bytes)
{
    char directory[PATH_MAX];
    struct statvfs room;
    uint64_t available;

    if (!path || !path[0])
        return;
    nearest(path, directory, sizeof directory);
    if (try_directory(directory) < 0) {
        say("problem", "%s cannot be written to %s: %s", what, directory, strerror(errno));
        return;
    }
    if (statvfs(directory, &room) < 0)
        return;
    available = (uint64_t)room.f_bavail * room.f_frsize;
    if (available < bytes)
        say("problem", "%s: %s has %.1f GiB free, and %.1f GiB are wanted", what, directory,
            (double)available / (1 << 30), (double)bytes / (1 << 30));
}

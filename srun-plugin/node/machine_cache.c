#include "srun-plugin/node/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "srun-plugin/node/sysfs.h"

#define TEXT_MAX (4 << 20)

static bool is_trusted(const struct stat *status)
{
    return (status->st_uid == 0 || status->st_uid == geteuid()) && (status->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* machine-BOOT_ID; false if the kernel has no such number. */
static bool name_file(char *name, size_t size)
{
    char boot[64];

    return sysfs_line("/", boot, sizeof boot, "proc/sys/kernel/random/boot_id") &&
           snprintf(name, size, "machine-%s", boot) < (int)size;
}

/* A descriptor of dir, if others cannot write there; -1 and errno. */
static int open_dir(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;

    if (fd >= 0 && fstat(fd, &status) == 0 && is_trusted(&status))
        return fd;
    if (fd >= 0) {
        close(fd);
        errno = EPERM;
    }
    return -1;
}

static int write_all(int fd, const char *text, size_t size)
{
    for (ssize_t wrote; size > 0; text += wrote, size -= (size_t)wrote)
        if ((wrote = write(fd, text, size)) < 0)
            return -1;
    return 0;
}

/* Writes another file and renames it, so that a reader sees a whole file or none. */
static int replace_file(int dir_fd, const char *name, const char *text, size_t size)
{
    static const char draft[] = "machine.new";
    int fd;

    unlinkat(dir_fd, draft, 0);
    fd = openat(dir_fd, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return -1;
    if (write_all(fd, text, size) < 0 || fchmod(fd, 0644) < 0) {
        close(fd);
        unlinkat(dir_fd, draft, 0);
        return -1;
    }
    return close(fd) < 0 ? -1 : renameat(dir_fd, draft, dir_fd, name);
}

int machine_cache_write(const char *dir, struct error *err)
{
    char name[128], *text = NULL;
    int fd = -1, status = -1;

    if (!name_file(name, sizeof name))
        return error_set(err, CODE_IO, "%s: the kernel has no boot_id to name a file by", dir);
    if ((mkdir(dir, 0755) < 0 && errno != EEXIST) || (fd = open_dir(dir)) < 0)
        return error_errno(err, CODE_IO, "%s cannot be used for the machine", dir);
    if (!(text = machine_read(NULL, err)))
        goto done;
    if (replace_file(fd, name, text, strlen(text)) < 0)
        error_errno(err, CODE_IO, "%s/%s", dir, name);
    else
        status = 0;
done:
    free(text);
    close(fd);
    return status;
}

static char *read_text(int fd, size_t size)
{
    char *text = malloc(size + 1);
    size_t used = 0;

    for (ssize_t got = 1; text && got > 0 && used<size; used += got> 0 ? (size_t)got : 0)
        got = read(fd, text + used, size - used);
    if (text && used == size) {
        text[size] = '\0';
        return text;
    }
    free(text);
    return NULL;
}

char *machine_cache_read(const char *dir)
{
    char name[128], *text = NULL;
    struct stat status;
    int dir_fd = open_dir(dir), fd = -1;

    if (dir_fd >= 0 && name_file(name, sizeof name))
        fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && is_trusted(&status) &&
        status.st_size <= TEXT_MAX)
        text = read_text(fd, (size_t)status.st_size);
    if (fd >= 0)
        close(fd);
    if (dir_fd >= 0)
        close(dir_fd);
    return text;
}

/* metrics_write.c - appends steps, and removes those that a resumed run will repeat. */
#include "trainer/report/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/io.h"

enum { CHECK_SECONDS = 5 }; /* between two checks of the name, which need the file system */

struct metrics_writer {
    int fd;
    time_t checked; /* when the name was last checked */
    bool displaced; /* it belonged to another file */
    char path[PATH_MAX];
};

/* ---- removing steps ---- */

struct kept {
    long resume_step;
    FILE *text;   /* the kept lines, unchanged */
    long dropped; /* number of the others */
};

static int keep_line(const struct metrics_step *step, const char *line, size_t length, void *arg)
{
    struct kept *kept = arg;

    if (step->step > kept->resume_step)
        kept->dropped++;
    else
        fwrite(line, 1, length, kept->text); /* into memory; fclose reports a failure */
    return 0;
}

static int replace_file(const char *path, const char *text, size_t length, struct error *err)
{
    char beside[PATH_MAX + 8];
    struct stat old;
    int fd;

    snprintf(beside, sizeof beside, "%s.tmp", path);
    fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return error_errno(err, CODE_IO, "cannot create %s", beside);
    if (stat(path, &old) < 0 || fchmod(fd, old.st_mode & 0777) < 0 || io_write_all(fd, text, length) < 0 ||
        fsync(fd) < 0)
        goto fail;
    if (rename(beside, path) < 0 || io_sync_parent(path) < 0)
        goto fail;
    close(fd);
    return 0;
fail:
    error_errno(err, CODE_IO, "cannot write %s and rename it to %s", beside, path);
    close(fd);
    unlink(beside);
    return -1;
}

static int drop_beyond(const char *path, long resume_step, struct error *err)
{
    struct kept kept = {.resume_step = resume_step};
    char *text = NULL;
    size_t length = 0;
    bool torn;
    int result;

    kept.text = open_memstream(&text, &length);
    if (!kept.text)
        return error_errno(err, CODE_IO, "no memory to read %s", path);
    result = metrics_each(path, keep_line, &kept, &torn, err);
    if (fclose(kept.text) != 0 && result == 0)
        result = error_errno(err, CODE_IO, "no memory to read %s", path);
    if (result == 0 && (kept.dropped || torn))
        result = replace_file(path, text, length, err);
    free(text);
    return result;
}

/* ---- the writer ---- */

struct metrics_writer *metrics_open(const char *path, long resume_step, struct error *err)
{
    struct metrics_writer *writer = calloc(1, sizeof *writer);
    struct stat now;

    if (!writer) {
        error_errno(err, CODE_IO, "no memory for metrics %s", path);
        return NULL;
    }
    writer->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0666);
    if (writer->fd < 0 || fstat(writer->fd, &now) < 0) {
        error_errno(err, CODE_IO, "cannot open metrics %s", path);
        goto fail;
    }
    /* Resolve symbolic links, so that the rename replaces the file and not a link to it. */
    if (!realpath(path, writer->path)) {
        error_errno(err, CODE_IO, "cannot resolve metrics %s", path);
        goto fail;
    }
    if (!S_ISREG(now.st_mode) || now.st_size == 0) /* a pipe or a terminal has no lines to remove */
        return writer;
    if (drop_beyond(writer->path, resume_step, err) < 0)
        goto fail;
    close(writer->fd); /* it may be the file that was replaced */
    writer->fd = open(writer->path, O_WRONLY | O_CLOEXEC | O_APPEND);
    if (writer->fd < 0) {
        error_errno(err, CODE_IO, "cannot open metrics %s", writer->path);
        goto fail;
    }
    return writer;
fail:
    metrics_close(writer);
    return NULL;
}

bool metrics_displaced(struct metrics_writer *writer)
{
    struct stat ours, named;
    time_t now = time(NULL);

    if (writer->displaced || (now - writer->checked < CHECK_SECONDS && now >= writer->checked))
        return false;
    writer->checked = now;
    if (fstat(writer->fd, &ours) < 0)
        return writer->displaced = errno == ESTALE; /* removed on another node, by NFS */
    if (!S_ISREG(ours.st_mode))
        return false;
    if (stat(writer->path, &named) < 0)
        writer->displaced = errno == ENOENT;
    else
        writer->displaced = named.st_ino != ours.st_ino || named.st_dev != ours.st_dev;
    return writer->displaced;
}

int metrics_write(struct metrics_writer *writer, const struct metrics_step *step, struct error *err)
{
    char line[METRICS_LINE_SIZE];
    size_t length = metrics_format(line, step);
    struct stat now;
    ssize_t done;

    do
        done = write(writer->fd, line, length);
    while (done < 0 && errno == EINTR);
    if (done == (ssize_t)length)
        return 0;
    if (done < 0)
        return error_errno(err, CODE_IO, "cannot write step %ld to metrics %s", step->step, writer->path);
    /* Half a line would make the next one invalid too. */
    if (fstat(writer->fd, &now) < 0 || ftruncate(writer->fd, now.st_size - done) < 0)
        return error_errno(err, CODE_IO, "step %ld is torn in metrics %s", step->step, writer->path);
    return error_set(err, CODE_IO, "cannot write step %ld to metrics %s: no space for the whole line", step->step,
                     writer->path);
}

int metrics_sync(struct metrics_writer *writer, struct error *err)
{
    if (fdatasync(writer->fd) < 0 && errno != EINVAL) /* EINVAL: a pipe or a terminal, which has no disk */
        return error_errno(err, CODE_IO, "cannot sync metrics %s", writer->path);
    return 0;
}

void metrics_close(struct metrics_writer *writer)
{
    if (!writer)
        return;
    if (writer->fd >= 0)
        close(writer->fd);
    free(writer);
}

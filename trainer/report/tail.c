#include "trainer/report/tail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct tail {
    char *path;
    int fd; /* -1 while there is no file. Held open, so that a new file cannot get the old one's inode number */
    long line_number;
    off_t offset; /* of what was read */
    char *buf;    /* read and not given yet: [begin, end) */
    size_t begin, end, size;
};

enum { CHUNK = 64 * 1024 };

struct tail *tail_create(const char *path, struct error *err)
{
    struct tail *tail = calloc(1, sizeof *tail);

    if (!tail || !(tail->path = strdup(path))) {
        error_errno(err, CODE_IO, "no memory to follow %s", path);
        free(tail);
        return NULL;
    }
    tail->fd = -1;
    return tail;
}

void tail_destroy(struct tail *tail)
{
    if (!tail)
        return;
    if (tail->fd >= 0)
        close(tail->fd);
    free(tail->buf);
    free(tail->path);
    free(tail);
}

long tail_line_number(const struct tail *tail)
{
    return tail->line_number;
}

/* Is the name still that of the open file, and the file no shorter than what was read? A name that is gone is kept. */
static bool replaced(const struct tail *tail)
{
    struct stat named, held;

    if (stat(tail->path, &named) < 0 || fstat(tail->fd, &held) < 0)
        return false;
    return named.st_dev != held.st_dev || named.st_ino != held.st_ino || held.st_size < tail->offset;
}

static enum tail_news reopen(struct tail *tail, struct error *err)
{
    bool first = tail->fd < 0;
    int fd = open(tail->path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 && errno == ENOENT)
        return TAIL_NOTHING;
    if (fd < 0)
        return error_errno(err, CODE_IO, "cannot open %s", tail->path);
    if (!first)
        close(tail->fd);
    tail->fd = fd;
    tail->offset = 0;
    tail->line_number = 0;
    tail->begin = tail->end = 0;
    return first ? TAIL_NOTHING : TAIL_ANEW;
}

/* Reads more behind what is there; returns the bytes, 0 at the end of the file. */
static ssize_t fill(struct tail *tail, struct error *err)
{
    ssize_t got;

    if (tail->begin > 0)
        memmove(tail->buf, tail->buf + tail->begin, tail->end - tail->begin);
    tail->end -= tail->begin;
    tail->begin = 0;
    if (tail->size - tail->end < CHUNK) {
        char *more = realloc(tail->buf, tail->end + 2 * CHUNK);

        if (!more)
            return error_errno(err, CODE_IO, "no memory for a line of %s", tail->path);
        tail->buf = more;
        tail->size = tail->end + 2 * CHUNK;
    }
    got = read(tail->fd, tail->buf + tail->end, tail->size - tail->end);
    if (got < 0)
        return error_errno(err, CODE_IO, "cannot read %s", tail->path);
    tail->end += (size_t)got;
    tail->offset += got;
    return got;
}

static bool take_line(struct tail *tail, const char **line, size_t *length)
{
    char *begin = tail->buf + tail->begin, *newline = NULL;

    if (tail->end > tail->begin)
        newline = memchr(begin, '\n', tail->end - tail->begin);
    if (!newline)
        return false;
    *newline = '\0';
    *line = begin;
    *length = (size_t)(newline - begin);
    tail->begin += *length + 1;
    tail->line_number++;
    return true;
}

enum tail_news tail_next(struct tail *tail, const char **line, size_t *length, struct error *err)
{
    if (tail->fd >= 0 && take_line(tail, line, length))
        return TAIL_LINE;
    if (tail->fd < 0 || replaced(tail)) {
        enum tail_news news = reopen(tail, err);

        if (news != TAIL_NOTHING || tail->fd < 0)
            return news;
    }
    for (;;) {
        ssize_t got = fill(tail, err);

        if (got <= 0)
            return got < 0 ? TAIL_ERROR : TAIL_NOTHING;
        if (take_line(tail, line, length))
            return TAIL_LINE;
    }
}

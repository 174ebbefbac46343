#include "trainer/data/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/data/indexed.h"
#include "trainer/data/packing.h"

#define CHUNK_SIZE   ((size_t)1 << 20)
#define STOP_LATENCY 200 /* milliseconds */

struct conversion {
    const struct convert *convert;
    struct indexed_writer *train, *valid;
    uint64_t total, cut; /* bytes of all texts; offset of the validation part, or UINT64_MAX */
    uint64_t done;
    struct sentences sentences; /* of the current text */
    int empty;
    const char *first_empty;
    char *chunk;
};

/* The size of all texts together; 0 if one is unknown before it is read. Detects unreadable texts before the start. */
static int measure_texts(const struct convert *convert, uint64_t *total, struct error *err)
{
    bool known = true;

    *total = 0;
    for (int i = 0; i < convert->ntexts; i++) {
        const char *text = convert->texts[i];
        struct stat status;

        if ((strcmp(text, "-") == 0 ? fstat(STDIN_FILENO, &status) : stat(text, &status)) < 0)
            return error_errno(err, CODE_DATA, "cannot read %s", text);
        if (S_ISDIR(status.st_mode))
            return error_set(err, CODE_DATA, "%s is a directory; give the files in it", text);
        if (!S_ISREG(status.st_mode) && convert->valid_out)
            return error_set(err, CODE_USAGE, "%s is not a regular file: a validation set needs its size beforehand",
                             text);
        known = known && S_ISREG(status.st_mode);
        *total += (uint64_t)status.st_size;
    }
    if (!known)
        *total = 0;
    return 0;
}

/* Appends bytes of one sentence to the training part, to the validation part, or to both if the cut is between. */
static int append_bytes(struct conversion *c, const char *bytes, size_t count, struct error *err)
{
    uint64_t left = c->cut > c->done ? c->cut - c->done : 0; /* of the training part */
    size_t here = count < left ? count : (size_t)left;

    c->done += count;
    if (indexed_writer_append(c->train, bytes, here, err) < 0)
        return -1;
    return here < count ? indexed_writer_append(c->valid, bytes + here, count - here, err) : 0;
}

static int end_sentence(struct conversion *c, struct error *err)
{
    if (indexed_writer_end_sequence(c->train, err) < 0)
        return -1;
    return c->valid ? indexed_writer_end_sequence(c->valid, err) : 0;
}

static int append_chunk(struct conversion *c, size_t count, struct error *err)
{
    const char *next = c->chunk;

    while (count > 0) {
        bool ended = false;
        size_t here = c->convert->sentences ? sentences_next(&c->sentences, next, count, &ended) : count;

        if (append_bytes(c, next, here, err) < 0 || (ended && end_sentence(c, err) < 0))
            return -1;
        next += here;
        count -= here;
    }
    return 0;
}

/* Like read, but does not block for long: a signal just before a blocking read of a pipe would not interrupt it. */
static ssize_t read_chunk(const struct conversion *c, int fd)
{
    const volatile sig_atomic_t *stop = c->convert->stop;
    struct pollfd ready = {.fd = fd, .events = POLLIN};

    while (stop) {
        int count = *stop ? -1 : poll(&ready, 1, STOP_LATENCY);

        if (count > 0)
            break;
        if (*stop)
            errno = EINTR;
        if (count < 0)
            return -1;
    }
    return read(fd, c->chunk, CHUNK_SIZE);
}

/* One empty file among many is reported only; an empty pipe, or only empty files, is an error. */
static int note_empty(struct conversion *c, const char *text, int fd, struct error *err)
{
    struct stat status;

    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || ++c->empty == c->convert->ntexts)
        return error_set(err, CODE_DATA, "%s is empty; leave it out or give it text", text);
    if (!c->first_empty)
        c->first_empty = text;
    return 0;
}

static int read_text(struct conversion *c, const char *text, int fd, struct error *err)
{
    const struct convert *convert = c->convert;
    uint64_t offset = 0;
    ssize_t got;

    c->sentences = (struct sentences){0};
    while ((got = read_chunk(c, fd)) != 0) {
        const char *zero = got > 0 ? memchr(c->chunk, 0, (size_t)got) : NULL;

        if (convert->stop && *convert->stop)
            return error_set(err, CODE_STOPPED, "stopped by a signal; nothing was kept");
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_errno(err, CODE_IO, "cannot read %s, offset %" PRIu64, text, offset);
        if (zero)
            return error_set(err, CODE_DATA,
                             "%s, offset %" PRIu64 ": a zero byte; give plain text, not compressed, not UTF-16", text,
                             offset + (uint64_t)(zero - c->chunk));
        if (append_chunk(c, (size_t)got, err) < 0)
            return -1;
        offset += (uint64_t)got;
        if (convert->progress)
            convert->progress(c->done, c->total);
    }
    if (offset == 0)
        return note_empty(c, text, fd, err);
    if (indexed_writer_end_document(c->train, err) < 0)
        return -1;
    return c->valid ? indexed_writer_end_document(c->valid, err) : 0;
}

static int convert_text(struct conversion *c, const char *text, struct error *err)
{
    int fd, status;

    if (strcmp(text, "-") == 0)
        return read_text(c, "standard input", STDIN_FILENO, err);
    fd = open(text, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, CODE_DATA, "cannot read %s", text);
    status = read_text(c, text, fd, err);
    close(fd);
    return status;
}

static int commit_sets(struct conversion *c, struct converted *converted, struct error *err)
{
    converted->train = indexed_writer_facts(c->train);
    converted->empty = c->empty;
    converted->first_empty = c->first_empty;
    converted->valid = c->valid ? indexed_writer_facts(c->valid) : (struct indexed_facts){0};
    if (c->valid && (converted->train.tokens == 0 || converted->valid.tokens == 0))
        return error_set(err, CODE_DATA, "%g percent of %" PRIu64 " bytes leaves nothing for %s; give more text",
                         c->convert->valid_percent, c->done, converted->valid.tokens ? "training" : "validation");
    if (c->valid && indexed_writer_commit(c->valid, err) < 0)
        return -1;
    return indexed_writer_commit(c->train, err);
}

int convert_texts(const struct convert *convert, struct converted *converted, struct error *err)
{
    struct conversion c = {.convert = convert, .cut = UINT64_MAX};
    int status = -1;

    if (measure_texts(convert, &c.total, err) < 0)
        return -1;
    if (convert->valid_out)
        c.cut = c.total - (uint64_t)((double)c.total * convert->valid_percent / 100);
    c.chunk = malloc(CHUNK_SIZE);
    if (!c.chunk) {
        error_errno(err, CODE_IO, "no memory to read texts");
        goto done;
    }
    c.train = indexed_writer_create(convert->out, err);
    if (!c.train)
        goto done;
    if (convert->valid_out && !(c.valid = indexed_writer_create(convert->valid_out, err)))
        goto done;
    for (int i = 0; i < convert->ntexts; i++)
        if (convert_text(&c, convert->texts[i], err) < 0)
            goto done;
    status = commit_sets(&c, converted, err);

done:
    indexed_writer_destroy(c.valid);
    indexed_writer_destroy(c.train);
    free(c.chunk);
    return status;
}

static int add_name(struct text_names *names, const char *name, struct error *err)
{
    if (names->count == names->room) {
        int room = names->room < INT_MAX / 4 ? 2 * names->room + 64 : 0;
        char **grown = room ? realloc(names->names, (size_t)room * sizeof *grown) : NULL;

        if (!grown)
            return error_errno(err, CODE_IO, "no memory for the names of %d texts", names->count + 1);
        names->names = grown;
        names->room = room;
    }
    names->names[names->count] = strdup(name);
    if (!names->names[names->count])
        return error_errno(err, CODE_IO, "no memory for the names of %d texts", names->count + 1);
    names->count++;
    return 0;
}

int text_names_add(struct text_names *names, char *const *more, int count, struct error *err)
{
    for (int i = 0; i < count; i++)
        if (add_name(names, more[i], err) < 0)
            return -1;
    return 0;
}

int text_names_read(struct text_names *names, const char *list, struct error *err)
{
    FILE *file = strcmp(list, "-") == 0 ? stdin : fopen(list, "re");
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    int result = 0;

    if (!file)
        return error_errno(err, CODE_DATA, "cannot read %s", list);
    while (result == 0 && (length = getline(&line, &size, file)) > 0) {
        if (memchr(line, '\0', (size_t)length)) {
            result =
                error_set(err, CODE_DATA, "%s: a zero byte; names must be one a line (of find, without -print0)", list);
            break;
        }
        line[strcspn(line, "\n")] = '\0';
        if (*line)
            result = add_name(names, line, err);
    }
    if (result == 0 && ferror(file))
        result = error_errno(err, CODE_IO, "cannot read %s", list);
    free(line);
    if (file != stdin)
        fclose(file);
    return result;
}

void text_names_destroy(struct text_names *names)
{
    for (int i = 0; i < names->count; i++)
        free(names->names[i]);
    free(names->names);
    *names = (struct text_names){0};
}

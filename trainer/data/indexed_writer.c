#include "trainer/data/indexed.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/io.h"
#include "trainer/data/indexed.h"

struct data_output {
    FILE *stream;
    char path[PATH_MAX], temporary[PATH_MAX];
};

struct indexed_writer {
    struct data_output bin, idx; /* idx has room for the header, then lengths as sequences end */
    FILE *begins, *boundaries;   /* temporary files: the two tables that follow the lengths */
    uint64_t sequence;           /* tokens of the current sequence */
    uint64_t first_of_document;  /* the current document's first sequence */
    struct indexed_facts facts;
    bool committed;
};

static int output_open(struct data_output *out, const char *prefix, const char *suffix, struct error *err)
{
    int fd;

    snprintf(out->path, sizeof out->path, "%s%s", prefix, suffix);
    snprintf(out->temporary, sizeof out->temporary, "%s%s.tmp", prefix, suffix);
    fd = open(out->temporary, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return error_errno(err, CODE_IO, "cannot create %s", out->temporary);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) { /* other errors: a file system without locks */
        close(fd);
        return error_set(err, CODE_USAGE, "%s is being written by another process", out->temporary);
    }
    if (ftruncate(fd, 0) < 0 || !(out->stream = fdopen(fd, "w+"))) {
        error_errno(err, CODE_IO, "%s", out->temporary);
        close(fd);
        return -1;
    }
    return 0;
}

static int output_fail(const struct data_output *out, struct error *err)
{
    return error_errno(err, CODE_IO, "cannot write %s", out->temporary);
}

static int put_u64(FILE *stream, uint64_t value)
{
    value = htole64(value);
    return fwrite(&value, sizeof value, 1, stream) == 1 ? 0 : -1;
}

static int put_u32(FILE *stream, uint32_t value)
{
    value = htole32(value);
    return fwrite(&value, sizeof value, 1, stream) == 1 ? 0 : -1;
}

static int put_header(FILE *stream, const struct indexed_facts *facts)
{
    if (fwrite(INDEXED_MAGIC, 9, 1, stream) != 1 || put_u64(stream, INDEXED_VERSION) < 0 ||
        putc((int)facts->type, stream) == EOF || put_u64(stream, facts->sequences) < 0)
        return -1;
    return put_u64(stream, facts->documents + 1);
}

struct indexed_writer *indexed_writer_create(const char *prefix, struct error *err)
{
    struct indexed_writer *w = calloc(1, sizeof *w);

    if (!w) {
        error_errno(err, CODE_IO, "no memory to write %s", prefix);
        return NULL;
    }
    w->facts.type = INDEXED_U8;
    if (strlen(prefix) + sizeof ".bin.tmp" > PATH_MAX) {
        error_set(err, CODE_USAGE, "%.200s...: this prefix is too long", prefix);
        goto fail;
    }
    if (output_open(&w->bin, prefix, ".bin", err) < 0 || output_open(&w->idx, prefix, ".idx", err) < 0)
        goto fail;
    if (access(w->idx.path, F_OK) == 0) {
        error_set(err, CODE_USAGE, "%s exists; remove it or choose another prefix", w->idx.path);
        goto fail;
    }
    w->begins = tmpfile();
    w->boundaries = tmpfile();
    if (!w->begins || !w->boundaries) {
        error_errno(err, CODE_IO, "cannot create a temporary file");
        goto fail;
    }
    if (put_header(w->idx.stream, &w->facts) < 0 || put_u64(w->boundaries, 0) < 0) {
        output_fail(&w->idx, err);
        goto fail;
    }
    return w;

fail:
    indexed_writer_destroy(w);
    return NULL;
}

static void output_close(const struct data_output *out, bool keep)
{
    if (!out->stream)
        return;
    if (!keep)
        unlink(out->temporary);
    fclose(out->stream);
}

void indexed_writer_destroy(struct indexed_writer *w)
{
    if (!w)
        return;
    output_close(&w->bin, w->committed);
    output_close(&w->idx, w->committed);
    if (w->begins)
        fclose(w->begins);
    if (w->boundaries)
        fclose(w->boundaries);
    free(w);
}

int indexed_writer_end_sequence(struct indexed_writer *w, struct error *err)
{
    if (w->sequence == 0)
        return 0;
    if (put_u32(w->idx.stream, (uint32_t)w->sequence) < 0 || put_u64(w->begins, w->facts.tokens) < 0)
        return output_fail(&w->idx, err);
    if (w->sequence > w->facts.longest)
        w->facts.longest = w->sequence;
    w->facts.tokens += w->sequence;
    w->facts.sequences++;
    w->sequence = 0;
    return 0;
}

int indexed_writer_append(struct indexed_writer *w, const void *bytes, size_t count, struct error *err)
{
    const char *next = bytes;

    while (count > 0) {
        size_t room = INDEXED_SEQUENCE_MAX - w->sequence;
        size_t here = count < room ? count : room;

        if (fwrite(next, 1, here, w->bin.stream) != here)
            return output_fail(&w->bin, err);
        w->sequence += here;
        next += here;
        count -= here;
        if (w->sequence == INDEXED_SEQUENCE_MAX && indexed_writer_end_sequence(w, err) < 0)
            return -1;
    }
    return 0;
}

int indexed_writer_end_document(struct indexed_writer *w, struct error *err)
{
    if (indexed_writer_end_sequence(w, err) < 0)
        return -1;
    if (w->facts.sequences == w->first_of_document)
        return 0;
    if (put_u64(w->boundaries, w->facts.sequences) < 0)
        return output_fail(&w->idx, err);
    if (w->facts.sequences - w->first_of_document > w->facts.longest_document)
        w->facts.longest_document = w->facts.sequences - w->first_of_document;
    w->first_of_document = w->facts.sequences;
    w->facts.documents++;
    return 0;
}

static int append_all(FILE *to, FILE *from)
{
    char bytes[16384];
    size_t got;

    if (fflush(from) == EOF)
        return -1;
    rewind(from);
    while ((got = fread(bytes, 1, sizeof bytes, from)) > 0)
        if (fwrite(bytes, 1, got, to) != got)
            return -1;
    return ferror(from) ? -1 : 0;
}

static int output_sync(const struct data_output *out, struct error *err)
{
    if (fflush(out->stream) == EOF || fsync(fileno(out->stream)) < 0)
        return output_fail(out, err);
    return 0;
}

static int output_rename(const struct data_output *out, struct error *err)
{
    if (rename(out->temporary, out->path) < 0)
        return error_errno(err, CODE_IO, "cannot rename %s to %s", out->temporary, out->path);
    return 0;
}

int indexed_writer_commit(struct indexed_writer *w, struct error *err)
{
    if (w->facts.documents == 0 || w->sequence > 0)
        return error_set(err, CODE_INTERNAL, "%s: committed without a document, or within one", w->idx.path);
    if (append_all(w->idx.stream, w->begins) < 0 || append_all(w->idx.stream, w->boundaries) < 0 ||
        fseek(w->idx.stream, 0, SEEK_SET) < 0 || put_header(w->idx.stream, &w->facts) < 0)
        return output_fail(&w->idx, err);
    if (output_sync(&w->bin, err) < 0 || output_sync(&w->idx, err) < 0 || output_rename(&w->bin, err) < 0 ||
        output_rename(&w->idx, err) < 0)
        return -1;
    w->committed = true;
    if (io_sync_parent(w->idx.path) < 0)
        return error_errno(err, CODE_IO, "cannot sync the directory of %s", w->idx.path);
    return 0;
}

struct indexed_facts indexed_writer_facts(const struct indexed_writer *w)
{
    return w->facts;
}

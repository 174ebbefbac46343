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
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "tokenizer/tokenizer_files.h"

struct data_output {
    FILE *stream;
    char path[PATH_MAX], temporary[PATH_MAX];
};

#define LAST (1u << 31) /* until the commit, in the length of a document's last sequence */

struct indexed_writer {
    struct data_output bin, idx; /* idx has the header, then lengths as sequences end */
    uint64_t sequence;           /* tokens of the current sequence */
    uint32_t length;             /* of the sequence before it in the same document, which is not in idx yet; 0: none */
    uint64_t in_document;        /* the current document's sequences */
    struct indexed_facts facts;
    char folder[PATH_MAX]; /* of the tokenizer; "" if it was there before */
    bool committed;
};

/* Between open and flock another process may have renamed the file: it is a complete set's then. */
static bool has_name(int fd, const char *path)
{
    struct stat open_file, named;

    return fstat(fd, &open_file) == 0 && stat(path, &named) == 0 && open_file.st_dev == named.st_dev &&
           open_file.st_ino == named.st_ino;
}

static int output_open(struct data_output *out, const char *prefix, const char *suffix, struct error *err)
{
    int fd;

    snprintf(out->path, sizeof out->path, "%s%s", prefix, suffix);
    snprintf(out->temporary, sizeof out->temporary, "%s%s.tmp", prefix, suffix);
    fd = open(out->temporary, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return error_errno(err, CODE_IO, "cannot create %s", out->temporary);
    if ((flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) /* other errors: a file system without locks */
        || !has_name(fd, out->temporary)) {
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

/* The lowest bytes of the value, little-endian. */
static int put_number(FILE *stream, uint64_t value, size_t bytes)
{
    value = htole64(value);
    return fwrite(&value, bytes, 1, stream) == 1 ? 0 : -1;
}

static int put_header(FILE *stream, const struct indexed_facts *facts)
{
    if (fwrite(INDEXED_MAGIC, 9, 1, stream) != 1 || put_number(stream, INDEXED_VERSION, 8) < 0 ||
        put_number(stream, facts->type, 1) < 0 || put_number(stream, facts->sequences, 8) < 0)
        return -1;
    return put_number(stream, facts->documents + 1, 8);
}

const char *indexed_tokenizer(const char *prefix, char folder[PATH_MAX])
{
    return snprintf(folder, PATH_MAX, "%s.tokenizer", prefix) < PATH_MAX && access(folder, F_OK) == 0 ? folder
                                                                                                      : "bytes";
}

/* Replaces no folder. One with the same tokenizer is used as it is; a set of bytes has none. */
static int save_tokenizer(struct indexed_writer *w, const char *prefix, const char *tokenizer, struct error *err)
{
    char folder[PATH_MAX];
    bool is_there = indexed_tokenizer(prefix, folder) == folder;

    if (tokenizer_save(tokenizer, folder, err) < 0)
        return -1;
    if (!is_there)
        memcpy(w->folder, folder, sizeof folder);
    return 0;
}

/* The set's files that are there already. A killed writer may have left a PREFIX.bin, with PREFIX.idx.tmp beside it. */
static int refuse_files(const struct indexed_writer *w, bool killed, struct error *err)
{
    if (access(w->idx.path, F_OK) == 0)
        return error_set(err, CODE_USAGE, "%s exists; remove the set or choose another prefix", w->idx.path);
    if (access(w->bin.path, F_OK) == 0 && !killed)
        return error_set(err, CODE_USAGE, "%s exists without an index; remove it or choose another prefix",
                         w->bin.path);
    unlink(w->bin.path);
    return 0;
}

struct indexed_writer *indexed_writer_create(const char *prefix, enum indexed_type type, const char *tokenizer,
                                             struct error *err)
{
    struct indexed_writer *w = error_calloc(1, sizeof *w, err);
    char index[PATH_MAX];
    bool killed;

    if (!w)
        return NULL;
    w->facts.type = type;
    if (strlen(prefix) + sizeof ".tokenizer.tmp" > PATH_MAX) {
        error_set(err, CODE_USAGE, "%.200s...: this prefix is too long", prefix);
        goto fail;
    }
    snprintf(index, sizeof index, "%s.idx.tmp", prefix);
    killed = access(index, F_OK) == 0;
    if (output_open(&w->bin, prefix, ".bin", err) < 0 || output_open(&w->idx, prefix, ".idx", err) < 0 ||
        refuse_files(w, killed, err) < 0 || save_tokenizer(w, prefix, tokenizer ? tokenizer : "bytes", err) < 0)
        goto fail;
    if (put_header(w->idx.stream, &w->facts) < 0) {
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
    if (w->folder[0] && !w->committed)
        tokenizer_remove(w->folder, NULL);
    output_close(&w->bin, w->committed);
    output_close(&w->idx, w->committed);
    free(w);
}

/* Writes the length that is not in idx yet. */
static int flush_length(struct indexed_writer *w, uint32_t flag, struct error *err)
{
    if (w->length > 0 && put_number(w->idx.stream, w->length | flag, 4) < 0)
        return output_fail(&w->idx, err);
    w->length = 0;
    return 0;
}

static void count_sequence(struct indexed_facts *facts, uint64_t *in_document, uint64_t length)
{
    facts->sequences++;
    facts->tokens += length;
    facts->longest = length > facts->longest ? length : facts->longest;
    ++*in_document;
    if (*in_document > facts->longest_document)
        facts->longest_document = *in_document;
}

int indexed_writer_end_sequence(struct indexed_writer *w, struct error *err)
{
    if (w->sequence == 0)
        return 0;
    if (flush_length(w, 0, err) < 0)
        return -1;
    count_sequence(&w->facts, &w->in_document, w->sequence);
    w->length = (uint32_t)w->sequence;
    w->sequence = 0;
    return 0;
}

int indexed_writer_append(struct indexed_writer *w, const void *tokens, size_t count, struct error *err)
{
    const size_t width = indexed_width(w->facts.type);
    const char *next = tokens;

    while (count > 0) {
        size_t room = INDEXED_SEQUENCE_MAX - w->sequence;
        size_t here = count < room ? count : room;

        if (fwrite(next, width, here, w->bin.stream) != here)
            return output_fail(&w->bin, err);
        w->sequence += here;
        next += here * width;
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
    if (w->length == 0)
        return 0;
    if (flush_length(w, LAST, err) < 0)
        return -1;
    w->in_document = 0;
    w->facts.documents++;
    return 0;
}

/* ---- moving the end to another set ------------------------------------------------------------------------------- */

/* The next sequence; *last if it is its document's last. */
static int next_sequence(struct indexed_writer *w, uint64_t *length, bool *last, struct error *err)
{
    uint32_t value = 0;
    bool found = fread(&value, sizeof value, 1, w->idx.stream) == 1;

    *length = le32toh(value) & ~LAST;
    *last = le32toh(value) & LAST;
    return found ? 0 : output_fail(&w->idx, err);
}

static int copy_tokens(struct indexed_writer *w, uint64_t position, uint64_t count, struct indexed_writer *to,
                       struct error *err)
{
    const size_t width = indexed_width(w->facts.type);
    char bytes[1 << 16];

    while (count > 0) {
        size_t here = count < sizeof bytes / width ? (size_t)count : sizeof bytes / width;

        if (io_read_at(fileno(w->bin.stream), bytes, here * width, (off_t)(position * width)) !=
            (ssize_t)(here * width))
            return error_errno(err, CODE_IO, "cannot read %s", w->bin.temporary);
        if (indexed_writer_append(to, bytes, here, err) < 0)
            return -1;
        position += here;
        count -= here;
    }
    return 0;
}

/* Ends the files where `facts` says; the last sequence has `last` tokens. */
static int cut_files(struct indexed_writer *w, const struct indexed_facts *facts, uint64_t last, struct error *err)
{
    off_t lengths = INDEXED_HEADER_SIZE + 4 * (off_t)facts->sequences;
    off_t tokens = (off_t)(facts->tokens * indexed_width(facts->type));

    if (fseeko(w->bin.stream, tokens, SEEK_SET) < 0 || ftruncate(fileno(w->bin.stream), tokens) < 0)
        return output_fail(&w->bin, err);
    if (fseeko(w->idx.stream, lengths - 4, SEEK_SET) < 0 || put_number(w->idx.stream, last | LAST, 4) < 0 ||
        fflush(w->idx.stream) == EOF || ftruncate(fileno(w->idx.stream), lengths) < 0)
        return output_fail(&w->idx, err);
    return 0;
}

int indexed_writer_move(struct indexed_writer *w, uint64_t documents, uint64_t tokens, struct indexed_writer *rest,
                        struct error *err)
{
    struct indexed_facts kept = {.type = w->facts.type};
    uint64_t at = 0, in_document = 0, cut = 0, length;
    bool last;

    if (fflush(w->bin.stream) == EOF)
        return output_fail(&w->bin, err);
    if (fseeko(w->idx.stream, INDEXED_HEADER_SIZE, SEEK_SET) < 0)
        return output_fail(&w->idx, err);
    for (uint64_t i = 0; i < w->facts.sequences; i++, at += length) {
        uint64_t here;

        if (next_sequence(w, &length, &last, err) < 0)
            return -1;
        here = kept.documents == documents || at >= tokens ? 0
               : tokens - at < length                      ? tokens - at
                                                           : length; /* stays */
        if (here > 0) {
            count_sequence(&kept, &in_document, here);
            cut = here;
        }
        if (in_document > 0 && (last || here < length)) {
            kept.documents++;
            in_document = 0;
        }
        if (here < length &&
            (copy_tokens(w, at + here, length - here, rest, err) < 0 ||
             (last ? indexed_writer_end_document(rest, err) : indexed_writer_end_sequence(rest, err)) < 0))
            return -1;
    }
    if (cut_files(w, &kept, cut, err) < 0)
        return -1;
    w->facts = kept;
    return 0;
}

/* ---- the commit -------------------------------------------------------------------------------------------------- */

/* Appends the offset of each sequence or, after that, the boundaries of documents, and takes LAST out of the lengths. */
static int append_table(struct indexed_writer *w, bool boundaries)
{
    const uint64_t width = indexed_width(w->facts.type);
    uint32_t lengths[4096];
    uint64_t offset = 0, count;
    int result = boundaries ? put_number(w->idx.stream, 0, 8) : 0;

    for (uint64_t first = 0; first < w->facts.sequences && result == 0; first += count) {
        off_t at = INDEXED_HEADER_SIZE + 4 * (off_t)first;

        count = w->facts.sequences - first < 4096 ? w->facts.sequences - first : 4096;
        if (io_read_at(fileno(w->idx.stream), lengths, 4 * count, at) != (ssize_t)(4 * count))
            return -1;
        for (uint64_t i = 0; i < count && result == 0; i++) {
            uint32_t length = le32toh(lengths[i]);

            if (!boundaries)
                result = put_number(w->idx.stream, offset, 8);
            else if (length & LAST)
                result = put_number(w->idx.stream, first + i + 1, 8);
            offset += width * (length & ~LAST);
            lengths[i] = htole32(length & ~LAST);
        }
        if (boundaries && pwrite(fileno(w->idx.stream), lengths, 4 * count, at) != (ssize_t)(4 * count))
            return -1;
    }
    return result;
}

int indexed_writer_commit(struct indexed_writer *w, struct error *err)
{
    const struct data_output *const files[] = {&w->bin, &w->idx};

    if (w->facts.documents == 0 || w->sequence > 0)
        return error_set(err, CODE_INTERNAL, "%s: committed without a document, or within one", w->idx.path);
    if (fflush(w->idx.stream) == EOF || fseeko(w->idx.stream, 0, SEEK_END) < 0 || append_table(w, false) < 0 ||
        append_table(w, true) < 0 || fseek(w->idx.stream, 0, SEEK_SET) < 0 || put_header(w->idx.stream, &w->facts) < 0)
        return output_fail(&w->idx, err);
    for (int i = 0; i < 2; i++)
        if (fflush(files[i]->stream) == EOF || fsync(fileno(files[i]->stream)) < 0)
            return output_fail(files[i], err);
    for (int i = 0; i < 2; i++)
        if (rename(files[i]->temporary, files[i]->path) < 0)
            return error_errno(err, CODE_IO, "cannot rename %s to %s", files[i]->temporary, files[i]->path);
    w->committed = true;
    if (io_sync_parent(w->idx.path) < 0)
        return error_errno(err, CODE_IO, "cannot sync the directory of %s", w->idx.path);
    return 0;
}

struct indexed_facts indexed_writer_facts(const struct indexed_writer *w)
{
    return w->facts;
}

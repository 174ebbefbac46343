#include "trainer/data/text_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "common/text.h"

#define INPUT_SIZE   ((size_t)1 << 18)
#define STOP_LATENCY 200 /* milliseconds */

enum compression { COMPRESSION_NONE, COMPRESSION_GZIP, COMPRESSION_ZSTD };

struct text_source {
    const char *name; /* of the text, for messages */
    const volatile sig_atomic_t *stop;
    int fd;
    enum compression compression;
    uint64_t taken;  /* bytes read from the file */
    bool ended;      /* the file has no more bytes */
    bool inside;     /* within a member or a frame: the data must go on */
    size_t at, used; /* what has been read and not been used: input[at, used) */
    z_stream gzip;
    ZSTD_DStream *zstd;
    char input[INPUT_SIZE];
};

uint64_t text_source_taken(const struct text_source *source)
{
    return source->taken;
}

/* Like read, but does not block for long: a signal just before a blocking read of a pipe would not interrupt it. */
static ssize_t read_some(const struct text_source *s, void *buffer, size_t bytes)
{
    struct pollfd ready = {.fd = s->fd, .events = POLLIN};

    while (s->stop) {
        int count = *s->stop ? -1 : poll(&ready, 1, STOP_LATENCY);

        if (count > 0)
            break;
        if (*s->stop)
            errno = EINTR;
        if (count < 0)
            return -1;
    }
    return read(s->fd, buffer, bytes);
}

/* Reads until the buffer is full or the file ends. */
static ssize_t read_file(struct text_source *s, char *buffer, size_t bytes, struct error *err)
{
    size_t done = 0;

    while (done < bytes && !s->ended) {
        ssize_t got = read_some(s, buffer + done, bytes - done);

        if (s->stop && *s->stop)
            return error_set(err, CODE_STOPPED, "stopped by a signal; nothing was kept");
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_errno(err, CODE_IO, "cannot read %s, offset %" PRIu64, s->name, s->taken);
        s->ended = got == 0;
        s->taken += (uint64_t)got;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bool has_bytes(const struct text_source *s, size_t at, const char *magic, size_t bytes)
{
    return s->used >= at + bytes && memcmp(s->input + at, magic, bytes) == 0;
}

/* A file of Zstandard may begin with a skippable frame, 0x184D2A50 to 5F: pzstd's do. */
static enum compression find_compression(const struct text_source *s)
{
    bool skippable = has_bytes(s, 1, "\x2a\x4d\x18", 3) && (s->input[0] & 0xf0) == 0x50;

    return has_bytes(s, 0, "\x1f\x8b", 2)                        ? COMPRESSION_GZIP
           : skippable || has_bytes(s, 0, "\x28\xb5\x2f\xfd", 4) ? COMPRESSION_ZSTD
                                                                 : COMPRESSION_NONE;
}

/* The format of a file that is neither text nor compressed by gzip or zstd, by its first bytes; NULL for others. */
static const char *find_binary(const struct text_source *s)
{
    static const struct {
        size_t at, bytes;
        const char *magic, *name;
    } kinds[] = {
        {0, 6, "\xfd\x37zXZ\0", "xz"}, {4, 6, "1AY&SY", "bzip2"},     {0, 4, "\x04\x22\x4d\x18", "lz4"},
        {0, 4, "PK\3\4", "zip"},       {0, 4, "7z\xbc\xaf", "7-Zip"}, {0, 5, "PAR1\x15", "Parquet"},
        {0, 7, "ARROW1\0", "Arrow"},
    };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (has_bytes(s, kinds[i].at, kinds[i].magic, kinds[i].bytes))
            return kinds[i].name;
    return NULL;
}

static int begin_compression(struct text_source *s, const char *path, struct error *err)
{
    ssize_t got = read_file(s, s->input, sizeof s->input, err);

    if (got < 0)
        return -1;
    s->used = (size_t)got;
    s->compression = find_compression(s);
    if (find_binary(s))
        return error_set(err, CODE_DATA,
                         "%s, offset 0: a file of %s: give its text, plain or compressed by gzip or zstd", s->name,
                         find_binary(s));
    if (s->used > 0 && ((text_ends_with(path, ".gz") && s->compression != COMPRESSION_GZIP) ||
                        (text_ends_with(path, ".zst") && s->compression != COMPRESSION_ZSTD)))
        return error_set(err, CODE_DATA, "%s, offset 0: not compressed as its name says: rename it, or compress it",
                         s->name);
    if (s->compression == COMPRESSION_GZIP && inflateInit2(&s->gzip, 16 + MAX_WBITS) != Z_OK)
        return error_set(err, CODE_IO, "no memory to read %s", s->name);
    /* 31: also what "zstd --long=31" wrote; its window of 2 GiB is allocated for such files only. */
    if (s->compression == COMPRESSION_ZSTD &&
        (!(s->zstd = ZSTD_createDStream()) || ZSTD_isError(ZSTD_DCtx_setParameter(s->zstd, ZSTD_d_windowLogMax, 31))))
        return error_set(err, CODE_IO, "no memory to read %s", s->name);
    return 0;
}

struct text_source *text_source_open(const char *path, const volatile sig_atomic_t *stop, struct error *err)
{
    struct text_source *s = error_calloc(1, sizeof *s, err);
    bool standard = strcmp(path, "-") == 0;

    if (!s)
        return NULL;
    s->name = standard ? "standard input" : path;
    s->stop = stop;
    s->fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0)
        error_errno(err, CODE_DATA, "cannot read %s", path);
    if (s->fd < 0 || begin_compression(s, path, err) < 0) {
        text_source_close(s);
        return NULL;
    }
    return s;
}

void text_source_close(struct text_source *s)
{
    if (!s)
        return;
    if (s->compression == COMPRESSION_GZIP)
        inflateEnd(&s->gzip);
    ZSTD_freeDStream(s->zstd);
    if (s->fd > STDIN_FILENO)
        close(s->fd);
    free(s);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* CODE_DATA at the place in the file that was reached. */
static int refuse_data(const struct text_source *s, const char *what, struct error *err)
{
    return error_set(err, CODE_DATA, "%s, offset %" PRIu64 ": %s", s->name, s->taken - (s->used - s->at), what);
}

/* Takes what has been read and decompresses it to buffer[*done, bytes). */
static int inflate_some(struct text_source *s, char *buffer, size_t bytes, size_t *done, struct error *err)
{
    size_t room = bytes - *done < UINT32_MAX ? bytes - *done : UINT32_MAX;
    int status;

    if (!s->inside && s->gzip.total_in > 0 && inflateReset(&s->gzip) != Z_OK)
        return refuse_data(s, "zlib cannot go on", err);
    if (!s->inside && (uint8_t)s->input[s->at] != 0x1f)
        return refuse_data(s, "bytes that are not gzip's after the end of the compressed text", err);
    s->inside = true;
    s->gzip.next_in = (Bytef *)s->input + s->at;
    s->gzip.avail_in = (uInt)(s->used - s->at);
    s->gzip.next_out = (Bytef *)buffer + *done;
    s->gzip.avail_out = (uInt)room;
    status = inflate(&s->gzip, Z_NO_FLUSH);
    s->at = s->used - s->gzip.avail_in;
    *done += room - s->gzip.avail_out;
    if (status == Z_MEM_ERROR)
        return error_set(err, CODE_IO, "no memory to read %s", s->name);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
        return refuse_data(s, s->gzip.msg ? s->gzip.msg : "broken gzip data", err);
    s->inside = status != Z_STREAM_END;
    return 0;
}

static int unzstd_some(struct text_source *s, char *buffer, size_t bytes, size_t *done, struct error *err)
{
    ZSTD_inBuffer in = {.src = s->input, .size = s->used, .pos = s->at};
    ZSTD_outBuffer out = {.dst = buffer, .size = bytes, .pos = *done};
    size_t status = ZSTD_decompressStream(s->zstd, &out, &in);

    s->at = in.pos;
    *done = out.pos;
    if (ZSTD_isError(status))
        return refuse_data(s, ZSTD_getErrorName(status), err);
    s->inside = status != 0;
    return 0;
}

ssize_t text_source_read(struct text_source *s, void *buffer, size_t bytes, struct error *err)
{
    size_t done = 0;

    if (s->compression == COMPRESSION_NONE) {
        ssize_t got;

        done = s->used - s->at < bytes ? s->used - s->at : bytes;
        memcpy(buffer, s->input + s->at, done);
        s->at += done;
        got = read_file(s, (char *)buffer + done, bytes - done, err);
        return got < 0 ? -1 : (ssize_t)done + got;
    }
    while (done < bytes) {
        size_t before = done;
        ssize_t got;

        if (s->at < s->used || s->inside) { /* inside: a decompressor may hold text back */
            if ((s->compression == COMPRESSION_GZIP ? inflate_some(s, buffer, bytes, &done, err)
                                                    : unzstd_some(s, buffer, bytes, &done, err)) < 0)
                return -1;
            if (done > before || s->at < s->used)
                continue;
        }
        got = read_file(s, s->input, sizeof s->input, err);
        if (got < 0)
            return -1;
        s->at = 0;
        s->used = (size_t)got;
        if (got == 0 && s->inside)
            return refuse_data(s, "the compressed text ends early: the file is not complete", err);
        if (got == 0)
            break;
    }
    return (ssize_t)done;
}

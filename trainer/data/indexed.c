#include "trainer/data/indexed.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "common/io.h"

#define CHUNK_SIZE 16384

enum { BLOCKS = 64, BLOCK_SIZE = 4096 }; /* of indexed_blocks: with others, records of checkpoints (blend.h) differ */

struct data_file {
    int fd;
    uint64_t size;
    char path[PATH_MAX];
};

struct indexed {
    struct data_file bin, idx;
    struct indexed_facts facts;
    unsigned width; /* bytes a token */
};

size_t indexed_width(enum indexed_type type)
{
    return type == INDEXED_U8 ? 1 : type == INDEXED_U16 ? 2 : 4;
}

void indexed_pack(enum indexed_type type, const int32_t *ids, size_t count, void *tokens)
{
    size_t width = indexed_width(type);
    uint8_t *at = tokens;

    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < width; k++)
            *at++ = (uint8_t)((uint32_t)ids[i] >> 8 * k);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static int open_file(struct data_file *file, const char *prefix, const char *suffix, struct error *err)
{
    struct stat status;

    if (snprintf(file->path, sizeof file->path, "%s%s", prefix, suffix) >= (int)sizeof file->path)
        return error_set(err, CODE_DATA, "%.200s...: this prefix of a data set is too long", prefix);
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    if (file->fd < 0 && errno == ENOENT)
        return error_set(err, CODE_DATA, "there is no %s; give the prefix of a .bin and .idx made by muster-data",
                         file->path);
    if (file->fd < 0)
        return error_errno(err, CODE_IO, "cannot open %s", file->path);
    if (fstat(file->fd, &status) < 0)
        return error_errno(err, CODE_IO, "%s", file->path);
    if (!S_ISREG(status.st_mode))
        return error_set(err, CODE_DATA, "%s is not a regular file", file->path);
    file->size = (uint64_t)status.st_size;
    return 0;
}

static int read_file(const struct data_file *file, uint64_t offset, void *buffer, size_t size, struct error *err)
{
    ssize_t got = io_read_at(file->fd, buffer, size, (off_t)offset);

    if (got < 0)
        return error_errno(err, CODE_IO, "%s, offset %" PRIu64, file->path, offset);
    if ((size_t)got < size)
        return error_set(err, CODE_DATA, "%s ends at offset %" PRIu64 "; it had %" PRIu64 " bytes when it was opened",
                         file->path, offset + (uint64_t)got, file->size);
    return 0;
}

/* ---- the index --------------------------------------------------------------------------------------------------- */

/* A little-endian number of so many bytes, at most 8. */
static inline uint64_t get_number(const unsigned char *bytes, size_t count)
{
    uint64_t value = 0;

    memcpy(&value, bytes, count);
    return le64toh(value);
}

static int check_header(struct indexed *x, struct error *err)
{
    const char *path = x->idx.path;
    unsigned char header[INDEXED_HEADER_SIZE];
    uint64_t version, sequences, boundaries;

    if (x->idx.size < sizeof header)
        return error_set(err, CODE_DATA, "%s has %" PRIu64 " bytes; the header alone has %zu", path, x->idx.size,
                         sizeof header);
    if (read_file(&x->idx, 0, header, sizeof header, err) < 0)
        return -1;
    if (memcmp(header, INDEXED_MAGIC, 9) != 0)
        return error_set(err, CODE_DATA, "%s, offset 0: not \"MMIDIDX\"; this is not the index of a data set", path);
    version = get_number(header + 9, 8);
    if (version != INDEXED_VERSION)
        return error_set(err, CODE_DATA, "%s, offset 9: version %" PRIu64 "; version 1 is supported", path, version);
    x->width = (unsigned)indexed_width(header[17]);
    if (header[17] != INDEXED_U8 && header[17] != INDEXED_I32 && header[17] != INDEXED_U16)
        return error_set(err, CODE_DATA,
                         "%s, offset 17: token type %d; 1 (uint8), 4 (int32) and 8 (uint16) are supported", path,
                         header[17]);
    sequences = get_number(header + 18, 8);
    boundaries = get_number(header + 26, 8);
    if (sequences < 1 || sequences > x->idx.size) /* so that the sum below cannot overflow */
        return error_set(err, CODE_DATA, "%s, offset 18: %" PRIu64 " sequences in %" PRIu64 " bytes", path, sequences,
                         x->idx.size);
    if (boundaries < 2 || boundaries > x->idx.size)
        return error_set(err, CODE_DATA,
                         "%s, offset 26: %" PRIu64 " document boundaries in %" PRIu64 " bytes; at least 2", path,
                         boundaries, x->idx.size);
    if (x->idx.size != INDEXED_HEADER_SIZE + 12 * sequences + 8 * boundaries)
        return error_set(
            err, CODE_DATA,
            "%s has %" PRIu64 " bytes; %" PRIu64 " sequences and %" PRIu64 " document boundaries take %" PRIu64, path,
            x->idx.size, sequences, boundaries, INDEXED_HEADER_SIZE + 12 * sequences + 8 * boundaries);
    x->facts = (struct indexed_facts){.type = header[17],
                                      .sequences = sequences,
                                      .documents = boundaries - 1,
                                      .checksum = crc32c(0, header, sizeof header)};
    return 0;
}

/* Reads lengths and offsets side by side: each sequence must begin where the previous one ended. */
static int check_sequences(struct indexed *x, struct error *err)
{
    unsigned char lengths[CHUNK_SIZE / 4], begins[CHUNK_SIZE / 2];
    const uint64_t per_chunk = sizeof lengths / 4, count = x->facts.sequences;
    const uint64_t begins_at = INDEXED_HEADER_SIZE + 4 * count;

    for (uint64_t i = 0; i < count; i++) {
        uint64_t k = i % per_chunk, here = count - i < per_chunk ? count - i : per_chunk;
        uint64_t begin;
        int32_t length;

        if (k == 0 && (read_file(&x->idx, INDEXED_HEADER_SIZE + 4 * i, lengths, 4 * here, err) < 0 ||
                       read_file(&x->idx, begins_at + 8 * i, begins, 8 * here, err) < 0))
            return -1;
        if (k == 0)
            x->facts.checksum = crc32c(x->facts.checksum, lengths, 4 * here);
        length = (int32_t)get_number(lengths + 4 * k, 4);
        begin = get_number(begins + 8 * k, 8);
        if (length < 0)
            return error_set(err, CODE_DATA, "%s, offset %" PRIu64 ": sequence %" PRIu64 " has length %" PRId32,
                             x->idx.path, INDEXED_HEADER_SIZE + 4 * i, i, length);
        if (begin != x->facts.tokens * x->width)
            return error_set(err, CODE_DATA,
                             "%s, offset %" PRIu64 ": sequence %" PRIu64 " begins at byte %" PRId64
                             "; the one before it ends at %" PRIu64,
                             x->idx.path, begins_at + 8 * i, i, (int64_t)begin, x->facts.tokens * x->width);
        x->facts.tokens += (uint64_t)length;
        if ((uint64_t)length > x->facts.longest)
            x->facts.longest = (uint64_t)length;
    }
    return 0;
}

static int check_documents(struct indexed *x, struct error *err)
{
    unsigned char chunk[CHUNK_SIZE];
    const uint64_t per_chunk = sizeof chunk / 8, count = x->facts.documents + 1;
    const uint64_t at = INDEXED_HEADER_SIZE + 12 * x->facts.sequences;
    uint64_t before = 0;

    for (uint64_t i = 0; i < count; i++) {
        uint64_t k = i % per_chunk, here = count - i < per_chunk ? count - i : per_chunk;
        uint64_t begin;

        if (k == 0 && read_file(&x->idx, at + 8 * i, chunk, 8 * here, err) < 0)
            return -1;
        if (k == 0)
            x->facts.checksum = crc32c(x->facts.checksum, chunk, 8 * here);
        begin = get_number(chunk + 8 * k, 8);
        if ((i == 0 && begin != 0) || begin < before || (i == count - 1 && begin != x->facts.sequences) ||
            begin > x->facts.sequences)
            return error_set(err, CODE_DATA,
                             "%s, offset %" PRIu64 ": document boundary %" PRIu64 " is at sequence %" PRId64
                             "; boundaries must increase from 0 to %" PRIu64,
                             x->idx.path, at + 8 * i, i, (int64_t)begin, x->facts.sequences);
        if (begin - before > x->facts.longest_document)
            x->facts.longest_document = begin - before;
        before = begin;
    }
    return 0;
}

struct indexed *indexed_open(const char *prefix, struct error *err)
{
    struct indexed *x = error_calloc(1, sizeof *x, err);

    if (!x)
        return NULL;
    x->bin.fd = x->idx.fd = -1;
    if (open_file(&x->idx, prefix, ".idx", err) < 0 || open_file(&x->bin, prefix, ".bin", err) < 0 ||
        check_header(x, err) < 0 || check_sequences(x, err) < 0 || check_documents(x, err) < 0)
        goto fail;
    if (x->bin.size != x->facts.tokens * x->width) {
        error_set(err, CODE_DATA, "%s has %" PRIu64 " bytes; by its index %" PRIu64 " tokens of %u bytes: %" PRIu64,
                  x->bin.path, x->bin.size, x->facts.tokens, x->width, x->facts.tokens * x->width);
        goto fail;
    }
    return x;

fail:
    indexed_close(x);
    return NULL;
}

void indexed_close(struct indexed *x)
{
    if (!x)
        return;
    if (x->bin.fd >= 0)
        close(x->bin.fd);
    if (x->idx.fd >= 0)
        close(x->idx.fd);
    free(x);
}

struct indexed_facts indexed_facts(const struct indexed *x)
{
    return x->facts;
}

/* The index was valid when it was opened. */
static int index_changed(const struct indexed *x, uint64_t offset, struct error *err)
{
    return error_set(err, CODE_DATA, "%s, offset %" PRIu64 ": changed since it was opened", x->idx.path, offset);
}

int indexed_lengths(const struct indexed *x, uint64_t first, size_t count, int32_t *lengths, struct error *err)
{
    uint64_t offset = INDEXED_HEADER_SIZE + 4 * first;

    if (first > x->facts.sequences || count > x->facts.sequences - first)
        return error_set(err, CODE_INTERNAL, "%s: sequence %" PRIu64 " of %" PRIu64 " was asked for", x->idx.path,
                         first + count, x->facts.sequences);
    if (read_file(&x->idx, offset, lengths, 4 * count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        lengths[i] = (int32_t)le32toh((uint32_t)lengths[i]);
        if (lengths[i] < 0 || (uint64_t)lengths[i] > x->facts.longest)
            return index_changed(x, offset + 4 * i, err);
    }
    return 0;
}

int indexed_boundaries(const struct indexed *x, uint64_t first, size_t count, uint64_t *boundaries, struct error *err)
{
    uint64_t offset = INDEXED_HEADER_SIZE + 12 * x->facts.sequences + 8 * first;

    if (first > x->facts.documents + 1 || count > x->facts.documents + 1 - first)
        return error_set(err, CODE_INTERNAL, "%s: document boundary %" PRIu64 " of %" PRIu64 " was asked for",
                         x->idx.path, first + count, x->facts.documents + 1);
    if (read_file(&x->idx, offset, boundaries, 8 * count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        boundaries[i] = le64toh(boundaries[i]);
        if (boundaries[i] > x->facts.sequences || (i > 0 && boundaries[i] < boundaries[i - 1]))
            return index_changed(x, offset + 8 * i, err);
    }
    return 0;
}

int indexed_document_begin(const struct indexed *x, uint64_t document, uint64_t *token, struct error *err)
{
    uint64_t sequence, offset;
    unsigned char bytes[8];

    *token = x->facts.tokens;
    if (indexed_boundaries(x, document, 1, &sequence, err) < 0)
        return -1;
    if (sequence == x->facts.sequences)
        return 0;
    offset = INDEXED_HEADER_SIZE + 4 * x->facts.sequences + 8 * sequence;
    if (read_file(&x->idx, offset, bytes, sizeof bytes, err) < 0)
        return -1;
    *token = get_number(bytes, 8) / x->width;
    return *token <= x->facts.tokens ? 0 : index_changed(x, offset, err);
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

int indexed_refuse(const struct indexed *x, uint64_t position, int32_t token, struct error *err, const char *why, ...)
{
    char text[200];
    va_list args;

    va_start(args, why);
    vsnprintf(text, sizeof text, why, args);
    va_end(args);
    return error_set(err, CODE_DATA, "%s, offset %" PRIu64 ": token %" PRIu64 " is %" PRId32 "; %s", x->bin.path,
                     position * x->width, position, token, text);
}

int indexed_read(const struct indexed *x, uint64_t first, size_t count, int vocab, int32_t *tokens, struct error *err)
{
    unsigned char bytes[CHUNK_SIZE];

    if (first > x->facts.tokens || count > x->facts.tokens - first)
        return error_set(err, CODE_INTERNAL, "%s: tokens %" PRIu64 " to %" PRIu64 " of %" PRIu64 " were asked for",
                         x->bin.path, first, first + count, x->facts.tokens);
    for (size_t done = 0; done < count;) {
        size_t here = count - done < sizeof bytes / x->width ? count - done : sizeof bytes / x->width;

        if (read_file(&x->bin, (first + done) * x->width, bytes, here * x->width, err) < 0)
            return -1;
        for (size_t i = 0; i < here; i++, done++) {
            tokens[done] = (int32_t)get_number(bytes + i * x->width, x->width);
            if (vocab == INDEXED_ANY && tokens[done] < 0)
                return indexed_refuse(x, first + done, tokens[done], err, "a token is 0 or more");
            if (tokens[done] < 0 || tokens[done] >= vocab)
                return indexed_refuse(x, first + done, tokens[done], err, "with model.vocab = %d tokens are 0 to %d",
                                      vocab, vocab - 1);
        }
    }
    return 0;
}

int indexed_blocks(const struct indexed *x, uint32_t *checksum, struct error *err)
{
    const uint64_t size = x->bin.size, last = size > BLOCK_SIZE ? size - BLOCK_SIZE : 0;
    unsigned char block[BLOCK_SIZE];

    *checksum = 0;
    for (uint64_t i = 0, next = 0; i < BLOCKS && next < size; i++) {
        uint64_t spread = last * i / (BLOCKS - 1), begin = spread > next ? spread : next;
        size_t here = size - begin < BLOCK_SIZE ? (size_t)(size - begin) : BLOCK_SIZE;

        if (read_file(&x->bin, begin, block, here, err) < 0)
            return -1;
        *checksum = crc32c(*checksum, block, here);
        next = begin + here;
    }
    return 0;
}

/* ---- documents --------------------------------------------------------------------------------------------------- */

/* The first document that begins at `token` or after it; D if none does. */
static int find_document(const struct indexed *x, uint64_t token, uint64_t *document, struct error *err)
{
    uint64_t low = 0, high = x->facts.documents;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2, begin;

        if (indexed_document_begin(x, middle, &begin, err) < 0)
            return -1;
        if (begin < token)
            low = middle + 1;
        else
            high = middle;
    }
    *document = low;
    return 0;
}

int indexed_document_flags(const struct indexed *x, uint64_t first, size_t count, int32_t *begins, struct error *err)
{
    uint64_t document, begin;

    memset(begins, 0, count * sizeof *begins);
    if (find_document(x, first, &document, err) < 0)
        return -1;
    for (; document < x->facts.documents; document++) {
        if (indexed_document_begin(x, document, &begin, err) < 0)
            return -1;
        if (begin - first >= count)
            break;
        begins[begin - first] = 1;
    }
    return 0;
}

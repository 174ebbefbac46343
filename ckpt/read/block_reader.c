#include "config.h"

#include "ckpt/read/block_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/crc32c.h"

struct open_shard {
    int shard; /* -1: none */
    bool direct;
    int users;               /* threads that read it now */
    pthread_mutex_t opening; /* for fd, which another thread may be about to open */
    int fd;                  /* -1 until then */
};

struct block_reader {
    const struct ckpt *ckpt;
    int threads;
    pthread_mutex_t lock;     /* for all of files[] but fd */
    struct open_shard *files; /* [threads]: each thread uses one at a time, so there is always a free one */
    void **buffers;           /* [threads] NULL before their first use */
};

struct block_reader *block_reader_create(const struct ckpt *ckpt, int threads, struct error *err)
{
    struct block_reader *reader = error_calloc(1, sizeof *reader, err);

    if (!reader)
        return NULL;
    *reader = (struct block_reader){.ckpt = ckpt, .threads = threads, .lock = PTHREAD_MUTEX_INITIALIZER};
    reader->files = error_calloc((size_t)threads, sizeof *reader->files, err);
    reader->buffers = error_calloc((size_t)threads, sizeof *reader->buffers, err);
    if (!reader->files || !reader->buffers) {
        free(reader->files);
        free(reader->buffers);
        free(reader);
        return NULL;
    }
    for (int i = 0; i < threads; i++)
        reader->files[i] = (struct open_shard){.shard = -1, .fd = -1, .opening = PTHREAD_MUTEX_INITIALIZER};
    return reader;
}

void block_reader_destroy(struct block_reader *reader)
{
    if (!reader)
        return;
    for (int i = 0; i < reader->threads; i++) {
        if (reader->files[i].fd >= 0)
            close(reader->files[i].fd);
        free(reader->buffers[i]);
    }
    free(reader->files);
    free(reader->buffers);
    free(reader);
}

void *block_reader_buffer(struct block_reader *reader, int thread, struct error *err)
{
    if (!reader->buffers[thread] && !(reader->buffers[thread] = aligned_alloc(SHARD_ALIGN, SHARD_BLOCK)))
        error_errno(err, CODE_IO, "a buffer of %zu bytes", SHARD_BLOCK);
    return reader->buffers[thread];
}

/* ---- open files -------------------------------------------------------------------------------------------------- */

/* The file of that shard, or a free place for it, which drops the earliest shard that no thread reads. Locked. */
static struct open_shard *choose_file(struct block_reader *reader, int shard, bool direct)
{
    struct open_shard *best = NULL;

    for (struct open_shard *file = reader->files; file < reader->files + reader->threads; file++) {
        if (file->shard == shard && file->direct == direct)
            return file;
        if (file->users == 0 && (!best || file->shard < best->shard))
            best = file;
    }
    if (best->fd >= 0)
        close(best->fd);
    best->fd = -1;
    best->shard = shard;
    best->direct = direct;
    return best;
}

/* The header is not read with O_DIRECT, which would want an aligned buffer: the flag comes after it. */
static int open_file(const struct ckpt *ckpt, int shard, bool direct, struct error *err)
{
    int fd = checkpoint_open_shard(ckpt, shard, err), flags;

    if (fd >= 0 && direct && (flags = fcntl(fd, F_GETFL)) >= 0)
        fcntl(fd, F_SETFL, flags | O_DIRECT); /* where the file system refuses, reads go through the page cache */
    return fd;
}

/* Each user gives it back with release_file. */
static struct open_shard *acquire_file(struct block_reader *reader, int shard, bool direct, int *fd, struct error *err)
{
    struct open_shard *file;

    pthread_mutex_lock(&reader->lock);
    file = choose_file(reader, shard, direct);
    file->users++;
    pthread_mutex_unlock(&reader->lock);
    /* Opened without the reader's lock: on a network file system other threads open other shards meanwhile. */
    pthread_mutex_lock(&file->opening);
    if (file->fd < 0)
        file->fd = open_file(reader->ckpt, shard, direct, err);
    *fd = file->fd;
    pthread_mutex_unlock(&file->opening);
    return file;
}

static void release_file(struct block_reader *reader, struct open_shard *file)
{
    pthread_mutex_lock(&reader->lock);
    file->users--;
    pthread_mutex_unlock(&reader->lock);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* With O_DIRECT a read must be of whole sectors; the last one of the file comes back short. */
static int read_direct(int fd, void *buffer, size_t bytes, uint64_t offset)
{
    size_t rounded = (bytes + SHARD_ALIGN - 1) / SHARD_ALIGN * SHARD_ALIGN;
    ssize_t got;

    do
        got = pread(fd, buffer, rounded, (off_t)offset);
    while (got < 0 && errno == EINTR);
    return got >= 0 && (size_t)got == bytes ? 0 : -1;
}

static int read_block(const struct ckpt *ckpt, const struct block_place *place, int fd, bool direct, void *buffer,
                      struct error *err)
{
    const struct manifest_shard *of = &ckpt->manifest->shard[place->shard];
    uint64_t offset = of->data_offset + place->block * SHARD_BLOCK;
    size_t bytes = shard_block_bytes(&of->layout, place->block);
    char name[FILE_NAME_SIZE];
    uint32_t crc;

    name_shard(name, SHARD_DATA, place->shard, ckpt->manifest->shards);
    if (!direct || read_direct(fd, buffer, bytes, offset) < 0) {
        int flags = fcntl(fd, F_GETFL);

        if (flags >= 0 &&
            (flags & O_DIRECT)) /* refused or short: again through the page cache, with the reason if that fails */
            fcntl(fd, F_SETFL, flags & ~O_DIRECT);
        if (file_read_at(fd, buffer, bytes, offset, ckpt->directory.path, name, err) < 0)
            return -1;
    }
    crc = crc32c(0, buffer, bytes);
    if (crc != of->block_crcs[place->block])
        return error_set(err, CODE_DATA,
                         "%s/%s: checksum mismatch in bytes %" PRIu64 " to %" PRIu64 ": %08" PRIx32
                         ", the manifest says %08" PRIx32,
                         ckpt->directory.path, name, offset, offset + bytes, crc, of->block_crcs[place->block]);
    return 0;
}

int block_reader_read(struct block_reader *reader, const struct block_place *place, bool direct, void *buffer,
                      struct error *err)
{
    int fd, result = -1;
    struct open_shard *file = acquire_file(reader, place->shard, direct, &fd, err);

    if (fd >= 0)
        result = read_block(reader->ckpt, place, fd, direct, buffer, err);
    release_file(reader, file);
    return result;
}

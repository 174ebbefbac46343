#include "ckpt/read/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "ckpt/file/workers.h"
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

/* ---- ckpt_verify ------------------------------------------------------------------------------------------------- */

struct verify {
    const struct ckpt *ckpt;
    struct workers_progress progress; /* bytes of data */
    struct block_place *blocks;
    size_t count;
    struct block_reader *reader;
};

static int list_all(struct verify *verify, struct error *err)
{
    const struct manifest *manifest = verify->ckpt->manifest;
    size_t room = 0;

    for (int s = 0; s < manifest->shards; s++) {
        verify->progress.total += manifest->shard[s].layout.data_bytes;
        for (uint64_t block = 0; block < manifest->shard[s].layout.blocks; block++) {
            if (error_reserve(&verify->blocks, &room, verify->count, 1, sizeof *verify->blocks, err) < 0)
                return -1;
            verify->blocks[verify->count++] = (struct block_place){s, block};
        }
    }
    return 0;
}

static int verify_block(void *arg, int worker, size_t item, struct error *err)
{
    struct verify *verify = arg;
    const struct block_place *at = &verify->blocks[item];
    void *buffer = block_reader_buffer(verify->reader, worker, err);

    if (!buffer || block_reader_read(verify->reader, at, true, buffer, err) < 0)
        return -1;
    workers_progress_add(&verify->progress,
                         shard_block_bytes(&verify->ckpt->manifest->shard[at->shard].layout, at->block));
    return 0;
}

int ckpt_verify(struct ckpt *ckpt, int threads, void (*progress)(uint64_t done, uint64_t total, void *arg), void *arg,
                struct error *err)
{
    struct verify verify = {.ckpt = ckpt,
                            .progress = {.report = progress, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER}};
    int result = checkpoint_check_shards(ckpt, err); /* those without data have no block */

    threads = threads > WORKERS_MOST ? WORKERS_MOST : threads;
    if (result == 0)
        result = list_all(&verify, err);
    if (result == 0 && !(verify.reader = block_reader_create(ckpt, threads, err)))
        result = -1;
    if (result == 0)
        result = workers_run(threads, verify.count, verify_block, &verify, err);
    block_reader_destroy(verify.reader);
    free(verify.blocks);
    return result;
}

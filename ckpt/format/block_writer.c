#include "ckpt/format/block_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "common/thread.h"

#define THREADS 2

struct writer_thread {
    struct block_writer *writer;
    pthread_t thread;
    bool started;
    /* Under the lock: the block that the thread writes next, or NULL. */
    const unsigned char *pending;
    size_t bytes;
    uint64_t offset;
};

struct block_writer {
    const struct directory *directory;
    char name[FILE_NAME_SIZE], temporary[FILE_NAME_SIZE + 32];
    int fd;
    bool renamed, keep;
    uint64_t header_bytes, data_bytes, taken; /* taken: bytes of data so far */

    unsigned char *buffers[THREADS + 1]; /* block b is filled into buffer b % (THREADS + 1) */
    size_t fill;                         /* bytes in the next block's */
    uint64_t block;
    uint32_t *crcs; /* of blocks handed over */

    struct writer_thread threads[THREADS]; /* thread b % THREADS writes block b; some in flight make a disk faster */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock: */
    bool stop;
    int failure; /* errno of a write that failed */
};

static bool drop_direct(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && (flags & O_DIRECT) && fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

/*
 * Returns 0 or an errno. Where the filesystem took O_DIRECT at open but not now, or wrote an odd length, go on without.
 */
static int write_at(int fd, const unsigned char *data, size_t bytes, uint64_t offset)
{
    while (bytes > 0) {
        ssize_t done = pwrite(fd, data, bytes, (off_t)offset);

        if (done < 0 && (errno == EINTR || (errno == EINVAL && drop_direct(fd))))
            continue;
        if (done < 0)
            return errno;
        data += done;
        bytes -= (size_t)done;
        offset += (uint64_t)done;
        if (bytes > 0 && done % SHARD_ALIGN != 0)
            drop_direct(fd);
    }
    return 0;
}

static void *write_blocks(void *arg)
{
    struct writer_thread *own = arg;
    struct block_writer *writer = own->writer;

    pthread_mutex_lock(&writer->lock);
    for (;;) {
        int failure;

        while (!own->pending && !writer->stop)
            pthread_cond_wait(&writer->changed, &writer->lock);
        if (!own->pending)
            break;
        pthread_mutex_unlock(&writer->lock);
        failure = write_at(writer->fd, own->pending, own->bytes, own->offset);
        pthread_mutex_lock(&writer->lock);
        own->pending = NULL;
        if (failure)
            writer->failure = failure;
        pthread_cond_broadcast(&writer->changed);
    }
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

static int open_temporary(struct block_writer *writer, struct error *err)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;

    file_temporary_name(writer->temporary, sizeof writer->temporary, writer->name);
    writer->fd = openat(writer->directory->fd, writer->temporary, flags | O_DIRECT, 0666);
    if (writer->fd < 0 && errno == EINVAL) { /* some filesystems refuse O_DIRECT after having made the file */
        unlinkat(writer->directory->fd, writer->temporary, 0);
        writer->fd = openat(writer->directory->fd, writer->temporary, flags, 0666);
    }
    return writer->fd < 0 ? file_write_failed(writer->directory, writer->name, 0, err) : 0;
}

static int write_failed(struct block_writer *writer, int failure, struct error *err)
{
    errno = failure;
    return file_write_failed(writer->directory, writer->name, writer->header_bytes + writer->data_bytes, err);
}

/* Reserve the room and write the header. */
static int begin_file(struct block_writer *writer, const void *header, struct error *err)
{
    int failure;

    /* Not every filesystem can reserve; a full one fails here. */
    if (fallocate(writer->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)(writer->header_bytes + writer->data_bytes)) < 0 &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        return write_failed(writer, errno, err);
    memcpy(writer->buffers[0], header, writer->header_bytes);
    failure = write_at(writer->fd, writer->buffers[0], writer->header_bytes, 0);
    if (failure)
        return write_failed(writer, failure, err);
    for (size_t i = 0; i < THREADS && !failure && i * SHARD_BLOCK < writer->data_bytes; i++) {
        writer->threads[i].writer = writer;
        failure = thread_start(&writer->threads[i].thread, write_blocks, &writer->threads[i]);
        writer->threads[i].started = failure == 0;
    }
    if (failure) {
        errno = failure;
        return error_errno(err, CODE_IO, "%s/%s: cannot start a thread", writer->directory->path, writer->name);
    }
    return 0;
}

struct block_writer *block_writer_create(const struct directory *directory, const char *name, const void *header,
                                         size_t header_bytes, uint64_t data_bytes, struct error *err)
{
    struct block_writer *writer = error_calloc(1, sizeof *writer, err);

    if (!writer)
        return NULL;
    writer->directory = directory;
    writer->fd = -1;
    writer->header_bytes = header_bytes;
    writer->data_bytes = data_bytes;
    memcpy(writer->name, name, strnlen(name, sizeof writer->name - 1));
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->changed, NULL);
    writer->crcs = calloc(data_bytes / SHARD_BLOCK + 1, sizeof *writer->crcs);
    for (int i = 0; i <= THREADS; i++)
        if (!(writer->buffers[i] = aligned_alloc(SHARD_ALIGN, SHARD_BLOCK)) || !writer->crcs) {
            error_errno(err, CODE_IO, "%s/%s: %d buffers of %zu bytes", directory->path, name, THREADS + 1,
                        SHARD_BLOCK);
            goto fail;
        }
    if (open_temporary(writer, err) == 0 && begin_file(writer, header, err) == 0)
        return writer;
fail:
    block_writer_destroy(writer);
    return NULL;
}

/* Wait until the thread has nothing left to write. Returns 0 or the errno of a write that failed. Holds the lock. */
static int wait_idle(struct block_writer *writer, const struct writer_thread *thread)
{
    while (thread->pending)
        pthread_cond_wait(&writer->changed, &writer->lock);
    return writer->failure;
}

/* Give the next block to its thread, when that has written the one before. */
static int hand_over(struct block_writer *writer, const unsigned char *data, size_t bytes, uint32_t crc,
                     struct error *err)
{
    struct writer_thread *thread = &writer->threads[writer->block % THREADS];
    int failure;

    pthread_mutex_lock(&writer->lock);
    failure = wait_idle(writer, thread);
    if (!failure) {
        thread->pending = data;
        thread->bytes = bytes;
        thread->offset = writer->header_bytes + writer->block * SHARD_BLOCK;
        pthread_cond_broadcast(&writer->changed);
    }
    pthread_mutex_unlock(&writer->lock);
    if (failure)
        return write_failed(writer, failure, err);
    writer->crcs[writer->block++] = crc;
    return 0;
}

static unsigned char *next_buffer(const struct block_writer *writer)
{
    return writer->buffers[writer->block % (THREADS + 1)];
}

/* Hand over the filled buffer. The next one is free: its block went to the thread that hand_over has waited for. */
static int hand_over_buffer(struct block_writer *writer, struct error *err)
{
    unsigned char *buffer = next_buffer(writer);
    size_t padded = (writer->fill + SHARD_ALIGN - 1) / SHARD_ALIGN * SHARD_ALIGN;
    uint32_t crc = crc32c(0, buffer, writer->fill);

    memset(buffer + writer->fill, 0, padded - writer->fill); /* beyond the file's end, cut off when it is finished */
    if (hand_over(writer, buffer, padded, crc, err) < 0)
        return -1;
    writer->fill = 0;
    return 0;
}

int block_writer_lend(struct block_writer *writer, const void *block, size_t bytes, uint32_t crc, struct error *err)
{
    if (crc32c(0, block, bytes) != crc)
        return error_set(err, CODE_DATA,
                         "%s: the data has changed since its checksum was taken, in the block of %zu bytes at offset "
                         "%" PRIu64 " of the data",
                         writer->name, bytes, writer->block * SHARD_BLOCK);
    if (bytes % SHARD_ALIGN != 0) /* to be padded */
        return block_writer_put(writer, block, bytes, err);
    writer->taken += bytes;
    return hand_over(writer, block, bytes, crc, err);
}

int block_writer_put(struct block_writer *writer, const void *data, uint64_t bytes, struct error *err)
{
    for (const unsigned char *at = data; bytes > 0;) {
        unsigned char *to = next_buffer(writer) + writer->fill;
        size_t room = SHARD_BLOCK - writer->fill, run = bytes < room ? (size_t)bytes : room;

        if (run > writer->data_bytes - writer->taken)
            return error_set(err, CODE_INTERNAL, "%s: more data than announced", writer->name);
        if (at) {
            memcpy(to, at, run);
            at += run;
        } else {
            memset(to, 0, run);
        }
        bytes -= run;
        writer->taken += run;
        writer->fill += run;
        if (writer->fill == SHARD_BLOCK && hand_over_buffer(writer, err) < 0)
            return -1;
    }
    return 0;
}

/* Everything is in the file: cut off the padding, sync, give it its name. An fsync that failed is not tried again. */
static int complete_file(struct block_writer *writer, struct error *err)
{
    const char *path = writer->directory->path;

    if (ftruncate(writer->fd, (off_t)(writer->header_bytes + writer->data_bytes)) < 0)
        return error_errno(err, CODE_IO, "%s/%s: cannot cut to length", path, writer->name);
    if (fsync(writer->fd) < 0)
        return write_failed(writer, errno, err);
    if (renameat(writer->directory->fd, writer->temporary, writer->directory->fd, writer->name) < 0) {
        bool removed = errno == ENOENT;

        error_errno(err, CODE_IO, "%s/%s: cannot rename", path, writer->name);
        return removed ? 1 : -1;
    }
    writer->renamed = true;
    return 0;
}

int block_writer_finish(struct block_writer *writer, uint32_t *crcs, struct error *err)
{
    int failure = 0;

    if (writer->taken != writer->data_bytes)
        return error_set(err, CODE_INTERNAL, "%s: less data than announced", writer->name);
    if (writer->fill > 0 && hand_over_buffer(writer, err) < 0)
        return -1;
    pthread_mutex_lock(&writer->lock);
    for (int i = 0; i < THREADS; i++)
        failure = wait_idle(writer, &writer->threads[i]);
    pthread_mutex_unlock(&writer->lock);
    if (failure)
        return write_failed(writer, failure, err);
    if (crcs)
        memcpy(crcs, writer->crcs, writer->block * sizeof *crcs);
    return complete_file(writer, err);
}

void block_writer_keep(struct block_writer *writer)
{
    writer->keep = true;
}

static void name_kept(const struct block_writer *writer, char name[FILE_NAME_SIZE + 32])
{
    snprintf(name, FILE_NAME_SIZE + 32, "%s" BLOCKS_KEPT, writer->name);
}

/* All threads have ended. */
static bool keep_blocks(struct block_writer *writer)
{
    uint64_t whole = writer->data_bytes / SHARD_BLOCK; /* a last, shorter block is copied again */
    char kept[FILE_NAME_SIZE + 32];

    name_kept(writer, kept);
    whole = writer->block < whole ? writer->block : whole;
    return whole > 0 && !writer->failure &&
           ftruncate(writer->fd, (off_t)(writer->header_bytes + whole * SHARD_BLOCK)) == 0 && fsync(writer->fd) == 0 &&
           renameat(writer->directory->fd, writer->temporary, writer->directory->fd, kept) == 0;
}

int block_writer_resume(struct block_writer *writer, size_t *blocks, struct error *err)
{
    int at = writer->directory->fd, direct = fcntl(writer->fd, F_GETFL) & O_DIRECT;
    uint64_t header = writer->header_bytes, size;
    char kept[FILE_NAME_SIZE + 32];
    struct stat info;

    *blocks = 0;
    name_kept(writer, kept);
    if (renameat(at, kept, at, writer->temporary) < 0) /* only one process gets it */
        return 0;
    close(writer->fd);
    writer->fd = openat(at, writer->temporary, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | direct);
    if (writer->fd < 0 || fstat(writer->fd, &info) < 0)
        return write_failed(writer, errno, err);
    size = (uint64_t)info.st_size < header + writer->data_bytes ? (uint64_t)info.st_size : header + writer->data_bytes;
    *blocks = size > header ? (size_t)((size - header) / SHARD_BLOCK) : 0;
    writer->block = *blocks;
    writer->taken = *blocks * SHARD_BLOCK;
    return 0;
}

void block_writer_destroy(struct block_writer *writer)
{
    if (!writer)
        return;
    pthread_mutex_lock(&writer->lock);
    writer->stop = true;
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
    for (int i = 0; i < THREADS; i++)
        if (writer->threads[i].started)
            pthread_join(writer->threads[i].thread, NULL);
    if (writer->fd >= 0) {
        if (!writer->renamed && !(writer->keep && keep_blocks(writer)))
            unlinkat(writer->directory->fd, writer->temporary, 0);
        close(writer->fd);
    }
    pthread_mutex_destroy(&writer->lock);
    pthread_cond_destroy(&writer->changed);
    for (int i = 0; i <= THREADS; i++)
        free(writer->buffers[i]);
    free(writer->crcs);
    free(writer);
}

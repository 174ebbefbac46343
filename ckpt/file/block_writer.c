#include "config.h"

#include "ckpt/file/block_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/crc32c.h"

struct block_writer {
    const struct directory *directory;
    char name[FILE_NAME_SIZE], temporary[FILE_NAME_SIZE + 32];
    int fd;
    bool renamed;
    uint64_t header_bytes, data_bytes;

    unsigned char *buffers[2];
    int filling; /* the buffer that is the caller's; the other is the thread's */
    size_t fill; /* bytes in it */
    uint64_t block;
    uint32_t *crcs;           /* of blocks handed over */
    const uint32_t *expected; /* what they must be, or NULL */

    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock: the block that the thread writes next, or NULL. */
    const unsigned char *pending;
    size_t pending_bytes;
    uint64_t pending_offset;
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
    struct block_writer *writer = arg;

    pthread_mutex_lock(&writer->lock);
    for (;;) {
        int failure;

        while (!writer->pending && !writer->stop)
            pthread_cond_wait(&writer->changed, &writer->lock);
        if (!writer->pending)
            break;
        pthread_mutex_unlock(&writer->lock);
        failure = write_at(writer->fd, writer->pending, writer->pending_bytes, writer->pending_offset);
        pthread_mutex_lock(&writer->lock);
        writer->pending = NULL;
        if (failure)
            writer->failure = failure;
        pthread_cond_signal(&writer->changed);
    }
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

/* Signals are the trainer's business: none is delivered to this thread. */
static int start_thread(struct block_writer *writer)
{
    sigset_t all, before;
    int failure;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failure = pthread_create(&writer->thread, NULL, write_blocks, writer);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    writer->started = failure == 0;
    return failure;
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
    failure = start_thread(writer);
    if (failure) {
        errno = failure;
        return error_errno(err, CODE_IO, "%s/%s: cannot start a thread", writer->directory->path, writer->name);
    }
    return 0;
}

struct block_writer *block_writer_create(const struct directory *directory, const char *name, const void *header,
                                         size_t header_bytes, uint64_t data_bytes, struct error *err)
{
    struct block_writer *writer = calloc(1, sizeof *writer);

    if (!writer) {
        error_errno(err, CODE_IO, "%s/%s", directory->path, name);
        return NULL;
    }
    writer->directory = directory;
    writer->fd = -1;
    writer->header_bytes = header_bytes;
    writer->data_bytes = data_bytes;
    memcpy(writer->name, name, strnlen(name, sizeof writer->name - 1));
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->changed, NULL);
    writer->crcs = calloc(data_bytes / SHARD_BLOCK + 1, sizeof *writer->crcs);
    for (int i = 0; i < 2; i++)
        writer->buffers[i] = aligned_alloc(SHARD_ALIGN, SHARD_BLOCK);
    if (!writer->crcs || !writer->buffers[0] || !writer->buffers[1]) {
        error_errno(err, CODE_IO, "%s/%s: two buffers of %zu bytes", directory->path, name, SHARD_BLOCK);
        goto fail;
    }
    if (open_temporary(writer, err) == 0 && begin_file(writer, header, err) == 0)
        return writer;
fail:
    block_writer_destroy(writer);
    return NULL;
}

/* Wait until the thread has nothing left to write. Returns 0 or the errno of a write that failed. Holds the lock. */
static int wait_idle(struct block_writer *writer)
{
    while (writer->pending)
        pthread_cond_wait(&writer->changed, &writer->lock);
    return writer->failure;
}

/* Give the filled buffer to the thread and take the other one. */
static int hand_over(struct block_writer *writer, struct error *err)
{
    unsigned char *buffer = writer->buffers[writer->filling];
    size_t padded = (writer->fill + SHARD_ALIGN - 1) / SHARD_ALIGN * SHARD_ALIGN;
    int failure;

    writer->crcs[writer->block] = crc32c(0, buffer, writer->fill);
    if (writer->expected && writer->crcs[writer->block] != writer->expected[writer->block])
        return error_set(err, CODE_DATA,
                         "%s: the data has changed since its checksum was taken, in the block of %zu bytes at offset "
                         "%" PRIu64 " of the data",
                         writer->name, writer->fill, writer->block * SHARD_BLOCK);
    memset(buffer + writer->fill, 0, padded - writer->fill); /* beyond the file's end, cut off when it is finished */
    pthread_mutex_lock(&writer->lock);
    failure = wait_idle(writer);
    if (!failure) {
        writer->pending = buffer;
        writer->pending_bytes = padded;
        writer->pending_offset = writer->header_bytes + writer->block * SHARD_BLOCK;
        pthread_cond_signal(&writer->changed);
    }
    pthread_mutex_unlock(&writer->lock);
    if (failure)
        return write_failed(writer, failure, err);
    writer->filling ^= 1;
    writer->fill = 0;
    writer->block++;
    return 0;
}

int block_writer_put(struct block_writer *writer, const void *data, uint64_t bytes, struct error *err)
{
    const unsigned char *at = data;

    if (bytes > writer->data_bytes - (writer->block * SHARD_BLOCK + writer->fill))
        return error_set(err, CODE_INTERNAL, "%s: more data than announced", writer->name);
    while (bytes > 0) {
        size_t room = SHARD_BLOCK - writer->fill, run = bytes < room ? (size_t)bytes : room;

        if (at) {
            memcpy(writer->buffers[writer->filling] + writer->fill, at, run);
            at += run;
        } else {
            memset(writer->buffers[writer->filling] + writer->fill, 0, run);
        }
        writer->fill += run;
        bytes -= run;
        if (writer->fill == SHARD_BLOCK && hand_over(writer, err) < 0)
            return -1;
    }
    return 0;
}

void *block_writer_space(struct block_writer *writer, size_t *room)
{
    uint64_t left = writer->data_bytes - (writer->block * SHARD_BLOCK + writer->fill);

    *room = SHARD_BLOCK - writer->fill;
    if (left < *room)
        *room = (size_t)left;
    return writer->buffers[writer->filling] + writer->fill;
}

int block_writer_add(struct block_writer *writer, size_t bytes, struct error *err)
{
    writer->fill += bytes;
    return writer->fill == SHARD_BLOCK ? hand_over(writer, err) : 0;
}

void block_writer_expect(struct block_writer *writer, const uint32_t *crcs)
{
    writer->expected = crcs;
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
    int failure;

    if (writer->block * SHARD_BLOCK + writer->fill != writer->data_bytes)
        return error_set(err, CODE_INTERNAL, "%s: less data than announced", writer->name);
    if (writer->fill > 0 && hand_over(writer, err) < 0)
        return -1;
    pthread_mutex_lock(&writer->lock);
    failure = wait_idle(writer);
    pthread_mutex_unlock(&writer->lock);
    if (failure)
        return write_failed(writer, failure, err);
    memcpy(crcs, writer->crcs, writer->block * sizeof *crcs);
    return complete_file(writer, err);
}

void block_writer_destroy(struct block_writer *writer)
{
    if (!writer)
        return;
    if (writer->started) {
        pthread_mutex_lock(&writer->lock);
        writer->stop = true;
        pthread_cond_signal(&writer->changed);
        pthread_mutex_unlock(&writer->lock);
        pthread_join(writer->thread, NULL);
    }
    if (writer->fd >= 0) {
        close(writer->fd);
        if (!writer->renamed)
            unlinkat(writer->directory->fd, writer->temporary, 0);
    }
    pthread_mutex_destroy(&writer->lock);
    pthread_cond_destroy(&writer->changed);
    free(writer->buffers[0]);
    free(writer->buffers[1]);
    free(writer->crcs);
    free(writer);
}

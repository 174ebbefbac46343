/* verify.c - ckpt_verify: threads that take the next block from one counter until there is none, or one is wrong. */

#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/file/workers.h"
#include "ckpt/read/checkpoint.h"

struct verify {
    const struct ckpt *ckpt;
    void (*progress)(uint64_t done, uint64_t total, void *arg);
    void *arg;
    uint64_t total; /* bytes of data */

    pthread_mutex_t lock; /* for all below */
    int shard;            /* the next block to be taken is this */
    uint64_t block;
    uint64_t done;
    bool failed;
    int failed_shard; /* of all that fail, the first in the checkpoint's order is reported */
    uint64_t failed_block;
    struct error error;
};

/* The next block; false when there is none or something has failed. */
static bool take(struct verify *verify, int *shard, uint64_t *block)
{
    const struct manifest *manifest = verify->ckpt->manifest;
    bool taken = false;

    pthread_mutex_lock(&verify->lock);
    while (verify->shard < manifest->shards && verify->block >= manifest->shard[verify->shard].layout.blocks) {
        verify->shard++;
        verify->block = 0;
    }
    if (!verify->failed && verify->shard < manifest->shards) {
        *shard = verify->shard;
        *block = verify->block++;
        taken = true;
    }
    pthread_mutex_unlock(&verify->lock);
    return taken;
}

static void put_done(struct verify *verify, uint64_t bytes)
{
    pthread_mutex_lock(&verify->lock);
    verify->done += bytes;
    if (verify->progress)
        verify->progress(verify->done, verify->total, verify->arg);
    pthread_mutex_unlock(&verify->lock);
}

static void put_failure(struct verify *verify, int shard, uint64_t block, const struct error *err)
{
    pthread_mutex_lock(&verify->lock);
    if (!verify->failed || shard < verify->failed_shard ||
        (shard == verify->failed_shard && block < verify->failed_block)) {
        verify->failed = true;
        verify->failed_shard = shard;
        verify->failed_block = block;
        verify->error = *err;
    }
    pthread_mutex_unlock(&verify->lock);
}

static void *verify_blocks(void *arg)
{
    struct verify *verify = arg;
    void *buffer = aligned_alloc(SHARD_ALIGN, SHARD_BLOCK);
    int fd = -1, open_shard = -1, shard = 0;
    struct error err;
    uint64_t block = 0;

    if (!buffer) {
        error_errno(&err, CODE_IO, "a buffer of %zu bytes", SHARD_BLOCK);
        put_failure(verify, 0, 0, &err);
        return NULL;
    }
    while (take(verify, &shard, &block)) {
        if (shard != open_shard) {
            if (fd >= 0)
                close(fd);
            fd = checkpoint_open_shard(verify->ckpt, shard, true, &err);
            open_shard = shard;
        }
        if (fd < 0 || checkpoint_read_block(verify->ckpt, shard, fd, true, block, buffer, &err) < 0) {
            put_failure(verify, shard, block, &err);
            break;
        }
        put_done(verify, shard_block_bytes(&verify->ckpt->manifest->shard[shard].layout, block));
    }
    if (fd >= 0)
        close(fd);
    free(buffer);
    return NULL;
}

int ckpt_verify(struct ckpt *ckpt, int threads, void (*progress)(uint64_t done, uint64_t total, void *arg), void *arg,
                struct error *err)
{
    struct verify verify = {.ckpt = ckpt, .progress = progress, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER};

    if (checkpoint_check_all(ckpt, err) < 0) /* a shard without data would not be touched below */
        return -1;
    for (int i = 0; i < ckpt->manifest->shards; i++)
        verify.total += ckpt->manifest->shard[i].layout.data_bytes;
    workers_run(threads < 1 ? 1 : threads, verify_blocks, &verify);
    if (verify.failed && err)
        *err = verify.error;
    return verify.failed ? -1 : 0;
}

/* verify.c - ckpt_verify: all blocks of all shards, in runs that threads take one after the other. */
#include "config.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "ckpt/file/workers.h"
#include "ckpt/read/checkpoint.h"

#define RUN_BLOCKS 16 /* 64 MiB */

struct block_run {
    int shard;
    uint64_t block;
};

struct verify {
    const struct ckpt *ckpt;
    void (*progress)(uint64_t done, uint64_t total, void *arg);
    void *arg;
    uint64_t total; /* bytes of data */
    struct block_run *runs;
    size_t count;
    void *buffers[WORKERS_MOST]; /* a block for each thread */

    pthread_mutex_t lock;
    uint64_t done; /* under the lock */
};

static int list_runs(struct verify *verify, struct error *err)
{
    const struct manifest *manifest = verify->ckpt->manifest;
    size_t room = 0;

    for (int s = 0; s < manifest->shards; s++) {
        const struct shard_layout *layout = &manifest->shard[s].layout;

        verify->total += layout->data_bytes;
        for (uint64_t block = 0; block < layout->blocks; block += RUN_BLOCKS) {
            if (file_grow((void **)&verify->runs, verify->count, &room, sizeof *verify->runs) < 0)
                return error_errno(err, CODE_IO, "a list of %zu runs of blocks", verify->count + 1);
            verify->runs[verify->count++] = (struct block_run){s, block};
        }
    }
    return 0;
}

static void add_done(struct verify *verify, uint64_t bytes)
{
    pthread_mutex_lock(&verify->lock);
    verify->done += bytes;
    if (verify->progress)
        verify->progress(verify->done, verify->total, verify->arg);
    pthread_mutex_unlock(&verify->lock);
}

static int verify_run(void *arg, int worker, size_t item, struct error *err)
{
    struct verify *verify = arg;
    const struct block_run *run = &verify->runs[item];
    const struct shard_layout *layout = &verify->ckpt->manifest->shard[run->shard].layout;
    int fd, result = 0;

    if (!verify->buffers[worker])
        verify->buffers[worker] = aligned_alloc(SHARD_ALIGN, SHARD_BLOCK);
    if (!verify->buffers[worker])
        return error_errno(err, CODE_IO, "a buffer of %zu bytes", SHARD_BLOCK);
    fd = checkpoint_open_shard(verify->ckpt, run->shard, true, err);
    if (fd < 0)
        return -1;
    for (uint64_t b = run->block; b < run->block + RUN_BLOCKS && b < layout->blocks && result == 0; b++) {
        result = checkpoint_read_block(verify->ckpt, run->shard, fd, true, b, verify->buffers[worker], err);
        if (result == 0)
            add_done(verify, shard_block_bytes(layout, b));
    }
    close(fd);
    return result;
}

int ckpt_verify(struct ckpt *ckpt, int threads, void (*progress)(uint64_t done, uint64_t total, void *arg), void *arg,
                struct error *err)
{
    struct verify verify = {.ckpt = ckpt, .progress = progress, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER};
    int result = checkpoint_check_all(ckpt, err); /* shards without data have no run */

    if (result == 0)
        result = list_runs(&verify, err);
    if (result == 0)
        result = workers_run(threads, verify.count, verify_run, &verify, err);
    for (int i = 0; i < WORKERS_MOST; i++)
        free(verify.buffers[i]);
    free(verify.runs);
    return result;
}

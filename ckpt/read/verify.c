/* verify.c - ckpt_verify: reads and checks every block of every shard. */
#include "config.h"

#include <stdlib.h>

#include "ckpt/file/workers.h"
#include "ckpt/read/block_reader.h"

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
            if (file_grow((void **)&verify->blocks, verify->count, &room, sizeof *verify->blocks) < 0)
                return error_errno(err, CODE_IO, "a list of %zu blocks", verify->count + 1);
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

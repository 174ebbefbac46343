/* drain_shard.c - staged shards to the checkpoint directory: its directories, and each shard's data and part. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/drain/drain_internal.h"
#include "ckpt/file/workers.h"
#include "ckpt/format/block_writer.h"
#include "ckpt/write/attempt.h"

#define UNMAP_AFTER 4 /* blocks: the writer is done with one by then */
#define TRIES       3 /* if another drainer removes our temporary file */
#define OLD_SECONDS 60
#define ANY_AGE     (-86400) /* clocks differ */

#define ABANDONED_EVERY 0.5

/* ---- the pace ---------------------------------------------------------------------------------------------------- */

/* Called before a block of `bytes` is copied: counts them, waits as long as the cap requires, and checks twice a second
 * whether the attempt was abandoned. */
static int keep_pace(struct drain_turn *turn, uint64_t bytes, struct error *err)
{
    struct drainer *drainer = turn->drainer;
    struct drain_shared *shared = drainer->shared;
    double now = clock_monotonic(), at = now;
    bool check;

    pthread_mutex_lock(&drainer->mutex);
    if (drainer->options.cap > 0) {
        at = shared->cap_free > now ? shared->cap_free : now;
        shared->cap_free = at + (double)bytes / (double)drainer->options.cap;
    }
    check = now - turn->abandoned_checked >= ABANDONED_EVERY;
    if (check)
        turn->abandoned_checked = now;
    pthread_mutex_unlock(&drainer->mutex);
    atomic_fetch_add(&shared->bytes, bytes);
    for (; !turn->abort && now < at && !drainer_must_stop(drainer); now = clock_monotonic())
        clock_sleep(at - now < 0.1 ? at - now : 0.1);
    if (turn->abort || drainer_must_stop(drainer))
        return DRAIN_STOPPED;
    return check ? drain_check_abandoned(turn, err) : 0;
}

/* ---- the target's directories ------------------------------------------------------------------------------------ */

/* -1 also when the attempt was abandoned. */
static int open_partial(struct drain_turn *turn, struct error *err)
{
    const struct staged_save *save = &turn->save->staged.save;
    const char *name = turn->save->staged.name;
    bool made = file_exists(&turn->source, STAGE_MADE), mine = false;
    struct stat info;

    if (turn->partial.fd >= 0)
        return 0;
    if (drain_check_abandoned(turn, err) < 0 || drain_check_claim(turn, err) < 0)
        return -1;
    if (!made) {
        /* What an earlier run left must not remove a later one's attempts at its step. */
        attempt_remove_stale(&turn->target, save->step, turn->drainer->in_use ? save->attempt : NULL);
        mine = mkdirat(turn->target.fd, name, 0777) == 0;
        if (!mine && errno != EEXIST)
            return file_write_failed(&turn->target, name, 0, err);
        /* Another node may have abandoned it between the check and mkdir. */
        if (drain_check_abandoned(turn, err) < 0) {
            if (mine)
                unlinkat(turn->target.fd, name, AT_REMOVEDIR);
            return -1;
        }
        if (stage_mark(&turn->source, STAGE_MADE, name, err) < 0)
            return -1;
    }
    if (directory_open_made(&turn->partial, &turn->target, name, err) == 0) {
        if (fstat(turn->target.fd, &info) == 0) {
            turn->save->target_device = info.st_dev;
            turn->save->target_inode = info.st_ino;
        }
        return 0;
    }
    if (!made || errno != ENOENT)
        return -1;
    error_set(err, CODE_IO, "%s/%s: has been removed", turn->target.path, name);
    return drain_judge_missing(turn, err);
}

/* ---- one shard --------------------------------------------------------------------------------------------------- */

/* A staged shard, open. */
struct drain_source {
    struct manifest *part;
    char *text; /* of the part; the target gets the same bytes */
    size_t text_bytes;
    void *header;
    int fd;
};

static void close_source(struct drain_source *source)
{
    if (source->fd >= 0)
        close(source->fd);
    free(source->header);
    free(source->text);
    manifest_destroy(source->part);
}

static int open_source(struct drain_source *source, const struct drain_turn *turn, const struct directory *from,
                       int shard, struct error *err)
{
    const struct staged_save *save = &turn->save->staged.save;
    char name[FILE_NAME_SIZE];

    *source = (struct drain_source){.fd = -1};
    name_shard(name, SHARD_PART, shard, save->shards);
    source->text = file_read(from, name, MANIFEST_MAX_BYTES, &source->text_bytes, err);
    if (!source->text)
        return -1;
    source->part = manifest_decode(source->text, source->text_bytes, shard, save->shards, err);
    if (!source->part || manifest_check_save(source->part, save->step, save->attempt, err) < 0)
        return error_prefix(err, "%s/%s", from->path, name);
    source->fd = manifest_open_shard(source->part, shard, from, err);
    if (source->fd >= 0)
        source->header = manifest_read_header(source->part, shard, source->fd, from, err);
    return source->header ? 0 : -1;
}

/* Maps the block's pages. One that cannot be read (a fault of memory, or of a disk that the stage is on) would kill
 * this child by SIGBUS, and every child that tries the save later. */
static int map_block(const struct drain_turn *turn, void *block, size_t bytes, struct error *err)
{
#ifdef MADV_POPULATE_READ /* Linux 5.14 */
    if (madvise(block, bytes, MADV_POPULATE_READ) < 0 && (errno == EFAULT || errno == EHWPOISON))
        return error_set(err, CODE_DATA, "%s: a staged block of %zu bytes cannot be read", turn->source.path, bytes);
#endif
    return 0;
}

/* Copies the data from the stage's memory, a block at a time, without the blocks that an earlier drainer has copied. */
static int copy_blocks(struct drain_turn *turn, const struct manifest_shard *shard, unsigned char *data,
                       struct block_writer *writer, struct error *err)
{
    uint64_t left = shard->layout.data_bytes;
    size_t first;

    if (block_writer_resume(writer, &first, err) < 0)
        return -1;
    left -= first * SHARD_BLOCK;
    for (size_t block = first; left > 0; block++) {
        size_t bytes = left < SHARD_BLOCK ? (size_t)left : SHARD_BLOCK;
        int result = keep_pace(turn, bytes, err);

        if (result != 0)
            return result;
        if (map_block(turn, data + block * SHARD_BLOCK, bytes, err) < 0 ||
            block_writer_lend(writer, data + block * SHARD_BLOCK, bytes, shard->block_crcs[block], err) < 0)
            return -1;
        if (block >= first + UNMAP_AFTER) /* to unmap all at the end would delay the commit */
            madvise(data + (block - UNMAP_AFTER) * SHARD_BLOCK, SHARD_BLOCK, MADV_DONTNEED);
        left -= bytes;
    }
    return 0;
}

static int copy_data(struct drain_turn *turn, const struct drain_source *source, const char *name, struct error *err)
{
    const struct manifest_shard *shard = source->part->shard;
    uint64_t bytes = shard->data_offset + shard->layout.data_bytes;
    unsigned char *file = mmap(NULL, bytes, PROT_READ, MAP_SHARED, source->fd, 0);
    struct block_writer *writer;
    int result;

    if (file == MAP_FAILED)
        return error_errno(err, CODE_IO, "%s/%s: cannot be mapped", turn->source.path, name);
    writer =
        block_writer_create(&turn->partial, name, source->header, shard->data_offset, shard->layout.data_bytes, err);
    result = writer ? copy_blocks(turn, shard, file + shard->data_offset, writer, err) : -1;
    if (result == 0 && (result = block_writer_finish(writer, NULL, err)) == 1)
        result = DRAIN_AGAIN;
    if (writer && result == DRAIN_STOPPED && drainer_must_stop(turn->drainer))
        block_writer_keep(writer);
    block_writer_destroy(writer);
    munmap(file, bytes);
    return result;
}

/*
 * Removes this shard's temporary files of killed drainers; each takes a shard's room. Files younger than `age`
 * seconds may be of a running drainer on another node; those that were kept are resumed at any age. Returns the number
 * of removed files.
 */
static int remove_leftovers(const struct drain_turn *turn, const char *shard, int age)
{
    time_t before = time(NULL) - age + 1;
    size_t length = strlen(shard);
    const char *kept = age == ANY_AGE ? "" : BLOCKS_KEPT;
    struct listing listing = listing_open(&turn->partial);
    const char *name;
    struct stat info;
    int removed = 0;

    while ((name = listing_next(&listing)))
        if (strncmp(name, shard, length) == 0 && name[length] == '.' && name_is_unfinished(name) &&
            strcmp(name + length, kept) != 0 && fstatat(turn->partial.fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            info.st_mtime < before)
            removed += unlinkat(turn->partial.fd, name, 0) == 0;
    listing_close(&listing, NULL);
    return removed;
}

/* 0 if the directory that was written to still has its name, 1 if it has become the checkpoint; otherwise -1. */
static int check_place(struct drain_turn *turn, struct error *err)
{
    const struct staged *staged = &turn->save->staged;
    struct stat ours, there;
    char step[FILE_NAME_SIZE];

    name_step(step, staged->save.step);
    if (fstat(turn->partial.fd, &ours) < 0)
        return error_errno(err, CODE_IO, "%s", turn->partial.path);
    if (fstatat(turn->target.fd, staged->name, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_ino == ours.st_ino)
        return 0;
    if (fstatat(turn->target.fd, step, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_ino == ours.st_ino)
        return 1;
    if (drain_check_abandoned(turn, err) < 0)
        return -1;
    return error_set(err, CODE_IO, "%s: was removed while it was written", turn->partial.path);
}

static int write_shard(struct drain_turn *turn, const struct drain_source *source, int shard, struct error *err)
{
    char name[FILE_NAME_SIZE], part[FILE_NAME_SIZE];
    int result = DRAIN_AGAIN;

    name_shard(name, SHARD_DATA, shard, turn->save->staged.save.shards);
    name_shard(part, SHARD_PART, shard, turn->save->staged.save.shards);
    for (int tries = 0; tries < TRIES && result == DRAIN_AGAIN; tries++) {
        if (file_exists(&turn->partial, part))
            return directory_sync(&turn->partial, err) < 0 || check_place(turn, err) < 0 ? -1 : 0;
        remove_leftovers(turn, name, OLD_SECONDS);
        result = copy_data(turn, source, name, err);
        if (result == DRAIN_AGAIN && check_place(turn, err) < 0)
            return -1;
        if (result == -1 && tries + 1 < TRIES && remove_leftovers(turn, name, ANY_AGE) > 0)
            result = DRAIN_AGAIN; /* there may be room now */
    }
    if (result != 0)
        return result == DRAIN_STOPPED ? result : -1;
    if (directory_sync(&turn->partial, err) < 0 ||
        file_write(&turn->partial, part, source->text, source->text_bytes, err) < 0 ||
        directory_sync(&turn->partial, err) < 0)
        return -1;
    remove_leftovers(turn, name, ANY_AGE); /* a drainer that still writes one finds the part, and stops */
    result = check_place(turn, err);
    /* Another drainer has committed meanwhile: this part came too late to be removed by the commit. */
    if (result == 1 && directory_sync(&turn->target, NULL) == 0)
        unlinkat(turn->partial.fd, part, 0);
    return result < 0 ? -1 : 0;
}

/*
 * The shard is durable in the target: marks it as drained and gives its slot back. The part is renamed first: after a
 * crash in between, only an unneeded data file is left. The other order would leave a part, which means "complete",
 * without its data.
 */
static int release_shard(struct drain_turn *turn, const struct directory *from, int shard, struct error *err)
{
    char part[FILE_NAME_SIZE], drained[FILE_NAME_SIZE], name[FILE_NAME_SIZE];
    int shards = turn->save->staged.save.shards;

    name_shard(part, SHARD_PART, shard, shards);
    name_shard(drained, SHARD_DRAINED, shard, shards);
    name_shard(name, SHARD_DATA, shard, shards);
    if (renameat(from->fd, part, from->fd, drained) < 0)
        return error_errno(err, CODE_IO, "%s/%s", from->path, drained);
    if (unlinkat(from->fd, name, 0) < 0 && errno != ENOENT)
        return error_errno(err, CODE_IO, "%s/%s", from->path, name);
    return 0;
}

/* A damaged copy of another node's shard: that node may still have the shard itself. */
static int drop_copy(struct drain_turn *turn, const struct directory *from, int shard, const struct error *why)
{
    char part[FILE_NAME_SIZE], name[FILE_NAME_SIZE];

    name_shard(part, SHARD_PART, shard, turn->save->staged.save.shards);
    name_shard(name, SHARD_DATA, shard, turn->save->staged.save.shards);
    drain_log(turn, true, "failed: the copy of another node's shard %d is damaged and is removed: %s", shard,
              why->text);
    unlinkat(from->fd, part, 0);
    unlinkat(from->fd, name, 0);
    return 0;
}

static int drain_shard(struct drain_turn *turn, const struct directory *from, int shard, struct error *err)
{
    struct drain_source source;
    int result = open_source(&source, turn, from, shard, err);

    if (result == 0) {
        result = write_shard(turn, &source, shard, err);
        /* Another drainer has committed meanwhile, and the commit removed the file that was being written. */
        if (result == -1 && check_place(turn, NULL) == 1)
            result = 0;
    }
    close_source(&source);
    if (result == -1 && err->code == CODE_DATA && from != &turn->source)
        return drop_copy(turn, from, shard, err);
    return result == 0 ? release_shard(turn, from, shard, err) : result;
}

/* ---- several at the same time ------------------------------------------------------------------------------------ */

struct queue {
    struct drain_turn *turn;
    const struct directory *from;
    int *shards;
    size_t count;
};

static int drain_item(void *arg, int worker, size_t item, struct error *err)
{
    const struct queue *queue = arg;
    int result = drain_shard(queue->turn, queue->from, queue->shards[item], err);

    (void)worker;
    if (result != 0)
        queue->turn->abort = true; /* the other threads stop in keep_pace */
    return result;
}

int drain_shards(struct drain_turn *turn, const struct directory *from, struct error *err)
{
    struct queue queue = {.turn = turn, .from = from};
    struct listing listing = listing_open(from);
    int shard, shards, result;
    const char *name;

    while ((name = listing_next(&listing)))
        if (name_parse_shard(name, SHARD_PART, &shard, &shards) && shards == turn->save->staged.save.shards)
            listing_keep(&listing, (void **)&queue.shards, &queue.count, &shard, sizeof shard);
    result = listing_close(&listing, err);
    if (result == 0)
        result = open_partial(turn, err);
    turn->abort = false;
    if (result == 0)
        result = workers_run(turn->drainer->options.threads, queue.count, drain_item, &queue, err);
    free(queue.shards);
    return result;
}

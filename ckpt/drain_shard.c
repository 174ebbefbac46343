/* drain_shard.c - one staged shard to the checkpoint directory. */
#include "config.h"

#include "ckpt/attempt.h"
#include "ckpt/block_writer.h"
#include "ckpt/drain_internal.h"
#include "ckpt/manifest.h"
#include "common/crc32c.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TRIES       3 /* another drainer may tidy away our temporary file */
#define OLD_SECONDS 60
#define ANY_AGE     (-86400) /* clocks differ */

/* A staged shard, open. */
struct staged {
    struct manifest *part;
    char *text;
    size_t text_bytes;
    void *header;
    int fd;
};

static void close_staged(struct staged *staged)
{
    if (staged->fd >= 0)
        close(staged->fd);
    free(staged->header);
    free(staged->text);
    manifest_destroy(staged->part);
}

static int read_header(struct staged *staged, const struct directory *from, const char *name, struct error *err)
{
    const struct manifest_shard *shard = staged->part->shard;

    if (shard->data_offset > LAYOUT_BLOCK || shard->data_offset % LAYOUT_ALIGN != 0)
        return error_set(err, CODE_DATA, "%s/%s: its header has %" PRIu64 " bytes", from->path, name,
                         shard->data_offset);
    staged->header = malloc(shard->data_offset);
    if (!staged->header)
        return error_errno(err, CODE_IO, "%s/%s", from->path, name);
    if (file_read_at(staged->fd, staged->header, shard->data_offset, 0, from->path, name, err) < 0)
        return -1;
    if (crc32c(0, staged->header, shard->data_offset) != shard->header_crc)
        return error_set(err, CODE_DATA, "%s/%s: its header has changed since it was staged", from->path, name);
    return 0;
}

static int open_staged(struct staged *staged, const struct drain *drain, const struct directory *from, int shard,
                       struct error *err)
{
    const struct target *target = &drain->generation->target;
    char name[LAYOUT_NAME_SIZE];
    uint64_t bytes;

    *staged = (struct staged){.fd = -1};
    layout_part_name(name, shard, target->shards);
    staged->text = file_read(from, name, MANIFEST_MAX_BYTES, &staged->text_bytes, err);
    if (!staged->text)
        return -1;
    staged->part = manifest_decode(staged->text, staged->text_bytes, shard, target->shards, err);
    if (!staged->part)
        return error_prefix(err, "%s/%s", from->path, name);
    if (staged->part->state.step != target->step || strcmp(staged->part->attempt, target->attempt) != 0)
        return error_set(err, CODE_DATA, "%s/%s: is of step %" PRIu64 ", attempt \"%s\"", from->path, name,
                         staged->part->state.step, staged->part->attempt);
    layout_shard_name(name, shard, target->shards);
    staged->fd = file_open(from, name, false, &bytes, err);
    if (staged->fd < 0)
        return -1;
    if (bytes != manifest_shard_bytes(staged->part->shard))
        return error_set(err, CODE_DATA, "%s/%s: %" PRIu64 " bytes, its part says %" PRIu64, from->path, name, bytes,
                         manifest_shard_bytes(staged->part->shard));
    return read_header(staged, from, name, err);
}

enum { REMOVED = 3 }; /* our temporary file, by another who drains the same shard */

/* The data, a block at a time, straight into the writer's buffers. */
static int copy_blocks(struct drain *drain, const struct staged *staged, struct block_writer *writer, const char *name,
                       struct error *err)
{
    const struct manifest_shard *shard = staged->part->shard;
    uint64_t offset = shard->data_offset, left = shard->layout.data_bytes;

    block_writer_expect(writer, shard->block_crcs);
    while (left > 0) {
        size_t room;
        void *space = block_writer_space(writer, &room);
        int result = drain_pace(drain, room, err);

        if (result != 0)
            return result;
        if (file_read_at(staged->fd, space, room, offset, drain->source.path, name, err) < 0 ||
            block_writer_add(writer, room, err) < 0)
            return -1;
        offset += room;
        left -= room;
    }
    return 0;
}

static int copy_data(struct drain *drain, const struct staged *staged, const char *name, struct error *err)
{
    const struct manifest_shard *shard = staged->part->shard;
    struct block_writer *writer =
        block_writer_create(&drain->partial, name, staged->header, shard->data_offset, shard->layout.data_bytes, err);
    uint32_t *crcs = calloc(shard->layout.blocks + 1, sizeof *crcs);
    int result = -1;

    if (writer && !crcs)
        error_errno(err, CODE_IO, "%s: checksums", name);
    else if (writer)
        result = copy_blocks(drain, staged, writer, name, err);
    if (result == 0 && (result = block_writer_finish(writer, crcs, err)) == 1)
        result = REMOVED;
    block_writer_destroy(writer);
    free(crcs);
    return result;
}

struct sweep {
    const struct directory *partial;
    const char *stem;
    time_t before; /* only files that nobody has written to since */
    int removed;
};

static int remove_unfinished(const char *name, void *arg)
{
    struct sweep *sweep = arg;
    size_t length = strlen(sweep->stem);
    struct stat info;

    if (strncmp(name, sweep->stem, length) == 0 && name[length] == '.' && layout_is_unfinished(name) &&
        fstatat(sweep->partial->fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_mtime < sweep->before)
        sweep->removed += unlinkat(sweep->partial->fd, name, 0) == 0;
    return 0;
}

/*
 * What drainers of this shard left that were killed, which takes the room of a shard each. Those younger than `age`
 * seconds may be of one that lives, on another node. Returns how many it were.
 */
static int remove_leftovers(const struct drain *drain, const char *name, int age)
{
    struct sweep sweep = {&drain->partial, name, time(NULL) - age + 1, 0};

    directory_each(&drain->partial, remove_unfinished, &sweep, NULL);
    return sweep.removed;
}

static bool in_target(const struct drain *drain, const char *part)
{
    return faccessat(drain->partial.fd, part, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* That what we have written to still has its name: 0; or has become the checkpoint: 1. Else -1. */
static int check_place(struct drain *drain, struct error *err)
{
    char partial[LAYOUT_NAME_SIZE], step[LAYOUT_NAME_SIZE];
    struct stat ours, there;
    const struct target *target = &drain->generation->target;

    layout_partial_name(partial, target->step, target->attempt);
    layout_step_name(step, target->step);
    if (fstat(drain->partial.fd, &ours) < 0)
        return error_errno(err, CODE_IO, "%s", drain->partial.path);
    if (fstatat(drain->parent.fd, partial, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_ino == ours.st_ino)
        return 0;
    if (fstatat(drain->parent.fd, step, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_ino == ours.st_ino)
        return 1;
    if (drain_check_given_up(drain, err) < 0)
        return -1;
    return error_set(err, CODE_IO, "%s: was removed while it was written", drain->partial.path);
}

static int write_both(struct drain *drain, const struct staged *staged, int shard, struct error *err)
{
    char name[LAYOUT_NAME_SIZE], part[LAYOUT_NAME_SIZE];
    int result = REMOVED;

    layout_shard_name(name, shard, drain->generation->target.shards);
    layout_part_name(part, shard, drain->generation->target.shards);
    for (int tries = 0; tries < TRIES && result == REMOVED; tries++) {
        if (in_target(drain, part))
            return directory_sync(&drain->partial, err) < 0 || check_place(drain, err) < 0 ? -1 : 0;
        remove_leftovers(drain, name, OLD_SECONDS);
        result = copy_data(drain, staged, name, err);
        if (result == REMOVED && check_place(drain, err) < 0)
            return -1;
        if (result == -1 && tries + 1 < TRIES && remove_leftovers(drain, name, ANY_AGE) > 0)
            result = REMOVED; /* there may be room now */
    }
    if (result != 0)
        return result == DRAIN_INTERRUPTED ? result : -1;
    if (directory_sync(&drain->partial, err) < 0 ||
        file_write(&drain->partial, part, staged->text, staged->text_bytes, err) < 0 ||
        directory_sync(&drain->partial, err) < 0)
        return -1;
    remove_leftovers(drain, name, ANY_AGE); /* who still writes one finds our part, and is done */
    result = check_place(drain, err);
    /* Another drained the shard too, and has committed: our part came too late to be tidied away. */
    if (result == 1 && directory_sync(&drain->parent, NULL) == 0)
        unlinkat(drain->partial.fd, part, 0);
    return result < 0 ? -1 : 0;
}

/*
 * Durable in the target: remember that, and give the memory back. A mark without its data is harmless, so it is first.
 */
static int release(struct drain *drain, const struct directory *from, int shard, struct error *err)
{
    char part[LAYOUT_NAME_SIZE], drained[LAYOUT_NAME_SIZE], name[LAYOUT_NAME_SIZE];
    int shards = drain->generation->target.shards;

    layout_part_name(part, shard, shards);
    layout_drained_name(drained, shard, shards);
    layout_shard_name(name, shard, shards);
    if (renameat(from->fd, part, from->fd, drained) < 0)
        return error_errno(err, CODE_IO, "%s/%s", from->path, drained);
    return stage_recycle(&drain->drainer->stage, from, name, err);
}

static int drain_one(struct drain *drain, const struct directory *from, int shard, struct error *err)
{
    struct staged staged;
    int result = open_staged(&staged, drain, from, shard, err);

    if (result == 0) {
        result = write_both(drain, &staged, shard, err);
        /* Another drained it too and has committed; what we were writing was tidied away under our hands. */
        if (result == -1 && check_place(drain, NULL) == 1)
            result = 0;
    }
    close_staged(&staged);
    return result == 0 ? release(drain, from, shard, err) : result;
}

/* ---- several at the same time ---- */

struct queue {
    struct drain *drain;
    const struct directory *from;
    int *shards;
    int count, next;
    int result;
    struct error err;
};

static int add_part(const char *name, void *arg)
{
    struct queue *queue = arg;
    int shard, shards, *grown;

    if (!layout_parse_part(name, &shard, &shards) || shards != queue->drain->generation->target.shards)
        return 0;
    grown = realloc(queue->shards, ((size_t)queue->count + 1) * sizeof *grown);
    if (!grown)
        return 1;
    queue->shards = grown;
    queue->shards[queue->count++] = shard;
    return 0;
}

static void *drain_queue(void *arg)
{
    struct queue *queue = arg;
    struct drainer *drainer = queue->drain->drainer;

    for (;;) {
        struct error err = {0};
        int shard, result;

        pthread_mutex_lock(&drainer->mutex);
        shard = queue->next < queue->count && queue->result == 0 ? queue->shards[queue->next++] : -1;
        pthread_mutex_unlock(&drainer->mutex);
        if (shard < 0)
            return NULL;
        result = drain_one(queue->drain, queue->from, shard, &err);
        pthread_mutex_lock(&drainer->mutex);
        /* A failure counts more than the interruption that it caused elsewhere. */
        if (result != 0 && queue->result != -1) {
            queue->result = result;
            queue->err = err;
        }
        queue->drain->abort = queue->result != 0;
        pthread_mutex_unlock(&drainer->mutex);
    }
}

int drain_shards(struct drain *drain, const struct directory *from, struct error *err)
{
    struct queue queue = {.drain = drain, .from = from};
    pthread_t threads[16];
    int most = drain->drainer->options.threads, started = 0;

    drain->abort = false;
    if (directory_each(from, add_part, &queue, err) != 0) {
        free(queue.shards);
        return -1;
    }
    while (started + 1 < most && started + 1 < queue.count && started < 16 &&
           pthread_create(&threads[started], NULL, drain_queue, &queue) == 0)
        started++;
    drain_queue(&queue);
    for (int t = 0; t < started; t++)
        pthread_join(threads[t], NULL);
    free(queue.shards);
    if (queue.result == -1 && err)
        *err = queue.err;
    return queue.result;
}

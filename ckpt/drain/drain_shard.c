/* drain_shard.c - staged shards to the checkpoint directory: its directories, and each shard's data and part. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/drain/drain_internal.h"
#include "ckpt/file/workers.h"
#include "ckpt/file/block_writer.h"
#include "ckpt/write/attempt.h"
#include "common/clock.h"
#include "common/crc32c.h"

#define TRIES       3 /* another drainer may remove our temporary file */
#define OLD_SECONDS 60
#define ANY_AGE     (-86400) /* clocks differ */
#define WHY_TRIES   20
#define WHY_SECONDS 0.02

/* ---- the target's directories ------------------------------------------------------------------------------------ */

int drain_check_given_up(struct drain *drain, struct error *err)
{
    const struct target *target = &drain->generation->target;
    char why[512];

    if (!attempt_is_given_up(&drain->parent, target->step, target->attempt, why, sizeof why))
        return 0;
    for (int tries = 0; tries < WHY_TRIES && !*why; tries++) { /* written a moment later, if there is room */
        clock_sleep(WHY_SECONDS);
        attempt_is_given_up(&drain->parent, target->step, target->attempt, why, sizeof why);
    }
    return error_set(err, CODE_DATA, "given up by another node: %s", *why ? why : "its reason could not be written");
}

/*
 * The checkpoint directory is made only if this stage has never seen it. Otherwise its file system is not mounted, and
 * a new directory would be beneath the mount point.
 */
static int open_parent(struct drain *drain, bool made, struct error *err)
{
    const struct directory *stage = &drain->drainer->stage;
    const char *dir = drain->generation->target.dir;

    if (drain->parent.fd >= 0)
        return 0;
    made |= file_exists(stage, STAGE_MADE);
    if ((!made && directory_make_path(dir, err) < 0) || directory_open(&drain->parent, NULL, dir, err) < 0)
        return -1;
    return made ? 0 : stage_mark(stage, STAGE_MADE, err);
}

int drain_open_target(struct drain *drain, struct error *err)
{
    const struct target *target = &drain->generation->target;
    bool made = file_exists(&drain->source, STAGE_MADE), mine = false;
    char name[FILE_NAME_SIZE];

    if (drain->partial.fd >= 0)
        return 0;
    if (open_parent(drain, made, err) < 0 || drain_check_given_up(drain, err) < 0)
        return -1;
    name_partial(name, target->step, target->attempt);
    if (!made) {
        /* An earlier life's save must not remove the present life's attempts at its step. */
        bool present = !file_exists(&drain->source, STAGE_ADOPTED) && drain->drainer->users;

        attempt_make_room(&drain->parent, target->step, present ? target->attempt : NULL);
        mine = mkdirat(drain->parent.fd, name, 0777) == 0;
        if (!mine && errno != EEXIST)
            return file_write_failed(&drain->parent, name, 0, err);
        /* Another node may have given it up between the check and mkdir. */
        if (drain_check_given_up(drain, err) < 0) {
            if (mine)
                unlinkat(drain->parent.fd, name, AT_REMOVEDIR);
            return -1;
        }
        if (stage_mark(&drain->source, STAGE_MADE, err) < 0)
            return -1;
    }
    if (directory_open(&drain->partial, &drain->parent, name, err) == 0)
        return 0;
    return made && errno == ENOENT ? error_set(err, CODE_IO, "%s/%s: has been removed", drain->parent.path, name) : -1;
}

/* ---- one shard --------------------------------------------------------------------------------------------------- */

/* A staged shard, open. */
struct staged {
    struct manifest *part;
    char *text; /* of the part; the target gets the same bytes */
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

    if (shard->data_offset > SHARD_BLOCK || shard->data_offset % SHARD_ALIGN != 0)
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
    char name[FILE_NAME_SIZE];

    *staged = (struct staged){.fd = -1};
    name_part(name, shard, target->shards);
    staged->text = file_read(from, name, MANIFEST_MAX_BYTES, &staged->text_bytes, err);
    if (!staged->text)
        return -1;
    staged->part = manifest_decode(staged->text, staged->text_bytes, shard, target->shards, err);
    if (!staged->part)
        return error_prefix(err, "%s/%s", from->path, name);
    if (manifest_check_save(staged->part, target->step, target->attempt, err) < 0)
        return error_prefix(err, "%s/%s", from->path, name);
    name_shard(name, shard, target->shards);
    staged->fd = manifest_open_shard(staged->part, shard, from, false, err);
    if (staged->fd < 0)
        return -1;
    return read_header(staged, from, name, err);
}

enum { REMOVED = 3 }; /* our temporary file, by another drainer of the same shard */

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

/*
 * Removes temporary files of killed drainers of this shard, each of which takes its room. Files younger than `age`
 * seconds may be of a running drainer on another node. Returns the number of removed files.
 */
static int remove_leftovers(const struct drain *drain, const char *shard, int age)
{
    time_t before = time(NULL) - age + 1;
    size_t length = strlen(shard);
    struct listing listing;
    const char *name;
    struct stat info;
    int removed = 0;

    listing_open(&listing, &drain->partial);
    while ((name = listing_next(&listing)))
        if (strncmp(name, shard, length) == 0 && name[length] == '.' && name_is_unfinished(name) &&
            fstatat(drain->partial.fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_mtime < before)
            removed += unlinkat(drain->partial.fd, name, 0) == 0;
    listing_close(&listing, NULL);
    return removed;
}

/* 0 if the directory that was written to still has its name, 1 if it has become the checkpoint; otherwise -1. */
static int check_place(struct drain *drain, struct error *err)
{
    char partial[FILE_NAME_SIZE], step[FILE_NAME_SIZE];
    struct stat ours, there;
    const struct target *target = &drain->generation->target;

    name_partial(partial, target->step, target->attempt);
    name_step(step, target->step);
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

static int write_files(struct drain *drain, const struct staged *staged, int shard, struct error *err)
{
    char name[FILE_NAME_SIZE], part[FILE_NAME_SIZE];
    int result = REMOVED;

    name_shard(name, shard, drain->generation->target.shards);
    name_part(part, shard, drain->generation->target.shards);
    for (int tries = 0; tries < TRIES && result == REMOVED; tries++) {
        if (file_exists(&drain->partial, part))
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
    remove_leftovers(drain, name, ANY_AGE); /* a drainer that still writes one finds the part, and stops */
    result = check_place(drain, err);
    /* Another drainer has committed meanwhile: this part came too late to be removed by the commit. */
    if (result == 1 && directory_sync(&drain->parent, NULL) == 0)
        unlinkat(drain->partial.fd, part, 0);
    return result < 0 ? -1 : 0;
}

/*
 * The shard is durable in the target: marks it as drained and frees its memory. A mark without data is harmless, so it
 * is first.
 */
static int release_shard(struct drain *drain, const struct directory *from, int shard, struct error *err)
{
    char part[FILE_NAME_SIZE], drained[FILE_NAME_SIZE], name[FILE_NAME_SIZE];
    int shards = drain->generation->target.shards;

    name_part(part, shard, shards);
    name_drained(drained, shard, shards);
    name_shard(name, shard, shards);
    if (renameat(from->fd, part, from->fd, drained) < 0)
        return error_errno(err, CODE_IO, "%s/%s", from->path, drained);
    return stage_recycle(&drain->drainer->stage, from, name, err);
}

static int drain_one(struct drain *drain, const struct directory *from, int shard, struct error *err)
{
    struct staged staged;
    int result = open_staged(&staged, drain, from, shard, err);

    if (result == 0) {
        result = write_files(drain, &staged, shard, err);
        /* Another drainer has committed meanwhile, and the commit removed the file that was being written. */
        if (result == -1 && check_place(drain, NULL) == 1)
            result = 0;
    }
    close_staged(&staged);
    return result == 0 ? release_shard(drain, from, shard, err) : result;
}

/* ---- several at the same time ------------------------------------------------------------------------------------ */

struct queue {
    struct drain *drain;
    const struct directory *from;
    int *shards, count;
};

/* The shards whose parts are in queue->from. */
static int list_parts(struct queue *queue, struct error *err)
{
    struct listing listing;
    const char *name;
    size_t room = 0;
    int shard, shards, result = 0;

    listing_open(&listing, queue->from);
    while (result == 0 && (name = listing_next(&listing))) {
        if (!name_parse_part(name, &shard, &shards) || shards != queue->drain->generation->target.shards)
            continue;
        result = file_grow((void **)&queue->shards, (size_t)queue->count, &room, sizeof shard);
        if (result == 0)
            queue->shards[queue->count++] = shard;
    }
    if (listing_close(&listing, err) < 0)
        return -1;
    return result < 0 ? error_errno(err, CODE_IO, "%s: a list of %d shards", queue->from->path, queue->count) : 0;
}

static int drain_item(void *arg, int worker, size_t item, struct error *err)
{
    const struct queue *queue = arg;
    int result = drain_one(queue->drain, queue->from, queue->shards[item], err);

    (void)worker;
    if (result != 0) { /* the other threads stop in drain_pace */
        pthread_mutex_lock(&queue->drain->drainer->mutex);
        queue->drain->abort = true;
        pthread_mutex_unlock(&queue->drain->drainer->mutex);
    }
    return result;
}

int drain_shards(struct drain *drain, const struct directory *from, struct error *err)
{
    struct queue queue = {.drain = drain, .from = from};
    int result = list_parts(&queue, err);

    drain->abort = false;
    if (result == 0)
        result = workers_run(drain->drainer->options.threads, (size_t)queue.count, drain_item, &queue, err);
    free(queue.shards);
    return result;
}

/* stage_slot.c - the files that shards are staged in: reserved whole, mapped once, and used again. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "ckpt/stage/stage_internal.h"
#include "ckpt/write/attempt.h"
#include "common/memory_limit.h"

static void unmap_file(struct mapping *mapping)
{
    if (mapping->data)
        munmap(mapping->data, mapping->bytes);
    if (mapping->fd >= 0)
        close(mapping->fd);
    *mapping = (struct mapping){.fd = -1};
}

/* A removed file would keep its memory as long as it is mapped. */
static void unmap_removed(struct ckpt_stage *stage)
{
    struct stat info;

    for (int i = 0; i < STAGE_MAPPINGS; i++)
        if (stage->mappings[i].fd >= 0 && (fstat(stage->mappings[i].fd, &info) < 0 || info.st_nlink == 0)) {
            if (stage->last == &stage->mappings[i])
                stage->last = NULL;
            unmap_file(&stage->mappings[i]);
        }
}

static struct mapping *find_mapping(struct ckpt_stage *stage, const struct stat *info, uint64_t bytes)
{
    struct mapping *empty = NULL;

    for (int i = 0; i < STAGE_MAPPINGS; i++) {
        struct mapping *mapping = &stage->mappings[i];

        if (mapping->fd >= 0 && mapping->inode == info->st_ino && mapping->device == info->st_dev) {
            if (mapping->bytes != bytes)
                unmap_file(mapping);
            return mapping;
        }
        if (mapping->fd < 0 && !empty)
            empty = mapping;
    }
    if (!empty) { /* more files than expected: unmap one that is not lent */
        empty = &stage->mappings[stage->last == &stage->mappings[0] ? 1 : 0];
        unmap_file(empty);
    }
    return empty;
}

/* A store to a page that finds no memory would be SIGBUS. Returns -1 with errno. */
static int reserve_file(int fd, struct stat *info, uint64_t bytes)
{
    if (fstat(fd, info) < 0)
        return -1;
    if ((uint64_t)info->st_size == bytes && (uint64_t)info->st_blocks * 512 >= bytes)
        return 0;
    return ftruncate(fd, (off_t)bytes) < 0 ? -1 : fallocate(fd, 0, 0, (off_t)bytes);
}

/* Reserves and maps the file `fd`, and sets slot->mapping. Closes fd on failure, and if the file was mapped before. */
static int fill_slot(struct ckpt_stage *stage, int fd, uint64_t bytes, struct slot *slot, struct error *err)
{
    struct mapping *mapping;
    struct stat info;
    void *data;

    if (reserve_file(fd, &info, bytes) < 0) {
        file_write_failed(&stage->directory, "staged shard", bytes, err);
        goto fail;
    }
    mapping = slot->mapping = find_mapping(stage, &info, bytes);
    if (mapping->fd >= 0) {
        close(fd);
        return 0;
    }
    data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (data == MAP_FAILED) {
        error_errno(err, CODE_IO, "%s: cannot map %" PRIu64 " bytes", stage->directory.path, bytes);
        goto fail;
    }
    *mapping = (struct mapping){fd, info.st_dev, info.st_ino, bytes, data};
    return 0;
fail:
    close(fd);
    return -1;
}

/* The files of a shard: those that hold staged data, in any save, and those in .free. */
struct files {
    char shard[FILE_NAME_SIZE];
    struct directory free;          /* .free; closed (-1) if it is missing */
    char free_file[SLOT_NAME_SIZE]; /* one of those there */
    int free_count, in_use;
};

static void count_free(struct files *files)
{
    size_t length = strlen(files->shard);
    struct listing listing = listing_open(&files->free);
    const char *each;

    while ((each = listing_next(&listing)))
        if (strncmp(each, files->shard, length) == 0 && each[length] == '.') {
            snprintf(files->free_file, sizeof files->free_file, "%s", each);
            files->free_count++;
        }
    listing_close(&listing, NULL);
}

static void count_staged(struct files *files, const struct ckpt_stage *stage, const char *within)
{
    char path[3 * FILE_NAME_SIZE];
    struct attempt *saves;
    size_t count;

    if (attempt_list(&stage->directory, &saves, &count, NULL) < 0)
        return;
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s/%s", saves[i].name, within, files->shard);
        files->in_use += file_exists(&stage->directory, path);
    }
    free(saves);
}

/* The caller closes files->free. Counts the staged files first: a file that is freed in between is then counted twice,
 * and never missed. */
static void files_find(struct files *files, const struct ckpt_stage *stage, const char *within, int shard, int shards)
{
    *files = (struct files){.free.fd = -1};
    name_shard(files->shard, SHARD_DATA, shard, shards);
    count_staged(files, stage, within);
    if (directory_open(&files->free, &stage->directory, STAGE_FREE, NULL) == 0)
        count_free(files);
}

/* Check that the stage's file system, and memory if it is a RAM disk, have room for so many bytes more. */
static int check_room(const struct directory *stage, uint64_t bytes, struct error *err)
{
    struct statfs fs;
    uint64_t room;
    const char *of = "the file system";

    if (fstatfs(stage->fd, &fs) < 0)
        return 0;
    room = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    /* A RAM disk may have more room than the node has memory left; the kernel would then kill a process. */
    if (fs.f_type == TMPFS_MAGIC) {
        uint64_t memory = memory_available();
        uint64_t groups = memory_limit_left(); /* pages of a RAM disk count for the first process that touches them */

        if (memory < room) {
            room = memory;
            of = "this node's memory";
        }
        if (groups < room) {
            room = groups;
            of = "the job's memory limit";
        }
    }
    if (room >= bytes)
        return 0;
    return error_set(err, CODE_IO, "%s: a staged shard takes %" PRIu64 " bytes, %s has %" PRIu64 " left", stage->path,
                     bytes, of, room);
}

static int make_file(struct ckpt_stage *stage, struct files *files, uint64_t bytes, struct slot *slot,
                     struct error *err)
{
    int fd;

    if (check_room(&stage->directory, bytes, err) < 0)
        return -1;
    if (files->free.fd < 0 && mkdirat(stage->directory.fd, STAGE_FREE, 0700) < 0 && errno != EEXIST)
        return file_write_failed(&stage->directory, STAGE_FREE, 0, err);
    if (files->free.fd < 0 && directory_open(&files->free, &stage->directory, STAGE_FREE, err) < 0)
        return -1;
    file_temporary_name(slot->name, sizeof slot->name, files->shard);
    fd = openat(files->free.fd, slot->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return file_write_failed(&files->free, slot->name, bytes, err);
    if (fill_slot(stage, fd, bytes, slot, err) == 0)
        return 0;
    unlinkat(files->free.fd, slot->name, 0);
    return -1;
}

static int take_file(struct ckpt_stage *stage, struct files *files, uint64_t bytes, struct slot *slot,
                     struct error *err)
{
    int fd;

    if (files->free_count == 0 && files->in_use >= stage->config.max_staged)
        return error_set(err, CODE_IO, "%s: %d saves are staged and none is drained yet", stage->directory.path,
                         stage->config.max_staged);
    if (files->free_count == 0)
        return make_file(stage, files, bytes, slot, err);
    fd = openat(files->free.fd, files->free_file, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, CODE_IO, "%s/%s", files->free.path, files->free_file);
    snprintf(slot->name, sizeof slot->name, "%s", files->free_file);
    return fill_slot(stage, fd, bytes, slot, err);
}

bool ckpt_stage_has_room(const struct ckpt_stage *stage, int shard, int shards)
{
    struct files files;

    files_find(&files, stage, ".", shard, shards);
    directory_close(&files.free);
    return files.free_count > 0 || files.in_use < stage->config.max_staged;
}

int slot_reserve(struct ckpt_stage *stage, int shard, int shards, uint64_t bytes, struct error *err)
{
    struct files files;
    struct slot slot;
    int result = 0;

    files_find(&files, stage, ".", shard, shards);
    for (int n = files.free_count + files.in_use; n < stage->config.max_staged && result == 0; n++)
        result = make_file(stage, &files, bytes, &slot, err);
    directory_close(&files.free);
    return result < 0 ? 1 : 0;
}

int slot_take(struct ckpt_stage *stage, const char *within, int shard, int shards, uint64_t bytes, struct slot *slot,
              struct error *err)
{
    struct files files;
    int result;

    unmap_removed(stage);
    files_find(&files, stage, within, shard, shards);
    result = take_file(stage, &files, bytes, slot, err);
    directory_close(&files.free);
    return result < 0 ? 1 : 0;
}

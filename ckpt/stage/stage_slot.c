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

/* Reserved first: a store to a page that finds no memory would be SIGBUS. */
static int reserve_file(struct ckpt_stage *stage, int fd, uint64_t bytes, struct error *err)
{
    struct stat info;

    if (fstat(fd, &info) == 0 && (uint64_t)info.st_size == bytes && (uint64_t)info.st_blocks * 512 >= bytes)
        return 0;
    if (ftruncate(fd, (off_t)bytes) == 0 && fallocate(fd, 0, 0, (off_t)bytes) == 0)
        return 0;
    file_write_failed(&stage->directory, "staged shard", bytes, err);
    errno = ENOSPC;
    return 1;
}

static int map_file(struct ckpt_stage *stage, int fd, uint64_t bytes, struct slot *slot, struct error *err)
{
    struct stat info;
    struct mapping *mapping;
    void *data;

    if (fstat(fd, &info) < 0)
        return error_errno(err, CODE_IO, "%s: staged shard", stage->directory.path);
    mapping = find_mapping(stage, &info, bytes);
    slot->mapping = mapping;
    if (mapping->fd >= 0) {
        close(fd);
        return 0;
    }
    data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (data == MAP_FAILED) {
        error_errno(err, CODE_IO, "%s: cannot map %" PRIu64 " bytes", stage->directory.path, bytes);
        close(fd);
        return 1;
    }
    *mapping = (struct mapping){fd, info.st_dev, info.st_ino, bytes, data};
    return 0;
}

/* How many files of that shard there are, and the name of one. */
static int find_free(const struct directory *free_files, const char *shard, char name[static SLOT_NAME_SIZE],
                     struct error *err)
{
    size_t length = strlen(shard);
    struct listing listing;
    const char *each;
    int count = 0;

    listing_open(&listing, free_files);
    while ((each = listing_next(&listing)))
        if (strncmp(each, shard, length) == 0 && each[length] == '.') {
            snprintf(name, SLOT_NAME_SIZE, "%s", each);
            count++;
        }
    return listing_close(&listing, err) < 0 ? -1 : count;
}

/* How many generations hold data of this shard. */
static int count_staged(const struct ckpt_stage *stage, const char *within, const char *name)
{
    struct generation *generations;
    char path[3 * FILE_NAME_SIZE];
    size_t count;
    int staged = 0;

    if (generation_list(&stage->directory, &generations, &count, NULL) < 0)
        return 0;
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s%s%s", generations[i].name, within ? within : "", within ? "/" : "", name);
        staged += file_exists(&stage->directory, path);
    }
    free(generations);
    return staged;
}

/*
 * Whether the stage's file system, and memory if it is a RAM disk, have room for so many bytes more. 0, or 1 and
 * ENOSPC.
 */
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
    error_set(err, CODE_IO, "%s: a staged shard takes %" PRIu64 " bytes, %s has %" PRIu64 " left", stage->path, bytes,
              of, room);
    errno = ENOSPC;
    return 1;
}

static int make_file(struct ckpt_stage *stage, const struct directory *free_files, const char *shard, uint64_t bytes,
                     struct slot *slot, struct error *err)
{
    int fd, result = check_room(&stage->directory, bytes, err);

    if (result)
        return result;
    file_temporary_name(slot->name, sizeof slot->name, shard);
    fd = openat(free_files->fd, slot->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return file_write_failed(free_files, slot->name, bytes, err), 1;
    result = reserve_file(stage, fd, bytes, err);
    if (result == 0)
        return map_file(stage, fd, bytes, slot, err);
    unlinkat(free_files->fd, slot->name, 0);
    close(fd);
    errno = ENOSPC;
    return result;
}

static int use_file(struct ckpt_stage *stage, const struct directory *free_files, const char *name, uint64_t bytes,
                    struct slot *slot, struct error *err)
{
    int fd = openat(free_files->fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC), result;

    if (fd < 0)
        return error_errno(err, CODE_IO, "%s/%s", free_files->path, name), 1;
    snprintf(slot->name, sizeof slot->name, "%s", name);
    result = reserve_file(stage, fd, bytes, err);
    if (result == 0)
        return map_file(stage, fd, bytes, slot, err);
    close(fd);
    return result;
}

static int take_file(struct ckpt_stage *stage, const struct directory *free_files, const char *within,
                     const char *shard, uint64_t bytes, struct slot *slot, struct error *err)
{
    char name[SLOT_NAME_SIZE];
    int staged, found;

    unmap_removed(stage);
    /* Counted first: a file that is freed meanwhile is then counted twice, and never missed. */
    staged = count_staged(stage, within, shard);
    found = find_free(free_files, shard, name, err);
    if (found < 0)
        return 1;
    if (found > 0)
        return use_file(stage, free_files, name, bytes, slot, err);
    if (staged >= stage->config.staged) {
        error_set(err, CODE_IO, "%s: %d saves are staged and none is drained yet", stage->directory.path,
                  stage->config.staged);
        errno = EAGAIN;
        return 1;
    }
    return make_file(stage, free_files, shard, bytes, slot, err);
}

static int open_free(struct ckpt_stage *stage, struct directory *free_files, struct error *err)
{
    if (mkdirat(stage->directory.fd, STAGE_FREE, 0700) < 0 && errno != EEXIST)
        return file_write_failed(&stage->directory, STAGE_FREE, 0, err);
    return directory_open(free_files, &stage->directory, STAGE_FREE, err);
}

bool ckpt_stage_ready(const struct ckpt_stage *stage, int shard, int shards)
{
    char name[FILE_NAME_SIZE], file[SLOT_NAME_SIZE];
    struct directory free_files;
    int found = 0;

    name_shard(name, shard, shards);
    if (directory_open(&free_files, &stage->directory, STAGE_FREE, NULL) == 0) {
        found = find_free(&free_files, name, file, NULL);
        directory_close(&free_files);
    }
    return found > 0 || count_staged(stage, NULL, name) < stage->config.staged;
}

int slot_reserve(struct ckpt_stage *stage, int shard, int shards, uint64_t bytes, struct error *err)
{
    char name[FILE_NAME_SIZE], file[SLOT_NAME_SIZE];
    struct directory free_files;
    struct slot slot;
    int result, staged, found;

    name_shard(name, shard, shards);
    if (open_free(stage, &free_files, err) < 0)
        return 1;
    staged = count_staged(stage, NULL, name);
    found = find_free(&free_files, name, file, err);
    result = found < 0;
    for (int n = found + staged; n < stage->config.staged && result == 0; n++)
        result = make_file(stage, &free_files, name, bytes, &slot, err);
    directory_close(&free_files);
    return result;
}

int slot_take(struct ckpt_stage *stage, const char *within, int shard, int shards, uint64_t bytes, struct slot *slot,
              struct error *err)
{
    char name[FILE_NAME_SIZE];
    struct directory free_files;
    int result, saved;

    name_shard(name, shard, shards);
    if (open_free(stage, &free_files, err) < 0) {
        errno = ENOSPC;
        return 1;
    }
    errno = 0;
    result = take_file(stage, &free_files, within, name, bytes, slot, err);
    saved = errno;
    directory_close(&free_files);
    errno = saved;
    return result;
}

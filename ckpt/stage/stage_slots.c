/*
 * stage_slots.c - the memory of staged shards, in *slots*: files that are reserved whole, mapped once, and used again. A
 * slot is in use while a save has another name of it (a hard link).
 */
#include <dirent.h>
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
#include <sys/statvfs.h>
#include <unistd.h>

#include "ckpt/stage/stage_dir.h"
#include "ckpt/write/attempt.h"
#include "common/memory_limit.h"

void stage_unmap(struct slot *slot)
{
    if (slot->data)
        munmap(slot->data, slot->bytes);
    if (slot->fd >= 0)
        close(slot->fd);
    *slot = (struct slot){.fd = -1};
}

/* This process's, or an unused one, with that name. */
static struct slot *find_mapped(struct ckpt_stage *stage, const char *name)
{
    struct slot *unused = NULL, *slot;

    for (int i = 0; i < STAGE_SLOTS_MAPPED; i++) {
        slot = &stage->slots[i];
        if (slot->fd >= 0 && strcmp(slot->name, name) == 0)
            return slot;
        if (slot->fd < 0 && !unused)
            unused = slot;
    }
    if (!unused) { /* more files than expected: unmap one that is not lent */
        unused = &stage->slots[stage->last == &stage->slots[0] ? 1 : 0];
        stage_unmap(unused);
    }
    return unused;
}

/* A store to a page that finds no memory would be SIGBUS. Returns -1 with errno. */
static int reserve_file(int fd, uint64_t bytes)
{
    struct stat info;

    if (fstat(fd, &info) < 0)
        return -1;
    if ((uint64_t)info.st_size == bytes && (uint64_t)info.st_blocks * 512 >= bytes)
        return 0;
    return ftruncate(fd, (off_t)bytes) < 0 ? -1 : fallocate(fd, 0, 0, (off_t)bytes);
}

/* Opens or makes the slot of that name, reserves its memory and maps it. */
static int open_slot(struct ckpt_stage *stage, const char *name, uint64_t bytes, struct slot **opened,
                     struct error *err)
{
    struct slot *slot = *opened = find_mapped(stage, name);
    struct stat info;

    if (slot->fd >= 0 && slot->bytes == bytes && fstat(slot->fd, &info) == 0 && info.st_nlink > 0)
        return 0;
    if (stage->last == slot)
        stage->last = NULL;
    stage_unmap(slot); /* a removed file would keep its memory */
    slot->fd = openat(stage->directory.fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (slot->fd < 0 || reserve_file(slot->fd, bytes) < 0) {
        file_write_failed(&stage->directory, "staged shard", bytes, err);
        goto fail;
    }
    slot->data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, slot->fd, 0);
    if (slot->data == MAP_FAILED) {
        slot->data = NULL;
        error_errno(err, CODE_IO, "%s: cannot map %" PRIu64 " bytes", stage->directory.path, bytes);
        goto fail;
    }
    slot->bytes = bytes;
    snprintf(slot->name, sizeof slot->name, "%s", name);
    return 0;
fail:
    unlinkat(stage->directory.fd, name, 0);
    stage_unmap(slot);
    return -1;
}

/* A shard's slots, and the saves that hold the shard's data, also those of an earlier run. */
struct shard_slots {
    char shard[FILE_NAME_SIZE];
    char unused[SLOT_NAME_SIZE]; /* one that no save uses, or the name of the next one to make */
    int made, free, in_use;
};

static int count_staged(const struct ckpt_stage *stage, const char *shard)
{
    char own[3 * FILE_NAME_SIZE], copy[3 * FILE_NAME_SIZE];
    struct listing saves = listing_open(&stage->directory);
    struct attempt save;
    int in_use = 0;

    while (attempt_next(&saves, &save)) {
        snprintf(own, sizeof own, "%s/%s", save.name, shard);
        snprintf(copy, sizeof copy, "%s/" STAGE_PARTNER "/%s", save.name, shard);
        in_use += file_exists(&stage->directory, own) || file_exists(&stage->directory, copy);
    }
    listing_close(&saves, NULL);
    return in_use;
}

/* Counts the saves first: a slot that is freed in between is then counted twice, and never missed. */
static void find_slots(struct shard_slots *slots, const struct ckpt_stage *stage, int shard, int shards)
{
    char name[SLOT_NAME_SIZE];
    struct stat info;

    *slots = (struct shard_slots){0};
    name_shard(slots->shard, SHARD_DATA, shard, shards);
    slots->in_use = count_staged(stage, slots->shard);
    for (;; slots->made++) {
        snprintf(name, sizeof name, STAGE_SLOTS "/%s.%d", slots->shard, slots->made);
        if (fstatat(stage->directory.fd, name, &info, AT_SYMLINK_NOFOLLOW) < 0)
            break;
        if (info.st_nlink == 1 && slots->free++ == 0)
            strcpy(slots->unused, name);
    }
    if (slots->free == 0)
        strcpy(slots->unused, name);
}

/* The part of `room` that stays free when each rank of the node holds all the memory that it needs. */
static uint64_t beside_ranks(const struct ckpt_stage_config *config, uint64_t room)
{
    uint64_t own = memory_own(), more = config->process > own ? config->process - own : 0;

    more *= (uint64_t)config->local;
    return room > more ? room - more : 0;
}

/* Check that the stage's file system, and memory if it is a RAM disk, have room for so many bytes more. */
static int check_room(const struct ckpt_stage *stage, uint64_t bytes, struct error *err)
{
    struct {
        const char *of;
        uint64_t left;
    } rooms[] = {{"the file system", 0}, {"this node's memory", 0}, {"the job's memory limit", 0}}, *least = rooms;
    struct statfs fs;

    if (fstatfs(stage->directory.fd, &fs) < 0)
        return 0;
    rooms[0].left = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    /* A RAM disk may have more room than the node has memory left; the kernel would then kill a process. Its pages count
     * for the first process that touches them. */
    rooms[1].left = beside_ranks(&stage->config, memory_available());
    rooms[2].left = beside_ranks(&stage->config, memory_limit_left());
    for (int i = 1; fs.f_type == TMPFS_MAGIC && i < 3; i++)
        least = rooms[i].left < least->left ? &rooms[i] : least;
    if (least->left >= bytes)
        return 0;
    return error_set(err, CODE_IO, "%s: a staged shard takes %" PRIu64 " bytes, %s has %" PRIu64 " left",
                     stage->directory.path, bytes, least->of, least->left);
}

static int make_slot(struct ckpt_stage *stage, const char *name, uint64_t bytes, struct slot **slot, struct error *err)
{
    if (check_room(stage, bytes, err) < 0)
        return -1;
    if (!file_exists(&stage->directory, STAGE_SLOTS) && mkdirat(stage->directory.fd, STAGE_SLOTS, 0700) < 0 &&
        errno != EEXIST)
        return file_write_failed(&stage->directory, STAGE_SLOTS, 0, err);
    return open_slot(stage, name, bytes, slot, err);
}

bool ckpt_stage_has_room(const struct ckpt_stage *stage, int shard, int shards)
{
    struct shard_slots slots;

    find_slots(&slots, stage, shard, shards);
    return slots.free > 0 || slots.in_use < stage->config.max_staged;
}

int stage_reserve_slots(struct ckpt_stage *stage, int shard, int shards, uint64_t bytes, struct error *err)
{
    struct shard_slots slots;
    struct slot *slot;

    find_slots(&slots, stage, shard, shards);
    for (int n = slots.free + slots.in_use; n < stage->config.max_staged; n++, slots.made++) {
        snprintf(slots.unused, sizeof slots.unused, STAGE_SLOTS "/%s.%d", slots.shard, slots.made);
        if (make_slot(stage, slots.unused, bytes, &slot, err) < 0)
            return 1;
    }
    return 0;
}

int stage_take_slot(struct ckpt_stage *stage, int shard, int shards, uint64_t bytes, struct slot **slot,
                    struct error *err)
{
    struct shard_slots slots;
    int result;

    find_slots(&slots, stage, shard, shards);
    if (slots.free == 0 && slots.in_use >= stage->config.max_staged)
        result = error_set(err, CODE_IO, "%s: %d saves are staged and none is drained yet", stage->directory.path,
                           stage->config.max_staged);
    else
        result = (slots.free > 0 ? open_slot : make_slot)(stage, slots.unused, bytes, slot, err);
    return result < 0 ? 1 : 0;
}

void ckpt_stage_memory(const struct ckpt_stage *stage, double *taken, double *left)
{
    int fd = openat(stage->directory.fd, STAGE_SLOTS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *slots = fd < 0 ? NULL : fdopendir(fd);
    struct statvfs system;
    struct dirent *entry;
    struct stat info;

    if (fstatvfs(stage->directory.fd, &system) == 0)
        *left = (double)system.f_bavail * (double)system.f_frsize;
    if (!slots) {
        close(fd);
        return;
    }
    *taken = 0;
    while ((entry = readdir(slots)))
        if (fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode))
            *taken += 512.0 * (double)info.st_blocks;
    closedir(slots);
}

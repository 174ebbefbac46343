/* stage_shard.c - ckpt_stage_shard: one rank's shard into memory. */
#include "config.h"

#include "ckpt/stage_copy.h"
#include "ckpt/stage_internal.h"
#include "common/crc32c.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS 2000000

/* The drainer has another working directory than we. */
static int absolute(char *path, size_t size, const char *dir, struct error *err)
{
    char here[4096] = "";
    int length;

    if (dir[0] != '/' && !getcwd(here, sizeof here))
        return error_errno(err, CODE_IO, "the working directory");
    length = dir[0] == '/' ? snprintf(path, size, "%s", dir) : snprintf(path, size, "%s/%s", here, dir);
    if (length >= (int)size)
        return error_set(err, CODE_CONFIG, "%.100s...: is too long for a checkpoint directory", dir);
    return 0;
}

int stage_target(const struct ckpt_stage *stage, const struct ckpt_save *save, struct target *target, struct error *err)
{
    *target = (struct target){
        .step = save->state.step,
        .shards = save->shards,
        .local = stage->config.local,
        .keep = stage->config.keep,
        .keep_every = stage->config.keep_every,
        .started = stage_time(),
    };
    if (!layout_attempt_is_valid(save->attempt))
        return error_set(err, CODE_INTERNAL, "attempt \"%s\" is not a name", save->attempt ? save->attempt : "");
    snprintf(target->attempt, sizeof target->attempt, "%s", save->attempt);
    return absolute(target->dir, sizeof target->dir, save->dir, err);
}

/* Wait for a file while all that we may have are being drained. */
static int take_slot(struct ckpt_stage *stage, const struct ckpt_save *save, uint64_t bytes, struct slot *slot,
                     struct error *err)
{
    double alive = stage_clock();

    for (;;) {
        int result = slot_take(stage, NULL, save->shard, save->shards, bytes, slot, err);

        if (result <= 0 || errno != EAGAIN)
            return result;
        if (stage_check_drainer(stage, (size_t)stage->config.staged, &alive, err) < 0)
            return 1;
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}

static int fill(const struct ckpt_stage *stage, const struct ckpt_save *save, struct manifest *part, const void *header,
                unsigned char *to, struct error *err)
{
    struct manifest_shard *shard = part->shard;
    struct segment *segments;
    size_t count;

    shard->block_crcs = calloc(shard->layout.blocks + 1, sizeof *shard->block_crcs);
    segments = stage_segments(save, &shard->layout, &count);
    if (!shard->block_crcs || !segments) {
        free(segments);
        return error_errno(err, CODE_IO, "tables of shard %d", save->shard);
    }
    shard->header_crc = crc32c(0, header, shard->data_offset);
    memcpy(to, header, shard->data_offset);
    stage_copy(to + shard->data_offset, segments, count, &shard->layout, stage->config.threads, shard->block_crcs);
    free(segments);
    return 0;
}

/* The names: data first, then the part that says that it is complete. */
static int publish(struct ckpt_stage *stage, const struct ckpt_save *save, const struct target *target,
                   const struct slot *slot, const char *text, size_t bytes, struct error *err)
{
    char from[LAYOUT_NAME_SIZE + 80], name[LAYOUT_NAME_SIZE];
    struct directory generation;
    int result = -1;

    if (generation_make(&generation, &stage->directory, target, err) < 0)
        return 1;
    layout_part_name(name, save->shard, save->shards);
    if (stage_has(&generation, name)) {
        result =
            error_set(err, CODE_INTERNAL, "%s/%s: was staged before; every try to save needs an attempt of its own",
                      generation.path, name);
        goto out;
    }
    layout_shard_name(name, save->shard, save->shards);
    snprintf(from, sizeof from, STAGE_FREE "/%s", slot->name);
    if (renameat(stage->directory.fd, from, generation.fd, name) < 0) {
        error_errno(err, CODE_IO, "%s/%s", generation.path, name);
        result = 1;
        goto out;
    }
    layout_part_name(name, save->shard, save->shards);
    result = file_write(&generation, name, text, bytes, err) < 0 ? 1 : 0;
out:
    directory_close(&generation);
    return result;
}

static int stage_part(struct ckpt_stage *stage, const struct ckpt_save *save, struct manifest *part, const void *header,
                      struct error *err)
{
    struct target target;
    struct slot slot;
    size_t bytes;
    char *text;
    int result = stage_target(stage, save, &target, err);

    if (result == 0)
        result = take_slot(stage, save, manifest_shard_bytes(part->shard), &slot, err);
    if (result != 0)
        return result;
    target.started = stage_time();
    if (fill(stage, save, part, header, slot.mapping->data, err) < 0 || !(text = manifest_encode(part, &bytes, err)))
        return -1;
    result = publish(stage, save, &target, &slot, text, bytes, err);
    if (result != 0) {
        free(text);
        return result;
    }
    free(stage->last_part);
    stage->last = slot.mapping;
    stage->last_part = text;
    stage->last_part_bytes = bytes;
    return 0;
}

static struct manifest *describe(const struct ckpt_save *save, void **header, struct error *err)
{
    struct manifest *part = part_create(save, err);
    size_t bytes;

    if (part && part_header(part, header, &bytes, err) < 0) {
        manifest_destroy(part);
        return NULL;
    }
    if (part)
        part->shard->data_offset = bytes;
    return part;
}

int ckpt_stage_shard(struct ckpt_stage *stage, const struct ckpt_save *save, struct error *err)
{
    void *header = NULL;
    struct manifest *part = describe(save, &header, err);
    int result;

    if (!part)
        return -1;
    result = stage_part(stage, save, part, header, err);
    free(header);
    manifest_destroy(part);
    return result;
}

int ckpt_stage_reserve(struct ckpt_stage *stage, const struct ckpt_save *save, struct error *err)
{
    void *header = NULL;
    struct manifest *part = describe(save, &header, err);
    int result;

    if (!part)
        return -1;
    result = slot_reserve(stage, save->shard, save->shards, manifest_shard_bytes(part->shard), err);
    free(header);
    manifest_destroy(part);
    return result;
}

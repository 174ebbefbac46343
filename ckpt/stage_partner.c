/* stage_partner.c - a shard that is staged on two nodes: lending ours, keeping another's. */
#include "config.h"

#include "ckpt/stage_internal.h"
#include "common/crc32c.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int ckpt_stage_lend(const struct ckpt_stage *stage, struct ckpt_staged *staged, struct error *err)
{
    if (!stage->last)
        return error_set(err, CODE_INTERNAL, "ckpt_stage_lend: nothing was staged");
    *staged = (struct ckpt_staged){stage->last->data, stage->last->bytes, stage->last_part, stage->last_part_bytes};
    return 0;
}

void *ckpt_stage_borrow(struct ckpt_stage *stage, const struct ckpt_save *save, uint64_t bytes, struct error *err)
{
    stage->borrowed.mapping = NULL;
    if (stage_target(stage, save, &stage->borrowed_target, err) < 0)
        return NULL;
    stage->borrowed_shard = save->shard;
    if (slot_take(stage, STAGE_PARTNER, save->shard, save->shards, bytes, &stage->borrowed, err) != 0) {
        stage->borrowed.mapping = NULL;
        return NULL;
    }
    return stage->borrowed.mapping->data;
}

static int check(const struct mapping *mapping, const struct manifest_shard *shard, struct error *err)
{
    if (manifest_shard_bytes(shard) != mapping->bytes)
        return error_set(err, CODE_DATA, "a partner's shard of %" PRIu64 " bytes, its part says %" PRIu64,
                         mapping->bytes, manifest_shard_bytes(shard));
    if (crc32c(0, mapping->data, shard->data_offset) != shard->header_crc)
        return error_set(err, CODE_DATA, "a partner's shard: checksum mismatch in the header");
    for (uint64_t block = 0; block < shard->layout.blocks; block++)
        if (crc32c(0, mapping->data + shard->data_offset + block * LAYOUT_BLOCK,
                   layout_block_bytes(&shard->layout, block)) != shard->block_crcs[block])
            return error_set(err, CODE_DATA, "a partner's shard: checksum mismatch in block %" PRIu64, block);
    return 0;
}

static int publish(struct ckpt_stage *stage, const struct directory *generation, const char *text, size_t bytes,
                   struct error *err)
{
    char from[LAYOUT_NAME_SIZE + 80], name[LAYOUT_NAME_SIZE];
    struct directory partner;
    int result;

    if (mkdirat(generation->fd, STAGE_PARTNER, 0700) < 0 && errno != EEXIST)
        return file_write_failed(generation, STAGE_PARTNER, 0, err);
    if (directory_open(&partner, generation, STAGE_PARTNER, err) < 0)
        return -1;
    layout_shard_name(name, stage->borrowed_shard, stage->borrowed_target.shards);
    snprintf(from, sizeof from, STAGE_FREE "/%s", stage->borrowed.name);
    if (renameat(stage->directory.fd, from, partner.fd, name) < 0)
        result = error_errno(err, CODE_IO, "%s/%s", partner.path, name);
    else {
        layout_part_name(name, stage->borrowed_shard, stage->borrowed_target.shards);
        result = file_write(&partner, name, text, bytes, err);
    }
    directory_close(&partner);
    return result;
}

/* Never makes the generation anew: nobody would stage our own shard in it, and the drainer would wait for that. */
static int keep(struct ckpt_stage *stage, const char *part, size_t part_bytes, struct error *err)
{
    char name[LAYOUT_NAME_SIZE];
    struct directory generation;
    int result;

    layout_partial_name(name, stage->borrowed_target.step, stage->borrowed_target.attempt);
    if (directory_open(&generation, &stage->directory, name, err) < 0)
        return errno == ENOENT ? 0 : -1;
    result = publish(stage, &generation, part, part_bytes, err);
    directory_close(&generation);
    return result;
}

int ckpt_stage_keep(struct ckpt_stage *stage, const char *part, size_t part_bytes, struct error *err)
{
    const struct target *target = &stage->borrowed_target;
    struct manifest *described;
    int result = -1;

    if (!stage->borrowed.mapping)
        return error_set(err, CODE_INTERNAL, "ckpt_stage_keep: nothing was borrowed");
    described = manifest_decode(part, part_bytes, stage->borrowed_shard, target->shards, err);
    if (!described)
        return error_prefix(err, "a partner's part");
    if (described->state.step != target->step || strcmp(described->attempt, target->attempt) != 0)
        error_set(err, CODE_DATA, "a partner's part: is of step %" PRIu64 ", attempt \"%s\"", described->state.step,
                  described->attempt);
    else if (check(stage->borrowed.mapping, described->shard, err) == 0)
        result = keep(stage, part, part_bytes, err);
    stage->borrowed.mapping = NULL;
    manifest_destroy(described);
    return result;
}

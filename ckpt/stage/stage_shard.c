/* stage_shard.c - one rank's shard into this node's memory, and copies of partners' shards. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/file/workers.h"
#include "ckpt/stage/stage_dir.h"
#include "ckpt/write/attempt.h"
#include "common/clock.h"
#include "common/crc32c.h"
#include "common/io.h"

/* ---- the copy ---------------------------------------------------------------------------------------------------- */

/*
 * Copies the scattered sources to the shard's data and computes its checksums. If the state is in host memory, training
 * waits for this copy. Memory bandwidth is all that counts here. crc32c_copy reads and checksums a run that fits the
 * cache, then stores it past the cache. The checksums are therefore of the sources; the drain compares the stored data
 * with them.
 */

/* The data's bytes from `offset` to the next run's offset are copied from `source`; NULL: they are zeros. */
struct source_run {
    uint64_t offset;
    const unsigned char *source;
};

struct shard_copy {
    unsigned char *to; /* aligned to 64 bytes */
    struct source_run *runs;
    size_t count;
    const struct shard_layout *layout;
    uint32_t *crcs; /* [layout->blocks] */
};

/* Runs in order of offset, and one more at the data's end. */
static int list_runs(struct shard_copy *copy, const struct ckpt_save *save, struct error *err)
{
    const struct shard_layout *layout = copy->layout;
    struct source_run *runs = malloc((save->nkinds * (save->npieces + 1) + 1) * sizeof *runs);
    size_t n = 0;

    if (!runs)
        return error_errno(err, CODE_IO, "tables of shard %d", save->shard);
    for (size_t k = 0; k < save->nkinds; k++) {
        uint64_t offset = k * layout->stride;

        for (size_t p = 0; p < save->npieces; p++) {
            if (save->pieces[p].count == 0)
                continue;
            runs[n++] = (struct source_run){offset, save->sources[p * save->nkinds + k]};
            offset += save->pieces[p].count * 4;
        }
        if (k + 1 < save->nkinds && offset < (k + 1) * layout->stride)
            runs[n++] = (struct source_run){offset, NULL};
    }
    runs[n++] = (struct source_run){layout->data_bytes, NULL};
    copy->runs = runs;
    copy->count = n;
    return 0;
}

/* The last run that begins at or before the offset. */
static size_t find_run(const struct shard_copy *copy, uint64_t offset)
{
    size_t low = 0, high = copy->count - 1;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (copy->runs[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int copy_block(void *arg, int worker, size_t block, struct error *err)
{
    const struct shard_copy *copy = arg;
    uint64_t at = block * SHARD_BLOCK, end = at + shard_block_bytes(copy->layout, block);
    uint32_t crc = 0;

    (void)worker;
    (void)err;
    for (size_t s = find_run(copy, at); at < end; s++) {
        uint64_t stop = copy->runs[s + 1].offset < end ? copy->runs[s + 1].offset : end;
        const unsigned char *source = copy->runs[s].source;
        size_t bytes = (size_t)(stop - at);

        if (source)
            crc = crc32c_copy(crc, copy->to + at, source + (at - copy->runs[s].offset), bytes);
        else
            crc = crc32c(crc, memset(copy->to + at, 0, bytes), bytes);
        at = stop;
    }
    copy->crcs[block] = crc;
    return 0;
}

/* Header and data into the mapped file at `to`; the checksums into `part`. */
static int fill_file(const struct ckpt_stage *stage, const struct ckpt_save *save, struct manifest *part,
                     const void *header, unsigned char *to, struct error *err)
{
    struct manifest_shard *shard = part->shard;
    struct shard_copy copy = {.to = to + shard->data_offset, .layout = &shard->layout, .crcs = shard->block_crcs};

    if (list_runs(&copy, save, err) < 0)
        return -1;
    memcpy(to, header, shard->data_offset);
    workers_run(stage->config.threads, shard->layout.blocks, copy_block, &copy, NULL);
    free(copy.runs);
    return 0;
}

/* ---- staging ----------------------------------------------------------------------------------------------------- */

static int describe_staged(const struct ckpt_stage *stage, const struct ckpt_save *save, struct staged_save *staged,
                           struct error *err)
{
    *staged = (struct staged_save){
        .step = save->state.step,
        .shards = save->shards,
        .local = stage->config.local,
        .keep = stage->config.keep,
        .keep_every = stage->config.keep_every,
        .started = clock_realtime(),
    };
    snprintf(staged->attempt, sizeof staged->attempt, "%s", save->attempt);
    return io_absolute(staged->dir, sizeof staged->dir, save->dir, err); /* the drainer has another working directory */
}

/* Gives the filled slot its name in `directory` and then writes the part, which means that both are complete. */
static int publish_files(const struct ckpt_stage *stage, const struct slot *slot, const struct directory *directory,
                         int shard, int shards, const char *text, size_t bytes, struct error *err)
{
    char name[FILE_NAME_SIZE];

    name_shard(name, SHARD_DATA, shard, shards);
    if (linkat(stage->directory.fd, slot->name, directory->fd, name, 0) < 0)
        return error_errno(err, CODE_IO, "%s/%s", directory->path, name);
    name_shard(name, SHARD_PART, shard, shards);
    return file_write(directory, name, text, bytes, err);
}

static int publish_shard(struct ckpt_stage *stage, const struct staged_save *save, const struct slot *slot, int shard,
                         const char *text, size_t bytes, struct error *err)
{
    char name[FILE_NAME_SIZE];
    struct directory staged;
    int result;

    if (staged_make(&staged, &stage->directory, save, err) < 0)
        return 1;
    name_shard(name, SHARD_PART, shard, save->shards);
    if (file_exists(&staged, name))
        result = error_set(err, CODE_INTERNAL, "%s/%s: was staged before; each try to save needs a new attempt's name",
                           staged.path, name);
    else
        result = publish_files(stage, slot, &staged, shard, save->shards, text, bytes, err) < 0 ? 1 : 0;
    directory_close(&staged);
    return result;
}

static int stage_data_and_part(struct ckpt_stage *stage, const struct ckpt_save *save, struct manifest *part,
                               const void *header, struct error *err)
{
    struct staged_save staged;
    struct slot *slot;
    size_t bytes;
    char *text;
    int result = describe_staged(stage, save, &staged, err);

    if (result == 0)
        result = stage_take_slot(stage, save->shard, save->shards, manifest_shard_bytes(part->shard), &slot, err);
    if (result != 0)
        return result;
    if (fill_file(stage, save, part, header, slot->data, err) < 0 || !(text = manifest_encode(part, &bytes, err)))
        return -1;
    result = publish_shard(stage, &staged, slot, save->shard, text, bytes, err);
    if (result != 0) {
        free(text);
        return result;
    }
    free(stage->last_part);
    stage->last = slot;
    stage->last_part = text;
    stage->last_part_bytes = bytes;
    return 0;
}

int ckpt_stage_shard(struct ckpt_stage *stage, const struct ckpt_save *save, struct error *err)
{
    void *header = NULL;
    struct manifest *part = manifest_create_part(save, &header, err);
    int result = part ? stage_data_and_part(stage, save, part, header, err) : -1;

    free(header);
    manifest_destroy(part);
    return result;
}

int ckpt_stage_reserve(struct ckpt_stage *stage, const struct ckpt_save *save, struct error *err)
{
    void *header = NULL;
    struct manifest *part = manifest_create_part(save, &header, err);
    int result =
        part ? stage_reserve_slots(stage, save->shard, save->shards, manifest_shard_bytes(part->shard), err) : -1;

    free(header);
    manifest_destroy(part);
    return result;
}

/* ---- partner copies ---------------------------------------------------------------------------------------------- */

int ckpt_stage_lend(const struct ckpt_stage *stage, struct ckpt_staged_shard *staged, struct error *err)
{
    if (!stage->last)
        return error_set(err, CODE_INTERNAL, "ckpt_stage_lend: nothing was staged");
    *staged =
        (struct ckpt_staged_shard){stage->last->data, stage->last->bytes, stage->last_part, stage->last_part_bytes};
    return 0;
}

void *ckpt_stage_borrow(struct ckpt_stage *stage, const struct ckpt_save *save, uint64_t bytes, struct error *err)
{
    stage->borrowed = NULL;
    if (describe_staged(stage, save, &stage->borrowed_save, err) < 0)
        return NULL;
    stage->borrowed_shard = save->shard;
    if (stage_take_slot(stage, save->shard, save->shards, bytes, &stage->borrowed, err) != 0)
        stage->borrowed = NULL;
    return stage->borrowed ? stage->borrowed->data : NULL;
}

static int check_copy(const struct slot *slot, const struct manifest_shard *shard, struct error *err)
{
    const unsigned char *data = slot->data + shard->data_offset;

    if (manifest_shard_bytes(shard) != slot->bytes)
        return error_set(err, CODE_DATA, "a partner's shard of %" PRIu64 " bytes, the part says %" PRIu64, slot->bytes,
                         manifest_shard_bytes(shard));
    if (crc32c(0, slot->data, shard->data_offset) != shard->header_crc)
        return error_set(err, CODE_DATA, "a partner's shard: checksum mismatch in the header");
    for (uint64_t block = 0; block < shard->layout.blocks; block++)
        if (crc32c(0, data + block * SHARD_BLOCK, shard_block_bytes(&shard->layout, block)) != shard->block_crcs[block])
            return error_set(err, CODE_DATA, "a partner's shard: checksum mismatch in block %" PRIu64, block);
    return 0;
}

/*
 * Never makes the save anew: this rank's own shard would be missing in it, and the drainer would wait for that.
 */
static int publish_copy(struct ckpt_stage *stage, const char *part, size_t part_bytes, struct error *err)
{
    const struct staged_save *save = &stage->borrowed_save;
    struct directory staged, partner;
    char name[FILE_NAME_SIZE];
    int result = -1;

    name_attempt(name, ATTEMPT_PARTIAL, save->step, save->attempt);
    if (directory_open(&staged, &stage->directory, name, err) < 0)
        return errno == ENOENT ? 0 : -1;
    if (mkdirat(staged.fd, STAGE_PARTNER, 0700) < 0 && errno != EEXIST) {
        file_write_failed(&staged, STAGE_PARTNER, 0, err);
    } else if (directory_open(&partner, &staged, STAGE_PARTNER, err) == 0) {
        result =
            publish_files(stage, stage->borrowed, &partner, stage->borrowed_shard, save->shards, part, part_bytes, err);
        directory_close(&partner);
    }
    directory_close(&staged);
    return result;
}

int ckpt_stage_keep(struct ckpt_stage *stage, const char *part, size_t part_bytes, struct error *err)
{
    const struct staged_save *save = &stage->borrowed_save;
    struct manifest *described;
    int result = -1;

    if (!stage->borrowed)
        return error_set(err, CODE_INTERNAL, "ckpt_stage_keep: nothing was borrowed");
    described = manifest_decode(part, part_bytes, stage->borrowed_shard, save->shards, err);
    if (!described)
        return error_prefix(err, "a partner's part");
    if (manifest_check_save(described, save->step, save->attempt, err) < 0)
        error_prefix(err, "a partner's part");
    else if (check_copy(stage->borrowed, described->shard, err) == 0)
        result = publish_copy(stage, part, part_bytes, err);
    stage->borrowed = NULL;
    manifest_destroy(described);
    return result;
}

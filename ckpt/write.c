/* write.c - ckpt_write_shard, one rank's shard straight to the checkpoint directory; and ckpt_abandon. */
#include "config.h"

#include "ckpt/attempt.h"
#include "ckpt/block_writer.h"
#include "ckpt/part.h"
#include "common/crc32c.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STREAM_ELEMENTS ((uint64_t)8 << 20) /* 32 MiB */

static int put_pieces(struct block_writer *writer, const struct ckpt_save *save, size_t kind, struct error *err)
{
    for (size_t p = 0; p < save->npieces; p++)
        if (save->pieces[p].count > 0 &&
            block_writer_put(writer, save->sources[p * save->nkinds + kind], save->pieces[p].count * 4, err) < 0)
            return -1;
    return 0;
}

/* The same out of save->source, by way of a buffer large enough that small pieces are asked for many at a time. */
static int put_stream(struct block_writer *writer, const struct ckpt_save *save, size_t kind, uint64_t elements,
                      struct error *err)
{
    uint64_t most = elements < STREAM_ELEMENTS ? elements : STREAM_ELEMENTS;
    float *buffer = malloc(most * sizeof *buffer + 1);
    int result = 0;

    if (!buffer)
        return error_errno(err, CODE_IO, "a buffer of %zu bytes", (size_t)most * sizeof *buffer);
    for (uint64_t first = 0; first < elements && result == 0; first += most) {
        uint64_t count = elements - first < most ? elements - first : most;

        result = save->source(save->source_arg, kind, first, count, buffer, err);
        if (result == 0)
            result = block_writer_put(writer, buffer, count * sizeof *buffer, err);
    }
    free(buffer);
    return result;
}

/* Each kind's segment: its pieces, one after the other, and zeros up to where the next segment starts. */
static int put_data(struct block_writer *writer, const struct ckpt_save *save, const struct layout *layout,
                    struct error *err)
{
    for (size_t k = 0; k < save->nkinds; k++) {
        int result =
            save->sources ? put_pieces(writer, save, k, err) : put_stream(writer, save, k, layout->elements, err);

        if (result < 0)
            return -1;
        if (k + 1 < save->nkinds && block_writer_put(writer, NULL, layout->stride - layout->elements * 4, err) < 0)
            return -1;
    }
    return 0;
}

static int write_data(const struct directory *partial, const struct ckpt_save *save, struct manifest *part,
                      struct error *err)
{
    struct manifest_shard *shard = part->shard;
    struct block_writer *writer = NULL;
    char name[LAYOUT_NAME_SIZE];
    void *header = NULL;
    size_t header_bytes;
    int result = -1;

    layout_shard_name(name, part->part, part->shards);
    shard->block_crcs = calloc(shard->layout.blocks + 1, sizeof *shard->block_crcs);
    if (!shard->block_crcs)
        return error_errno(err, CODE_IO, "checksums of shard %d", part->part);
    if (part_header(part, &header, &header_bytes, err) < 0)
        goto out;
    shard->data_offset = header_bytes;
    shard->header_crc = crc32c(0, header, header_bytes);
    writer = block_writer_create(partial, name, header, header_bytes, shard->layout.data_bytes, err);
    if (!writer || put_data(writer, save, &shard->layout, err) < 0)
        goto out;
    result = block_writer_finish(writer, shard->block_crcs, err) == 0 ? 0 : -1;
out:
    block_writer_destroy(writer);
    free(header);
    return result;
}

static int write_part(const struct directory *partial, const struct manifest *part, struct error *err)
{
    char name[LAYOUT_NAME_SIZE];
    size_t bytes;
    char *text = manifest_encode(part, &bytes, err);
    int result;

    if (!text)
        return -1;
    layout_part_name(name, part->part, part->shards);
    result = file_write(partial, name, text, bytes, err);
    free(text);
    return result;
}

/* Write both files and make their names durable; the part comes last, since it says that the shard is there. */
static int write_both(const struct directory *partial, const struct ckpt_save *save, struct manifest *part,
                      struct error *err)
{
    char name[LAYOUT_NAME_SIZE];

    layout_part_name(name, part->part, part->shards);
    if (faccessat(partial->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return error_set(err, CODE_INTERNAL, "%s/%s: was written before; every try to save needs an attempt of its own",
                         partial->path, name);
    if (write_data(partial, save, part, err) < 0 || directory_sync(partial, err) < 0 ||
        write_part(partial, part, err) < 0)
        return -1;
    return directory_sync(partial, err);
}

static int open_partial(struct directory *partial, const struct directory *parent, const struct ckpt_save *save,
                        struct error *err)
{
    char name[LAYOUT_NAME_SIZE];

    layout_partial_name(name, save->state.step, save->attempt);
    if (mkdirat(parent->fd, name, 0777) < 0 && errno != EEXIST)
        return file_write_failed(parent, name, 0, err);
    return directory_open(partial, parent, name, err);
}

/*
 * What earlier tries left takes room that this one may need. Of older steps only those that a commit has overtaken go,
 * and never this try's, which other ranks may be writing. What cannot go is not worth failing for.
 */
static void make_room(const struct directory *parent, const struct ckpt_save *save)
{
    uint64_t newest;

    file_make_trash(parent, NULL);
    if (attempt_newest_committed(parent, &newest, NULL) > 0)
        attempt_clear_older(parent, newest < save->state.step ? newest : save->state.step, NULL);
    attempt_clear_others(parent, save->state.step, save->attempt, NULL);
}

int ckpt_write_shard(const struct ckpt_save *save, struct error *err)
{
    struct directory parent = {.fd = -1}, partial = {.fd = -1};
    struct manifest *part = part_create(save, err);
    int result = -1;

    if (!part)
        return -1;
    if (directory_make_path(save->dir, err) < 0 || directory_open(&parent, NULL, save->dir, err) < 0)
        goto out;
    if (attempt_is_committed(&parent, save->state.step)) {
        result = attempt_check_committed(&parent, save, err);
        goto out;
    }
    make_room(&parent, save);
    if (open_partial(&partial, &parent, save, err) < 0)
        goto out;
    result = write_both(&partial, save, part, err);
    /* The last shard may have been committed by someone while we looked; then there is nothing left to fail. */
    if (result < 0 && attempt_is_committed(&parent, save->state.step))
        result = attempt_check_committed(&parent, save, err);
out:
    directory_close(&partial);
    directory_close(&parent);
    manifest_destroy(part);
    return result;
}

int ckpt_abandon(const char *dir, uint64_t step, const char *attempt, struct error *err)
{
    char name[LAYOUT_NAME_SIZE];
    struct directory parent;
    int result;

    if (!layout_attempt_is_valid(attempt))
        return error_set(err, CODE_INTERNAL,
                         "ckpt_abandon: attempt \"%s\": must be 1 to %d letters, digits, '.', '_' and '-'",
                         attempt ? attempt : "", CKPT_ATTEMPT_SIZE - 1);
    if (directory_open(&parent, NULL, dir, err) < 0)
        return errno == ENOENT ? 0 : -1;
    layout_partial_name(name, step, attempt);
    result = faccessat(parent.fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ? file_trash(&parent, name, err) : 0;
    directory_close(&parent);
    return result;
}

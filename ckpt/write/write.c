/* write.c - ckpt_write_shard: one rank's shard to the checkpoint directory; its part of the manifest; ckpt_abandon. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/file/block_writer.h"
#include "ckpt/write/attempt.h"
#include "common/crc32c.h"
#include "common/safetensors.h"

#define STREAM_ELEMENTS ((uint64_t)8 << 20) /* 32 MiB */

/* Copies the save's tables, without empty pieces. */
static int copy_tables(struct manifest *part, const struct ckpt_save *save, struct error *err)
{
    struct manifest_shard *shard = part->shard = calloc(1, sizeof *shard);

    part->tensors = calloc(save->ntensors + 1, sizeof *part->tensors);
    part->kinds = calloc(save->nkinds + 1, sizeof *part->kinds);
    part->job_text = strdup(save->job_text ? save->job_text : "");
    if (shard)
        shard->pieces = calloc(save->npieces + 1, sizeof *shard->pieces);
    if (!shard || !shard->pieces || !part->tensors || !part->kinds || !part->job_text)
        return error_errno(err, CODE_IO, "manifest of shard %d", save->shard);
    part->ntensors = save->ntensors;
    if (save->ntensors)
        memcpy(part->tensors, save->tensors, save->ntensors * sizeof *part->tensors);
    for (part->nkinds = 0; part->nkinds < save->nkinds; part->nkinds++) {
        part->kinds[part->nkinds] = strdup(save->kinds[part->nkinds]);
        if (!part->kinds[part->nkinds])
            return error_errno(err, CODE_IO, "manifest of shard %d", save->shard);
    }
    for (size_t p = 0; p < save->npieces; p++)
        if (save->pieces[p].count > 0)
            shard->pieces[shard->npieces++] = save->pieces[p];
    return 0;
}

/* The shard's safetensors header, a 1-D tensor a kind, where the layout has them; and its place and checksum. */
static int make_header(struct manifest *part, void **header, struct error *err)
{
    struct safetensors_entry *entries = calloc(part->nkinds, sizeof *entries);
    const char *metadata[] = {"format", "muster-shard", NULL};
    struct manifest_shard *shard = part->shard;
    size_t bytes = 0;
    int result;

    shard->block_crcs = calloc(shard->layout.blocks + 1, sizeof *shard->block_crcs);
    if (!entries || !shard->block_crcs) {
        free(entries);
        return error_errno(err, CODE_IO, "header of shard %d", part->part);
    }
    for (size_t k = 0; k < part->nkinds; k++)
        entries[k] = (struct safetensors_entry){part->kinds[k], "F32", 1, {shard->layout.elements}, 0, 0};
    result = safetensors_layout(entries, part->nkinds, metadata, SHARD_ALIGN, header, &bytes, err);
    free(entries);
    if (result < 0)
        return -1;
    shard->data_offset = bytes;
    shard->header_crc = crc32c(0, *header, bytes);
    return 0;
}

struct manifest *part_create(const struct ckpt_save *save, void **header, struct error *err)
{
    struct manifest *part = calloc(1, sizeof *part);

    if (!part) {
        error_errno(err, CODE_IO, "manifest of shard %d", save->shard);
        return NULL;
    }
    part->part = save->shard;
    part->shards = save->shards;
    part->state = save->state;
    snprintf(part->version, sizeof part->version, "%s", PACKAGE_VERSION);
    if (name_is_attempt(save->attempt)) /* otherwise manifest_check refuses "" */
        snprintf(part->attempt, sizeof part->attempt, "%s", save->attempt);
    if (copy_tables(part, save, err) < 0)
        goto fail;
    if (manifest_check(part, err) < 0) {
        if (err && err->code == CODE_DATA)
            err->code = CODE_INTERNAL; /* the caller's struct is wrong, not a file */
        error_prefix(err, "cannot save step %llu", (unsigned long long)save->state.step);
        goto fail;
    }
    gethostname(part->shard->host, sizeof part->shard->host - 1);
    part->shard->written = (uint64_t)time(NULL);
    if (make_header(part, header, err) == 0)
        return part;
fail:
    manifest_destroy(part);
    return NULL;
}

static int put_pieces(struct block_writer *writer, const struct ckpt_save *save, size_t kind, struct error *err)
{
    for (size_t p = 0; p < save->npieces; p++)
        if (save->pieces[p].count > 0 &&
            block_writer_put(writer, save->sources[p * save->nkinds + kind], save->pieces[p].count * 4, err) < 0)
            return -1;
    return 0;
}

/* The same from save->source, through a buffer large enough for many small pieces. */
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

/* Each kind's segment: its pieces one after the other, and zeros up to the next segment. */
static int put_data(struct block_writer *writer, const struct ckpt_save *save, const struct shard_layout *layout,
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
                      const void *header, struct error *err)
{
    struct manifest_shard *shard = part->shard;
    struct block_writer *writer;
    char name[FILE_NAME_SIZE];
    int result = -1;

    name_shard(name, part->part, part->shards);
    writer = block_writer_create(partial, name, header, shard->data_offset, shard->layout.data_bytes, err);
    if (writer && put_data(writer, save, &shard->layout, err) == 0)
        result = block_writer_finish(writer, shard->block_crcs, err) == 0 ? 0 : -1;
    block_writer_destroy(writer);
    return result;
}

/* Writes both files and makes their names durable; the part comes last, since it means that the shard is complete. */
static int write_files(const struct directory *partial, const struct ckpt_save *save, struct manifest *part,
                       const void *header, struct error *err)
{
    char name[FILE_NAME_SIZE];

    name_part(name, part->part, part->shards);
    if (file_exists(partial, name))
        return error_set(err, CODE_INTERNAL, "%s/%s: was written before; each try to save needs a new attempt's name",
                         partial->path, name);
    if (write_data(partial, save, part, header, err) < 0 || directory_sync(partial, err) < 0)
        return -1;
    return manifest_write(part, partial, err);
}

static int open_partial(struct directory *partial, const struct directory *parent, const struct ckpt_save *save,
                        struct error *err)
{
    char name[FILE_NAME_SIZE];

    name_partial(name, save->state.step, save->attempt);
    if (mkdirat(parent->fd, name, 0777) < 0 && errno != EEXIST)
        return file_write_failed(parent, name, 0, err);
    return directory_open(partial, parent, name, err);
}

int ckpt_write_shard(const struct ckpt_save *save, struct error *err)
{
    struct directory parent = {.fd = -1}, partial = {.fd = -1};
    void *header = NULL;
    struct manifest *part = part_create(save, &header, err);
    int result = -1;

    if (!part)
        return -1;
    if (directory_make_path(save->dir, err) < 0 || directory_open(&parent, NULL, save->dir, err) < 0)
        goto out;
    if (attempt_is_committed(&parent, save->state.step)) {
        result = attempt_check_committed(&parent, save, err);
        goto out;
    }
    attempt_make_room(&parent, save->state.step, save->attempt);
    if (open_partial(&partial, &parent, save, err) < 0)
        goto out;
    result = write_files(&partial, save, part, header, err);
    /* Another process may have committed the step meanwhile: then this shard is not needed. */
    if (result < 0 && attempt_is_committed(&parent, save->state.step))
        result = attempt_check_committed(&parent, save, err);
out:
    directory_close(&partial);
    directory_close(&parent);
    free(header);
    manifest_destroy(part);
    return result;
}

int ckpt_abandon(const char *dir, uint64_t step, const char *attempt, struct error *err)
{
    char name[FILE_NAME_SIZE];
    struct directory parent;
    int result;

    if (!name_is_attempt(attempt))
        return error_set(err, CODE_INTERNAL,
                         "ckpt_abandon: attempt \"%s\": must be 1 to %d letters, digits, '.', '_' and '-'",
                         attempt ? attempt : "", CKPT_ATTEMPT_SIZE - 1);
    if (directory_open(&parent, NULL, dir, err) < 0)
        return errno == ENOENT ? 0 : -1;
    name_partial(name, step, attempt);
    result = file_exists(&parent, name) ? file_trash(&parent, name, err) : 0;
    directory_close(&parent);
    return result;
}

/* open.c - ckpt_open; the sizes and headers of shards, and their data in verified blocks. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/read/checkpoint.h"
#include "common/crc32c.h"
#include "common/safetensors.h"

static int read_manifest(struct ckpt *ckpt, struct error *err)
{
    ckpt->manifest = manifest_read(&ckpt->directory, MANIFEST_NAME, -1, 0, err);
    if (!ckpt->manifest)
        return -1;
    if (cover_create(&ckpt->cover, ckpt->manifest, err) < 0)
        return error_prefix(err, "%s/" MANIFEST_NAME, ckpt->directory.path);
    return 0;
}

static int compare_entries(const void *left, const void *right)
{
    return strcmp((*(const struct ckpt_tensor *const *)left)->name, (*(const struct ckpt_tensor *const *)right)->name);
}

static int sort_names(struct ckpt *ckpt, struct error *err)
{
    size_t count = ckpt->manifest->ntensors;

    ckpt->by_name = calloc(count + 1, sizeof *ckpt->by_name);
    if (!ckpt->by_name)
        return error_errno(err, CODE_IO, "%s: an index of %zu tensors", ckpt->directory.path, count);
    for (size_t t = 0; t < count; t++)
        ckpt->by_name[t] = &ckpt->manifest->tensors[t];
    if (count)
        qsort(ckpt->by_name, count, sizeof *ckpt->by_name, compare_entries);
    return 0;
}

static int make_tables(struct ckpt *ckpt, struct error *err)
{
    const struct manifest *manifest = ckpt->manifest;

    for (int i = 0; i < manifest->shards; i++)
        ckpt->bytes += manifest_shard_bytes(&manifest->shard[i]);
    ckpt->checked = calloc((size_t)manifest->shards, sizeof *ckpt->checked);
    if (!ckpt->checked)
        return error_errno(err, CODE_IO, "%s: a table of %d shards", ckpt->directory.path, manifest->shards);
    return sort_names(ckpt, err);
}

struct ckpt *ckpt_open(const char *path, struct error *err)
{
    struct ckpt *ckpt = ckpt_open_lazily(path, err);

    if (ckpt && checkpoint_check_all(ckpt, err) < 0) {
        ckpt_close(ckpt);
        return NULL;
    }
    return ckpt;
}

struct ckpt *ckpt_open_lazily(const char *path, struct error *err)
{
    struct ckpt *ckpt = calloc(1, sizeof *ckpt);
    size_t length;

    if (!ckpt) {
        error_errno(err, CODE_IO, "%s", path);
        return NULL;
    }
    if (directory_open(&ckpt->directory, NULL, path, err) < 0) {
        if (err && (errno == ENOENT || errno == ENOTDIR))
            err->code = CODE_DATA;
        goto fail;
    }
    length = strlen(ckpt->directory.path);
    while (length > 1 && ckpt->directory.path[length - 1] == '/')
        ckpt->directory.path[--length] = '\0';
    if (read_manifest(ckpt, err) == 0 && make_tables(ckpt, err) == 0)
        return ckpt;
fail:
    ckpt_close(ckpt);
    return NULL;
}

void ckpt_close(struct ckpt *ckpt)
{
    if (!ckpt)
        return;
    directory_close(&ckpt->directory);
    cover_destroy(&ckpt->cover);
    manifest_destroy(ckpt->manifest);
    free(ckpt->by_name);
    free(ckpt->checked);
    free(ckpt);
}

struct ckpt_origin ckpt_origin(const struct ckpt *ckpt)
{
    const struct manifest *manifest = ckpt->manifest;
    struct ckpt_origin origin = {manifest->version, manifest->attempt, manifest->shard[0].host, 0};

    for (int i = 0; i < manifest->shards; i++)
        if (manifest->shard[i].written > origin.written)
            origin.written = manifest->shard[i].written;
    return origin;
}

const struct ckpt_state *ckpt_state(const struct ckpt *ckpt)
{
    return &ckpt->manifest->state;
}

const char *ckpt_job_text(const struct ckpt *ckpt)
{
    return ckpt->manifest->job_text;
}

const char *ckpt_path(const struct ckpt *ckpt)
{
    return ckpt->directory.path;
}

const struct ckpt_tensor *ckpt_tensors(const struct ckpt *ckpt, size_t *count)
{
    *count = ckpt->manifest->ntensors;
    return ckpt->manifest->tensors;
}

const char *const *ckpt_kinds(const struct ckpt *ckpt, size_t *count)
{
    *count = ckpt->manifest->nkinds;
    return (const char *const *)ckpt->manifest->kinds;
}

int ckpt_shards(const struct ckpt *ckpt)
{
    return ckpt->manifest->shards;
}

uint64_t ckpt_bytes(const struct ckpt *ckpt)
{
    return ckpt->bytes;
}

static int compare_name(const void *name, const void *tensor)
{
    return strcmp(name, (*(const struct ckpt_tensor *const *)tensor)->name);
}

const struct ckpt_tensor *checkpoint_find(const struct ckpt *ckpt, const char *name)
{
    const struct ckpt_tensor **found =
        bsearch(name, ckpt->by_name, ckpt->manifest->ntensors, sizeof *ckpt->by_name, compare_name);

    return found ? *found : NULL;
}

int checkpoint_find_kind(const struct ckpt *ckpt, const char *kind)
{
    for (size_t k = 0; k < ckpt->manifest->nkinds; k++)
        if (strcmp(ckpt->manifest->kinds[k], kind) == 0)
            return (int)k;
    return -1;
}

/* ---- shards ------------------------------------------------------------------------------------------------------ */

/* Check that the shard's header agrees with the manifest. */
static int compare_header(const struct ckpt *ckpt, const struct manifest_shard *shard, const struct safetensors *st,
                          struct error *err)
{
    if (st->data_offset != shard->data_offset)
        return error_set(err, CODE_DATA, "its data starts at offset %" PRIu64 ", the manifest says %" PRIu64,
                         st->data_offset, shard->data_offset);
    for (size_t k = 0; k < ckpt->manifest->nkinds; k++) {
        const struct safetensors_entry *entry = safetensors_find(st, ckpt->manifest->kinds[k]);

        if (!entry)
            return error_set(err, CODE_DATA, "has no tensor \"%s\"", ckpt->manifest->kinds[k]);
        if (strcmp(entry->dtype, "F32") != 0 || entry->ndim != 1 || entry->shape[0] != shard->layout.elements ||
            entry->begin != k * shard->layout.stride)
            return error_set(err, CODE_DATA, "tensor \"%s\" must be F32 [%" PRIu64 "] at data offset %" PRIu64,
                             entry->name, shard->layout.elements, k * shard->layout.stride);
    }
    return 0;
}

static int check_header(const struct ckpt *ckpt, int index, int fd, struct error *err)
{
    const struct manifest_shard *shard = &ckpt->manifest->shard[index];
    unsigned char *header = malloc(shard->data_offset);
    struct safetensors st = {0};
    char name[FILE_NAME_SIZE];
    uint32_t crc;
    int result = -1;

    name_shard(name, index, ckpt->manifest->shards);
    if (!header)
        return error_errno(err, CODE_IO, "%s/%s: a header of %" PRIu64 " bytes", ckpt->directory.path, name,
                           shard->data_offset);
    if (file_read_at(fd, header, shard->data_offset, 0, ckpt->directory.path, name, err) < 0)
        goto out;
    crc = crc32c(0, header, shard->data_offset);
    if (crc != shard->header_crc)
        error_set(err, CODE_DATA,
                  "checksum mismatch in the header, bytes 0 to %" PRIu64 ": %08" PRIx32
                  ", the manifest says %08" PRIx32,
                  shard->data_offset, crc, shard->header_crc);
    else if (safetensors_parse(&st, header, shard->data_offset, manifest_shard_bytes(shard), err) == 0)
        result = compare_header(ckpt, shard, &st, err);
    if (result < 0)
        error_prefix(err, "%s/%s", ckpt->directory.path, name);
out:
    safetensors_destroy(&st);
    free(header);
    return result;
}

/* From any thread. */
static int check_shard(const struct ckpt *ckpt, int shard, struct error *err)
{
    int fd, result;

    if (atomic_load(&ckpt->checked[shard]))
        return 0;
    fd = manifest_open_shard(ckpt->manifest, shard, &ckpt->directory, false, err);
    if (fd < 0)
        return -1;
    result = check_header(ckpt, shard, fd, err);
    close(fd);
    if (result == 0)
        atomic_store(&ckpt->checked[shard], true);
    return result;
}

int checkpoint_check_all(const struct ckpt *ckpt, struct error *err)
{
    for (int i = 0; i < ckpt->manifest->shards; i++)
        if (check_shard(ckpt, i, err) < 0)
            return -1;
    return 0;
}

int checkpoint_open_shard(const struct ckpt *ckpt, int shard, bool direct, struct error *err)
{
    if (check_shard(ckpt, shard, err) < 0)
        return -1;
    return manifest_open_shard(ckpt->manifest, shard, &ckpt->directory, direct, err);
}

/* ---- blocks: the only way to read data --------------------------------------------------------------------------- */

/* With O_DIRECT a read must be of whole sectors; the last one of the file comes back short. */
static int read_direct(int fd, void *buffer, size_t bytes, uint64_t offset)
{
    size_t rounded = (bytes + SHARD_ALIGN - 1) / SHARD_ALIGN * SHARD_ALIGN;
    ssize_t got;

    do
        got = pread(fd, buffer, rounded, (off_t)offset);
    while (got < 0 && errno == EINTR);
    return got >= 0 && (size_t)got == bytes ? 0 : -1;
}

int checkpoint_read_block(const struct ckpt *ckpt, int shard, int fd, bool direct, uint64_t block, void *buffer,
                          struct error *err)
{
    const struct manifest_shard *of = &ckpt->manifest->shard[shard];
    uint64_t offset = of->data_offset + block * SHARD_BLOCK;
    size_t bytes = shard_block_bytes(&of->layout, block);
    char name[FILE_NAME_SIZE];
    uint32_t crc;

    name_shard(name, shard, ckpt->manifest->shards);
    if (!direct || read_direct(fd, buffer, bytes, offset) < 0) {
        int flags = fcntl(fd, F_GETFL);

        if (flags >= 0 &&
            (flags & O_DIRECT)) /* refused or short: again through the page cache, with the reason if that fails */
            fcntl(fd, F_SETFL, flags & ~O_DIRECT);
        if (file_read_at(fd, buffer, bytes, offset, ckpt->directory.path, name, err) < 0)
            return -1;
    }
    crc = crc32c(0, buffer, bytes);
    if (crc != of->block_crcs[block])
        return error_set(err, CODE_DATA,
                         "%s/%s: checksum mismatch in bytes %" PRIu64 " to %" PRIu64 ": %08" PRIx32
                         ", the manifest says %08" PRIx32,
                         ckpt->directory.path, name, offset, offset + bytes, crc, of->block_crcs[block]);
    return 0;
}

/* open.c - opens a checkpoint, checks its shards against the manifest, and returns its contents. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/file/workers.h"
#include "ckpt/read/checkpoint.h"
#include "common/safetensors.h"

#define CHECK_THREADS 16 /* on a network file system, opening a file is mostly waiting */
#define CHECK_SHARDS  64 /* a thread has at least so many */

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
    void *header = manifest_read_header(ckpt->manifest, index, fd, &ckpt->directory, err);
    struct safetensors st = {0};
    char name[FILE_NAME_SIZE];
    int result;

    if (!header)
        return -1;
    result = safetensors_parse(&st, header, shard->data_offset, manifest_shard_bytes(shard), err);
    if (result == 0)
        result = compare_header(ckpt, shard, &st, err);
    name_shard(name, SHARD_DATA, index, ckpt->manifest->shards);
    if (result < 0)
        error_prefix(err, "%s/%s", ckpt->directory.path, name);
    safetensors_destroy(&st);
    free(header);
    return result;
}

int checkpoint_open_shard(const struct ckpt *ckpt, int shard, struct error *err)
{
    int fd = manifest_open_shard(ckpt->manifest, shard, &ckpt->directory, false, err);

    if (fd < 0 || atomic_load(&ckpt->checked[shard]))
        return fd;
    if (check_header(ckpt, shard, fd, err) < 0) {
        close(fd);
        return -1;
    }
    atomic_store(&ckpt->checked[shard], true);
    return fd;
}

static int check_shard(void *arg, int worker, size_t item, struct error *err)
{
    const struct ckpt *ckpt = arg;
    int fd;

    (void)worker;
    if (atomic_load(&ckpt->checked[item]))
        return 0;
    fd = checkpoint_open_shard(ckpt, (int)item, err);
    return fd < 0 ? -1 : close(fd);
}

int checkpoint_check_shards(struct ckpt *ckpt, struct error *err)
{
    int threads = ckpt->manifest->shards / CHECK_SHARDS;

    return workers_run(threads < 1               ? 1
                       : threads > CHECK_THREADS ? CHECK_THREADS
                                                 : threads,
                       (size_t)ckpt->manifest->shards, check_shard, ckpt, err);
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

/* Opens the directory of a checkpoint. A missing directory is CODE_DATA. Removes slashes from the end of
 * directory->path. */
static int open_step(struct directory *directory, const char *path, struct error *err)
{
    size_t length;

    if (directory_open(directory, NULL, path, err) < 0) {
        if (err && (errno == ENOENT || errno == ENOTDIR))
            err->code = CODE_DATA;
        return -1;
    }
    length = strlen(directory->path);
    while (length > 1 && directory->path[length - 1] == '/')
        directory->path[--length] = '\0';
    return 0;
}

char *ckpt_manifest_text(const char *path, size_t *bytes, struct error *err)
{
    struct directory directory;
    char *text;

    if (open_step(&directory, path, err) < 0)
        return NULL;
    text = file_read(&directory, MANIFEST_NAME, MANIFEST_MAX_BYTES, bytes, err);
    directory_close(&directory);
    return text;
}

struct ckpt *ckpt_open_with(const char *path, const char *text, size_t bytes, struct error *err)
{
    struct ckpt *ckpt = error_calloc(1, sizeof *ckpt, err);
    char parent[sizeof ckpt->directory.path];
    uint64_t step;

    if (!ckpt)
        return NULL;
    if (open_step(&ckpt->directory, path, err) < 0)
        goto fail;
    ckpt->manifest = manifest_decode(text, bytes, -1, 0, err);
    if (!ckpt->manifest || piece_index_create(&ckpt->index, ckpt->manifest, err) < 0) {
        error_prefix(err, "%s/" MANIFEST_NAME, ckpt->directory.path);
        goto fail;
    }
    if (ckpt_split_step_path(parent, sizeof parent, &step, path) && step != ckpt->manifest->state.step) {
        error_set(err, CODE_DATA, "%s/" MANIFEST_NAME ": has step %" PRIu64 ", its directory's name has another",
                  ckpt->directory.path, ckpt->manifest->state.step);
        goto fail;
    }
    ckpt->checked = calloc((size_t)ckpt->manifest->shards, sizeof *ckpt->checked);
    ckpt->by_name = tensors_by_name(ckpt->manifest->tensors, ckpt->manifest->ntensors);
    if (ckpt->checked && ckpt->by_name)
        return ckpt;
    error_errno(err, CODE_IO, "%s: tables of %d shards and %zu tensors", path, ckpt->manifest->shards,
                ckpt->manifest->ntensors);
fail:
    ckpt_close(ckpt);
    return NULL;
}

struct ckpt *ckpt_open_lazily(const char *path, struct error *err)
{
    size_t bytes;
    char *text = ckpt_manifest_text(path, &bytes, err);
    struct ckpt *ckpt = text ? ckpt_open_with(path, text, bytes, err) : NULL;

    free(text);
    return ckpt;
}

struct ckpt *ckpt_open(const char *path, struct error *err)
{
    struct ckpt *ckpt = ckpt_open_lazily(path, err);

    if (ckpt && checkpoint_check_shards(ckpt, err) < 0) {
        ckpt_close(ckpt);
        return NULL;
    }
    return ckpt;
}

void ckpt_close(struct ckpt *ckpt)
{
    if (!ckpt)
        return;
    directory_close(&ckpt->directory);
    piece_index_destroy(&ckpt->index);
    manifest_destroy(ckpt->manifest);
    free(ckpt->by_name);
    free(ckpt->checked);
    free(ckpt);
}

/* ---- what it holds ----------------------------------------------------------------------------------------------- */

struct ckpt_summary ckpt_summary(const struct ckpt *ckpt)
{
    const struct manifest *manifest = ckpt->manifest;
    struct ckpt_summary summary = {
        .version = manifest->version,
        .attempt = manifest->attempt,
        .host = manifest->shard[0].host,
        .shards = manifest->shards,
        .kinds = (const char *const *)manifest->kinds,
        .nkinds = manifest->nkinds,
    };

    for (int i = 0; i < manifest->shards; i++) {
        summary.bytes += manifest_shard_bytes(&manifest->shard[i]);
        if (manifest->shard[i].written > summary.written)
            summary.written = manifest->shard[i].written;
    }
    return summary;
}

const struct ckpt_progress *ckpt_progress(const struct ckpt *ckpt)
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

const struct ckpt_tensor *checkpoint_find(const struct ckpt *ckpt, const char *name)
{
    return tensors_find(ckpt->by_name, ckpt->manifest->ntensors, name);
}

int checkpoint_find_kind(const struct ckpt *ckpt, const char *kind)
{
    for (size_t k = 0; k < ckpt->manifest->nkinds; k++)
        if (strcmp(ckpt->manifest->kinds[k], kind) == 0)
            return (int)k;
    return -1;
}

int checkpoint_read_pieces(struct ckpt *ckpt, const struct ckpt_tensor *tensors, size_t ntensors, const char *kind,
                           const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err)
{
    void **targets = error_calloc(npieces + 1, sizeof *targets, err);
    int result;

    if (!targets)
        return -1;
    for (size_t p = 0; p < npieces; to += pieces[p++].count)
        targets[p] = to;
    result = ckpt_read(ckpt, tensors, ntensors, &kind, 1, pieces, npieces, targets, err);
    free(targets);
    return result;
}

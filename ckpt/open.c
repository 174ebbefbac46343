/* open.c - ckpt_open and what an open checkpoint tells. */
#include "config.h"

#include "ckpt/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_manifest(struct ckpt *ckpt, struct error *err)
{
    size_t bytes;
    char *text = file_read(&ckpt->directory, MANIFEST_NAME, MANIFEST_MAX_BYTES, &bytes, err);

    if (!text)
        return -1;
    ckpt->manifest = manifest_decode(text, bytes, -1, 0, err);
    free(text);
    if (!ckpt->manifest || cover_create(&ckpt->cover, ckpt->manifest, err) < 0)
        return error_prefix(err, "%s/" MANIFEST_NAME, ckpt->directory.path);
    return 0;
}

static int by_name(const void *left, const void *right)
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
        qsort(ckpt->by_name, count, sizeof *ckpt->by_name, by_name);
    return 0;
}

static int prepare(struct ckpt *ckpt, struct error *err)
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
    if (read_manifest(ckpt, err) == 0 && prepare(ckpt, err) == 0)
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

#include "config.h"

#include "ckpt/part.h"
#include "common/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The tables of the save, copied: a part is a manifest of one shard. Empty pieces are left out. */
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

struct manifest *part_create(const struct ckpt_save *save, struct error *err)
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
    if (layout_attempt_is_valid(save->attempt)) /* else manifest_check complains of "" */
        snprintf(part->attempt, sizeof part->attempt, "%s", save->attempt);
    if (copy_tables(part, save, err) < 0)
        goto fail;
    if (manifest_check(part, err) < 0) {
        if (err && err->code == CODE_DATA)
            err->code = CODE_INTERNAL; /* it is our caller's struct that is wrong, not a file */
        error_prefix(err, "cannot save step %llu", (unsigned long long)save->state.step);
        goto fail;
    }
    gethostname(part->shard->host, sizeof part->shard->host - 1);
    part->shard->written = (uint64_t)time(NULL);
    return part;
fail:
    manifest_destroy(part);
    return NULL;
}

int part_header(const struct manifest *part, void **header, size_t *bytes, struct error *err)
{
    struct safetensors_entry *entries = calloc(part->nkinds, sizeof *entries);
    const char *metadata[] = {"format", "muster-shard", NULL};
    int result;

    if (!entries)
        return error_errno(err, CODE_IO, "header of shard %d", part->part);
    for (size_t k = 0; k < part->nkinds; k++)
        entries[k] = (struct safetensors_entry){part->kinds[k], "F32", 1, {part->shard->layout.elements}, 0, 0};
    result = safetensors_layout(entries, part->nkinds, metadata, LAYOUT_ALIGN, header, bytes, err);
    free(entries);
    return result;
}

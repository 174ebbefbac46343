/* shard.c - opening a shard's file, and what must be right of it before any of its data counts. */
#include "config.h"

#include "ckpt/checkpoint.h"
#include "common/crc32c.h"
#include "common/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int open_file(const struct ckpt *ckpt, int shard, bool direct, struct error *err)
{
    uint64_t bytes, wanted = manifest_shard_bytes(&ckpt->manifest->shard[shard]);
    char name[LAYOUT_NAME_SIZE];
    int fd;

    layout_shard_name(name, shard, ckpt->manifest->shards);
    fd = file_open(&ckpt->directory, name, direct, &bytes, err);
    if (fd < 0)
        return -1;
    if (bytes != wanted) {
        close(fd);
        return error_set(err, CODE_DATA, "%s/%s: %" PRIu64 " bytes, the manifest says %" PRIu64 "%s",
                         ckpt->directory.path, name, bytes, wanted, bytes < wanted ? ": truncated" : "");
    }
    return fd;
}

/* That the shard's own header says what the manifest says. */
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
    char name[LAYOUT_NAME_SIZE];
    uint32_t crc;
    int result = -1;

    layout_shard_name(name, index, ckpt->manifest->shards);
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

/* Any thread may. */
static int check_shard(const struct ckpt *ckpt, int shard, struct error *err)
{
    int fd, result;

    if (atomic_load(&ckpt->checked[shard]))
        return 0;
    fd = open_file(ckpt, shard, false, err);
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
    return check_shard(ckpt, shard, err) < 0 ? -1 : open_file(ckpt, shard, direct, err);
}

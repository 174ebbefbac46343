/* block.c - the only way data comes out of a shard: whole blocks, verified. Declared in checkpoint.h. */
#include "config.h"

#include "ckpt/checkpoint.h"
#include "common/crc32c.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

/* With O_DIRECT a read must be of whole sectors; the last one of the file comes back short. */
static int read_direct(int fd, void *buffer, size_t bytes, uint64_t offset)
{
    size_t rounded = (bytes + LAYOUT_ALIGN - 1) / LAYOUT_ALIGN * LAYOUT_ALIGN;
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
    uint64_t offset = of->data_offset + block * LAYOUT_BLOCK;
    size_t bytes = layout_block_bytes(&of->layout, block);
    char name[LAYOUT_NAME_SIZE];
    uint32_t crc;

    layout_shard_name(name, shard, ckpt->manifest->shards);
    if (!direct || read_direct(fd, buffer, bytes, offset) < 0) {
        int flags = fcntl(fd, F_GETFL);

        if (flags >= 0 && (flags & O_DIRECT)) /* refused or short: again through the page cache, which says why */
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

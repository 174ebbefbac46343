/*
 * stage_copy.h - the one copy that training may wait for: scattered sources to a shard's data, and its checksums.
 *
 * Memory bandwidth is all that counts here. The state is read once and written once: a run of SOURCE_CACHED bytes is
 * checksummed, which brings it into the cache, and then stored from there past the cache, so that the target's lines
 * are not read before they are written. A checksum is therefore of the source; the drainer holds what was stored to it.
 */
#ifndef MUSTER_CKPT_STAGE_COPY_H
#define MUSTER_CKPT_STAGE_COPY_H

#include "ckpt/layout.h"

/* Where the data's bytes from `offset` up to the next segment's come from: `source`, or zeros if that is NULL. */
struct segment {
    uint64_t offset;
    const unsigned char *source;
};

/* Segments in the order of offset, one past the last at the data's end. malloc'ed; NULL when memory is short. */
struct segment *stage_segments(const struct ckpt_save *save, const struct layout *layout, size_t *count);

/*
 * Copy layout->data_bytes bytes to `to` on `threads` threads, this one among them, a block at a time; crcs
 * [layout->blocks]. `to` is aligned to 64 bytes. Fewer threads where no more can be started.
 */
void stage_copy(unsigned char *to, const struct segment *segments, size_t count, const struct layout *layout,
                int threads, uint32_t *crcs);

#endif

/* stage_room.c - whether this node has memory for a staged shard, before any of it is taken. */
#include "config.h"

#include "ckpt/stage_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <sys/statfs.h>

#include "common/memory_limit.h"

int stage_room(const struct directory *stage, uint64_t bytes, struct error *err)
{
    struct statfs fs;
    uint64_t room;
    const char *of = "the file system";

    if (fstatfs(stage->fd, &fs) < 0)
        return 0;
    room = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    /* Half a RAM disk may be more than the memory that is left; the kernel would then kill someone. */
    if (fs.f_type == TMPFS_MAGIC) {
        uint64_t memory = memory_available();
        uint64_t groups = memory_limit_left(); /* pages of a RAM disk count for whoever touched them first: us */

        if (memory < room) {
            room = memory;
            of = "this node's memory";
        }
        if (groups < room) {
            room = groups;
            of = "the job's memory limit";
        }
    }
    if (room >= bytes)
        return 0;
    error_set(err, CODE_IO, "%s: a staged shard takes %" PRIu64 " bytes, %s has %" PRIu64 " left", stage->path, bytes,
              of, room);
    errno = ENOSPC;
    return 1;
}

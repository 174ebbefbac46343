/* stage_room.c - whether this node has memory for a staged shard, before any of it is taken. */
#include "config.h"

#include "ckpt/stage_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>

/* "key: number kB" or "key number" of a file of such lines; what is not there is `otherwise`. */
static uint64_t find_number(const char *path, const char *key, uint64_t otherwise)
{
    FILE *file = fopen(path, "re");
    char line[256];
    uint64_t value = otherwise;
    size_t length = strlen(key);

    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, length) == 0 && sscanf(line + length, "%" SCNu64, &value) == 1)
            break;
    if (file)
        fclose(file);
    return value;
}

/* What one control group leaves: the limit, less what is used, but for file pages that it would drop. */
static uint64_t group_room(const char *group)
{
    char path[4608];
    uint64_t most, used, cached;

    snprintf(path, sizeof path, "%s/memory.max", group);
    most = find_number(path, "", UINT64_MAX); /* "max" is no number */
    if (most == UINT64_MAX)
        return UINT64_MAX;
    snprintf(path, sizeof path, "%s/memory.current", group);
    used = find_number(path, "", 0);
    snprintf(path, sizeof path, "%s/memory.stat", group);
    cached = find_number(path, "inactive_file ", 0);
    used = used > cached ? used - cached : 0;
    return most > used ? most - used : 0;
}

/*
 * The job's own control group and all above it: pages of a RAM disk count for whoever touched them first, which is us.
 */
static uint64_t groups_room(void)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[4096], group[4400];
    uint64_t least = UINT64_MAX;

    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::/", 4) != 0)
            continue;
        snprintf(group, sizeof group, "/sys/fs/cgroup%s", line + 3);
        for (char *slash; (slash = strrchr(group, '/')) && strlen(group) > strlen("/sys/fs/cgroup"); *slash = '\0') {
            uint64_t room = group_room(group);

            least = room < least ? room : least;
        }
    }
    if (file)
        fclose(file);
    return least;
}

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
        uint64_t memory = find_number("/proc/meminfo", "MemAvailable:", UINT64_MAX / 1024) * 1024;
        uint64_t groups = groups_room();

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

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

/* The files of a control group, by version. */
struct group_files {
    const char *root, *most, *used, *cached;
};

static const struct group_files version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                             "total_inactive_file "};
static const struct group_files version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};

static uint64_t group_number(const char *group, const char *file, const char *key, uint64_t otherwise)
{
    char path[4608];

    snprintf(path, sizeof path, "%s/%s", group, file);
    return find_number(path, key, otherwise);
}

/* What one control group leaves: the limit, less what is used, but for file pages that it would drop. */
static uint64_t group_room(const char *group, const struct group_files *files)
{
    uint64_t most = group_number(group, files->most, "", UINT64_MAX); /* "max" is no number */
    uint64_t used, cached;

    if (most == UINT64_MAX)
        return UINT64_MAX;
    used = group_number(group, files->used, "", 0);
    cached = group_number(group, "memory.stat", files->cached, 0);
    used = used > cached ? used - cached : 0;
    return most > used ? most - used : 0;
}

/* A group and all above it. */
static uint64_t path_room(const char *path, const struct group_files *files)
{
    char group[4400];
    uint64_t least = UINT64_MAX;

    snprintf(group, sizeof group, "%s%s", files->root, path);
    for (char *slash; (slash = strrchr(group, '/')) && strlen(group) > strlen(files->root); *slash = '\0') {
        uint64_t room = group_room(group, files);

        least = room < least ? room : least;
    }
    return least;
}

/*
 * The job's own control group and all above it: pages of a RAM disk count for whoever touched them first, which is us.
 */
static uint64_t groups_room(void)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[4096];
    uint64_t least = UINT64_MAX;

    while (file && fgets(line, sizeof line, file)) {
        const char *of_memory = strstr(line, ":memory:/");
        uint64_t room = UINT64_MAX;

        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::/", 4) == 0)
            room = path_room(line + 3, &version_2);
        else if (of_memory)
            room = path_room(of_memory + strlen(":memory:"), &version_1);
        least = room < least ? room : least;
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

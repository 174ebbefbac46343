#include "common/memory_limit.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define ROOT "/sys/fs/cgroup"

static uint64_t limit_of(const char *group, const char *name)
{
    char path[4608];
    uint64_t limit = UINT64_MAX; /* "max" is no number */
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", group, name);
    file = fopen(path, "re");
    if (file && fscanf(file, "%" SCNu64, &limit) != 1)
        limit = UINT64_MAX;
    if (file)
        fclose(file);
    return limit;
}

/* Of a group and all above it, up to and with the root, which in a container is the container's own group. */
static uint64_t least_of(const char *root, const char *path, const char *name)
{
    char group[4400];
    uint64_t least = UINT64_MAX;

    snprintf(group, sizeof group, "%s%s", root, path);
    for (;;) {
        uint64_t limit = limit_of(group, name);
        char *slash = strrchr(group, '/');

        least = limit < least ? limit : least;
        if (strlen(group) <= strlen(root) || !slash)
            return least;
        *slash = '\0';
    }
}

/* "4:memory:/path" of version 1, or of several controllers, as "4:cpu,memory:/path". */
static bool has_memory(const char *controllers)
{
    const char *at = strstr(controllers, "memory");

    return at && (at == controllers || at[-1] == ',') && strchr(",:", at[strlen("memory")]);
}

uint64_t memory_limit(void)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[4096];
    uint64_t least = UINT64_MAX, limit;

    while (file && fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;

        line[strcspn(line, "\n")] = '\0';
        if (!path)
            continue;
        if (path == controllers + 1)
            limit = least_of(ROOT, path + 1, "memory.max");
        else if (has_memory(controllers + 1))
            limit = least_of(ROOT "/memory", path + 1, "memory.limit_in_bytes");
        else
            continue;
        least = limit < least ? limit : least;
    }
    if (file)
        fclose(file);
    return least;
}

#include "common/memory_limit.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The files of a control group. */
struct version {
    const char *root, *limit, *used, *cached;
};

static const struct version version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                         "total_inactive_file "};
static const struct version version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};

/* The number after `key` at the start of a line of the file; with key "" the first number. `otherwise` if not found. */
static uint64_t find_number(const char *directory, const char *name, const char *key, uint64_t otherwise)
{
    char path[4608], line[256];
    uint64_t value = otherwise;
    size_t length = strlen(key);
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", directory, name);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, length) == 0 && sscanf(line + length, "%" SCNu64, &value) == 1)
            break;
    if (file)
        fclose(file);
    return value;
}

static uint64_t group_limit(const char *group, const struct version *version)
{
    return find_number(group, version->limit, "", UINT64_MAX); /* "max" is not a number */
}

static uint64_t group_left(const char *group, const struct version *version)
{
    uint64_t limit = group_limit(group, version), used, cached;

    if (limit == UINT64_MAX)
        return UINT64_MAX;
    used = find_number(group, version->used, "", 0);
    cached = find_number(group, "memory.stat", version->cached, 0);
    used = used > cached ? used - cached : 0;
    return limit > used ? limit - used : 0;
}

typedef uint64_t measure(const char *group, const struct version *version);

/* The least of a group and its ancestors, the root included, which in a container is the container's own group. */
static uint64_t least_above(const char *path, const struct version *version, measure *of)
{
    char group[4400];
    uint64_t least = UINT64_MAX;

    snprintf(group, sizeof group, "%s%s", version->root, path);
    for (;;) {
        uint64_t one = of(group, version);
        char *slash = strrchr(group, '/');

        least = one < least ? one : least;
        if (strlen(group) <= strlen(version->root) || !slash)
            return least;
        *slash = '\0';
    }
}

/* True for "memory" among the controllers, as in "cpu,memory:/path". */
static bool has_memory(const char *controllers)
{
    const char *at = strstr(controllers, "memory");

    return at && (at == controllers || at[-1] == ',') && strchr(",:", at[strlen("memory")]);
}

/* Version 2 has one line, "0::/path"; version 1 has one for each hierarchy, "4:memory:/path". */
static uint64_t least_of_all(measure *of)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[4096];
    uint64_t least = UINT64_MAX;

    while (file && fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        uint64_t one = UINT64_MAX;

        line[strcspn(line, "\n")] = '\0';
        if (path && path == controllers + 1)
            one = least_above(path + 1, &version_2, of);
        else if (path && has_memory(controllers + 1))
            one = least_above(path + 1, &version_1, of);
        least = one < least ? one : least;
    }
    if (file)
        fclose(file);
    return least;
}

static uint64_t number_of(const char *variable)
{
    const char *text = getenv(variable);

    return text ? strtoull(text, NULL, 10) : 0;
}

uint64_t memory_asked(void)
{
    uint64_t mib = number_of("SLURM_MEM_PER_NODE"); /* 0: all */

    return (mib > 0 ? mib : number_of("SLURM_MEM_PER_CPU") * number_of("SLURM_CPUS_ON_NODE")) << 20;
}

uint64_t memory_limit(void)
{
    uint64_t limit = least_of_all(group_limit), asked = memory_asked();

    return asked > 0 && asked < limit ? asked : limit;
}

uint64_t memory_limit_left(void)
{
    return least_of_all(group_left);
}

static uint64_t status_bytes(const char *key)
{
    return find_number("/proc/self", "status", key, 0) * 1024;
}

uint64_t memory_own(void)
{
    return status_bytes("RssAnon:");
}

uint64_t memory_shared(void)
{
    return status_bytes("RssShmem:");
}

uint64_t memory_available(void)
{
    uint64_t kib = find_number("/proc", "meminfo", "MemAvailable:", UINT64_MAX);

    return kib == UINT64_MAX ? kib : kib * 1024;
}

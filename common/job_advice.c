/* What to say to someone who wrote a key that is not there. */
#include <stdio.h>
#include <string.h>

#include "common/job_keys.h"

#define NAME_MAX_LENGTH 63

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Edits that turn a into b: insert, delete, replace, or swap neighbours (optimal string alignment). */
static int edit_distance(const char *a, const char *b)
{
    int cost[NAME_MAX_LENGTH + 1][NAME_MAX_LENGTH + 1];
    int na = (int)strnlen(a, NAME_MAX_LENGTH), nb = (int)strnlen(b, NAME_MAX_LENGTH);

    for (int i = 0; i <= na; i++)
        cost[i][0] = i;
    for (int j = 0; j <= nb; j++)
        cost[0][j] = j;
    for (int i = 1; i <= na; i++) {
        for (int j = 1; j <= nb; j++) {
            int here = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

            here = least(here, least(cost[i - 1][j], cost[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                here = least(here, cost[i - 2][j - 2] + 1);
            cost[i][j] = here;
        }
    }
    return cost[na][nb];
}

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? dot + 1 : path;
}

/* The group that has no keys in the table, since its names are the user's. */
#define VARIABLES "environment"

/* The key or group nearest to `path`, or "" if none is near. A right name in a wrong group counts as nearest of all. */
static void nearest_name(const char *path, char *name, size_t size)
{
    int best = 2 + (int)strlen(last_part(path)) / 3;

    name[0] = '\0';
    for (int k = 0; k < job_key_count; k++) {
        const char *key = job_keys[k].path;
        char group[NAME_MAX_LENGTH + 1];
        int distance = strcmp(last_part(key), last_part(path)) == 0 ? 0 : edit_distance(path, key);

        if (distance < best) {
            best = distance;
            snprintf(name, size, "%s", key);
        }
        snprintf(group, sizeof group, "%.*s", (int)strcspn(key, "."), key);
        distance = edit_distance(path, group);
        if (distance < best) {
            best = distance;
            snprintf(name, size, "%s", group);
        }
    }
    if (edit_distance(path, VARIABLES) < best)
        snprintf(name, size, VARIABLES);
}

/* Names of the keys in group `prefix` (its length given), or of the groups where the length is 0. */
static void list_names(const char *prefix, size_t length, char *list, size_t size)
{
    size_t used = 0;
    const char *previous = "";
    size_t previous_length = 0;

    list[0] = '\0';
    for (int k = 0; k < job_key_count && used < size; k++) {
        const char *key = job_keys[k].path;
        const char *part;
        size_t part_length;

        if (length && (strncmp(key, prefix, length) != 0 || key[length] != '.'))
            continue;
        part = length ? key + length + 1 : key;
        part_length = strcspn(part, ".");
        if (part_length == previous_length && strncmp(part, previous, part_length) == 0)
            continue;
        used += (size_t)snprintf(list + used, size - used, "%s%.*s", used ? ", " : "", (int)part_length, part);
        previous = part;
        previous_length = part_length;
    }
}

void job_key_advice(const char *path, char *advice, size_t size)
{
    size_t group = (size_t)(last_part(path) - path);
    char name[NAME_MAX_LENGTH + 1], list[400], parent[NAME_MAX_LENGTH + 1];

    nearest_name(path, name, sizeof name);
    snprintf(parent, sizeof parent, "%.*s", group ? (int)group - 1 : 0, path);
    if (job_key_is_group(path)) {
        list_names(path, strlen(path), list, sizeof list);
        snprintf(advice, size, "it is a group, which has: %s", list);
    } else if (name[0]) {
        snprintf(advice, size, "did you mean '%s'?", name);
    } else if (group && job_key_is_group(parent)) {
        list_names(parent, strlen(parent), list, sizeof list);
        snprintf(advice, size, "'%s' has: %s", parent, list);
    } else {
        list_names("", 0, list, sizeof list);
        snprintf(advice, size, "there are: %s, " VARIABLES, list);
    }
}
